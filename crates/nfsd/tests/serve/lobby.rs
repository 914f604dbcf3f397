//! The lobby serves strangers. If an export comes to take the calls of a connection, it leaves the
//! lobby without a disturbance.

use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Access, Export};

use crate::client::Client;
use crate::fixture::{Fixture, config};

const HOST: &str = "127.0.0.1";
const STRANGER: &str = "127.0.0.9";
/// Ports of a superuser, and of any user.
const LOW: std::ops::Range<u16> = 600..1024;
const HIGH: std::ops::Range<u16> = 10_000..20_000;

fn exports(hosts: &[&str]) -> Vec<Export> {
    let access = Access::read_write_for(hosts.iter().map(|host| host.parse().unwrap()));
    vec![Export { access, secure_ports: true, ..Export::new("/vms", "tank/vms") }]
}

fn in_lobby(fixture: &Fixture, count: usize) {
    fixture.until(&format!("{count} in the lobby"), |fixture| {
        fixture.server().load().in_lobby == count
    });
}

fn getattr(client: &mut Client, object: NfsFh3) -> Vec<u8> {
    client.nfs_record(&Args3::Getattr(Getattr3Args { object }))
}

/// The status of the next reply.
#[track_caller]
fn answered(client: &mut Client) -> Nfsstat3 {
    let (_, answer) = client.answer();
    match answer.unwrap().decode::<Getattr3Res>() {
        Res3::Ok(_) => Nfsstat3::Ok,
        Res3::Fail { status, .. } => status,
    }
}

#[track_caller]
fn status(client: &mut Client, object: NfsFh3) -> Nfsstat3 {
    let record = getattr(client, object);
    client.send(&record);
    answered(client)
}

#[test]
fn who_is_let_in_leaves_the_lobby_with_all_that_was_sent() {
    let fixture = Fixture::with(config(), exports(&[HOST]));
    let from = |host, ports| Client::connect_from(host, ports, fixture.address());
    let mut host = from(HOST, LOW);
    let handle = host.mount("/vms").unwrap();
    in_lobby(&fixture, 0);
    // Users on the host are strangers if the export requires its superuser.
    let mut user = from(HOST, HIGH);
    in_lobby(&fixture, 1);
    let mut strangers: Vec<Client> = (0..3).map(|_| from(STRANGER, LOW)).collect();
    in_lobby(&fixture, 4);
    for stranger in strangers.iter_mut().chain([&mut user]) {
        assert_eq!(status(stranger, handle), Nfsstat3::Acces);
    }
    assert_eq!(fixture.server().load().in_lobby, 4, "a call that is refused is no proof");
    // Half of a call has come when the export takes it; then the rest comes, and another call.
    let [first, second, third] = &mut strangers[..] else { unreachable!() };
    let half = getattr(first, handle);
    first.send(&half[..30]);
    // Two whole ones and half of the third.
    let records: Vec<u8> = (0..3).flat_map(|_| getattr(second, handle)).collect();
    second.send(&records[..records.len() - 30]);
    for _ in 0..2 {
        assert_eq!(answered(second), Nfsstat3::Acces);
    }
    fixture.server().nfs().exports().replace(exports(&[HOST, STRANGER])).unwrap();
    first.send(&half[30..]);
    assert_eq!(answered(first), Nfsstat3::Ok);
    second.send(&records[records.len() - 30..]);
    assert_eq!(answered(second), Nfsstat3::Ok);
    assert_eq!(status(third, handle), Nfsstat3::Ok);
    in_lobby(&fixture, 1);
    // They are clients like others: calls, many at once, large ones.
    for (client, name) in strangers.iter_mut().chain([&mut host]).zip(["a", "b", "c", "d"]) {
        let file = client.file(handle, name);
        let data = vec![7; 256 << 10];
        let wrote = client.write(file, 0, &data, StableHow::FileSync);
        assert!(matches!(wrote, Res3::Ok(_)), "{wrote:?}");
        assert_eq!(client.read(file, 0, 256 << 10).unwrap().0, data);
        let many: Vec<u8> = (0..100).flat_map(|_| getattr(client, handle)).collect();
        client.send(&many);
        for _ in 0..100 {
            assert_eq!(answered(client), Nfsstat3::Ok);
        }
    }
    assert_eq!(status(&mut user, handle), Nfsstat3::Acces);
    // A connection that is idle in the lobby stays there until its next call; ended ones are not
    // counted.
    drop((host, user, strangers));
    fixture.until("nobody is connected", |fixture| {
        let load = fixture.server().load();
        (load.connections, load.in_lobby) == (0, 0)
    });
}
