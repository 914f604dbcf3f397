//! The end of connections, of the server, and of requests that fail.

use std::time::{Duration, Instant};

use aquifer_nfs::Export;
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Getattr3Args, NfsFh3, Res3, Sattr3,
};
use aquifer_nfsd::Config;

use crate::client::Client;
use crate::fixture::{Fixture, config};

fn create(client: &mut Client, dir: NfsFh3, name: &str) -> Vec<u8> {
    let place = DirOpArgs3 { dir, name: name.as_bytes() };
    let how = CreateHow3::Guarded(Sattr3::NONE);
    client.nfs_record(&Args3::Create(Create3Args { place, how }))
}

/// A request that waits for the disk.
fn waiting(fixture: &Fixture, client: &mut Client, dir: NfsFh3, name: &str) {
    fixture.gate.close();
    let record = create(client, dir, name);
    client.send(&record);
    fixture.until("the request waits", |fixture| fixture.gate.waiting() > 0);
}

fn exists(fixture: &Fixture, name: &str) -> bool {
    let (cred, root) = (aquifer_files::Credentials::root(), fixture.root());
    let found = fixture.block_on(fixture.pool().files.lookup(&cred, root, name.as_bytes()));
    found.0.is_ok()
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    let fixture = Fixture::new();
    let (mut other, root) = fixture.mounted();
    other.nfs(&Args3::Getattr(Getattr3Args { object: root }));
    fixture.panics.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..20 {
        let mut client = fixture.client();
        let path = aquifer_nfs::proto::mount::DirPath {
            path: aquifer_nfs::proto::mount::Path(b"/panics"),
        };
        let record = client.record((100_005, 3, 1), &path);
        client.send(&record);
        client.closed();
        let attributes = other.nfs(&Args3::Getattr(Getattr3Args { object: root }));
        let _: aquifer_nfs::proto::v3::Fattr3 = match attributes.decode() {
            Res3::Ok(attributes) => attributes,
            Res3::Fail { status, resfail: () } => panic!("{status:?}"),
        };
    }
    let load = fixture.server().load();
    assert_eq!((load.panics, load.protocol_errors), (20, 0));
    fixture.until("they are gone", |fixture| fixture.server().load().connections == 1);
    let load = fixture.server().load();
    assert_eq!((load.request_bytes, load.reply_bytes), (0, 0));
}

#[test]
fn a_request_whose_client_has_gone_runs_to_its_end() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    waiting(&fixture, &mut client, root, "orphan");
    drop(client);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(fixture.server().load().connections, 1, "it waits for its request");
    fixture.gate.open();
    fixture.until("it is gone", |fixture| fixture.server().load().connections == 0);
    assert!(exists(&fixture, "orphan"));
    let load = fixture.server().load();
    assert_eq!((load.request_bytes, load.reply_bytes, load.panics), (0, 0, 0));
}

/// The reply comes with no other event on the connection: only its request can wake the task.
#[test]
fn a_request_that_waits_is_answered_when_it_is_done() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    waiting(&fixture, &mut client, root, "slow");
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    fixture.gate.open();
    client.receive();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn requests_do_not_wait_for_each_other() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    waiting(&fixture, &mut client, root, "slow");
    client.ping();
    fixture.gate.open();
    client.receive();
}

#[test]
fn a_stop_answers_what_has_begun() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let mut idle = fixture.client();
    idle.ping();
    waiting(&fixture, &mut client, root, "last");
    let gate = fixture.gate.clone();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        gate.open();
    });
    let server = fixture.server.take().unwrap();
    let begun = Instant::now();
    let stopped = fixture.block_on(server.stop());
    let took = begun.elapsed();
    assert_eq!((stopped.connections, stopped.cut, stopped.stuck), (2, 0, 0));
    assert!(took > Duration::from_millis(250) && took < Duration::from_secs(2), "{took:?}");
    let reply = client.receive();
    assert!(reply.len() > 200, "created: {} bytes", reply.len());
    client.closed();
    idle.closed();
    let gone = std::net::TcpStream::connect(server.addresses()[0]);
    assert!(gone.is_err(), "nobody listens");
    opener.join().unwrap();
    assert_eq!(fixture.block_on(server.stop()).connections, 0, "a second stop");
    drop(server);
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let config = Config { drain: Duration::from_millis(200), ..config() };
    let mut fixture = Fixture::with(config, vec![Export::new("/vms", "tank/vms")]);
    let (mut client, root) = fixture.mounted();
    waiting(&fixture, &mut client, root, "stuck");
    let server = fixture.server.take().unwrap();
    let begun = Instant::now();
    let stopped = fixture.block_on(server.stop());
    assert_eq!((stopped.connections, stopped.cut, stopped.stuck), (1, 1, 1));
    assert!(begun.elapsed() < Duration::from_secs(2));
    client.closed();
    fixture.gate.open();
    fixture.block_on(fixture.pool().pool.sync()).unwrap();
    fixture.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
    assert_eq!(server.load().connections, 0, "it came to its end after all");
    assert!(exists(&fixture, "stuck"));
    drop(server);
}

/// A new server on the same pool takes the same port at once.
#[test]
fn a_restarted_server_has_its_port() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let address = fixture.address();
    let server = fixture.server.take().unwrap();
    fixture.block_on(server.stop());
    client.closed();
    let config = Config { listen: vec![address], ..config() };
    fixture.serve(config, vec![Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    let record = create(&mut client, root, "later");
    client.send(&record);
    let reply = client.receive();
    let made: Create3Res =
        aquifer_rpc::xdr::Decode::decode(&mut aquifer_rpc::xdr::Decoder::new(&reply[24..]))
            .unwrap();
    assert!(matches!(made, Res3::Ok(_)), "the handle of before the restart");
}
