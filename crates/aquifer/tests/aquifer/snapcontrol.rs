//! Snapshots over NFS, as an administrator allows and sees them; and kill -9 in the middle of them.

use std::io::Write;
use std::thread;
use std::time::Duration;

use aquifer_nfs::proto::v3::{
    Args3, Create3Args, CreateHow3, Mkdir3Args, NfsFh3, Rename3Args, Sattr3, StableHow, Write3Args,
    Write3Head,
};
use aquifer_rpc::xdr::Span;

use crate::exports::address;
use crate::once::{Client, answer, connect, exchange, mounted, nfs3, place};
use crate::support::{Daemon, Place};

fn allowed() -> (Place, Daemon) {
    let at = Place::new();
    let image = at.image("a");
    let daemon = at.serve();
    at.must(&["pool", "create", "tank", &image]);
    let control = "snapcontrol=127.0.0.1:[::1]";
    at.must(&["create", "-o", "sharenfs=insecure", "-o", control, "tank/vms"]);
    (at, daemon)
}

/// The directory of snapshots.
pub fn list(client: &Client<'_>, root: NfsFh3) -> NfsFh3 {
    let hidden = client.lookup(root, ".aquifer").unwrap();
    client.lookup(hidden, "snapshot").unwrap()
}

pub fn mkdir<'n>(list: NfsFh3, name: &'n str) -> Args3<'n> {
    Args3::Mkdir(Mkdir3Args { place: place(list, name), attributes: Sattr3::NONE })
}

fn names(at: &Place) -> Vec<String> {
    let listed = at.json(&["list", "-t", "snapshot", "tank/vms"]);
    let names = listed.as_array().unwrap().iter();
    names.map(|of| of["name"].as_str().unwrap().to_string()).collect()
}

#[test]
fn an_administrator_allows_it_and_sees_who_did_it() {
    let (at, _daemon) = allowed();
    at.refuses(
        &["set", "snapcontrol=10.0.0.0/33", "tank/vms"],
        "property snapcontrol: `33` is no prefix length from 0 to 32; clients are addresses, \
         networks and names of hosts between colons, IPv6 in brackets: \
         10.1.0.0/16:[fd00::]/8:hv1.example",
    );
    let said = at.ask(&["set", "snapcontrol=-10.0.0.1", "tank/vms"]);
    assert!(said.code == 1 && said.err.contains("puts none in"), "{said:?}");
    let why = at.must(&["share", "why", "127.0.0.1", "tank/vms"]);
    assert!(why.contains("takes and destroys snapshots: snapcontrol=127.0.0.1"), "{why}");

    let nfs = address(&at);
    let root = mounted(&nfs, "/tank/vms");
    let mut client = Client { nfs, sent: Vec::new() };
    let list = list(&client, root);
    client.call(mkdir(list, "a"));
    let (from, to) = (place(list, "a"), place(list, "b c"));
    client.call(Args3::Rename(Rename3Args { from, to }));
    client.call(mkdir(list, "held"));
    at.must(&["hold", "backup", "tank/vms@held"]);
    let refused = exchange(&client.nfs, &nfs3(7, 1, &Args3::Rmdir(place(list, "held"))));
    assert_eq!(refused[..4], 1u32.to_be_bytes(), "NFS3ERR_PERM");
    client.call(Args3::Rmdir(place(list, "b c")));
    assert_eq!(names(&at), ["tank/vms@held"]);

    let history = at.must(&["pool", "history", "-a", "-l", "tank"]);
    for line in [
        "aquifer snapshot tank/vms@a [host 127.0.0.1 on ",
        "aquifer rename tank/vms@a 'tank/vms@b c' [host 127.0.0.1 on ",
        "aquifer destroy 'tank/vms@b c' [host 127.0.0.1 on ",
        "tank/vms@a: - -> txg",
        "tank/vms@b c: txg",
        "is held by",
    ] {
        assert!(history.contains(line), "{line}: {history}");
    }
    let events = at.must(&["events"]);
    for part in ["snapshot.taken", "snapshot.renamed", "snapshot.destroyed", "snapshot.refused"] {
        assert!(events.contains(part), "{part}: {events}");
    }
    // At once, and for those that have a handle.
    at.must(&["set", "snapcontrol=10.9.9.9", "tank/vms"]);
    let refused = exchange(&client.nfs, &nfs3(8, 1, &mkdir(list, "late")));
    assert_eq!(refused[..4], 30u32.to_be_bytes(), "NFS3ERR_ROFS");
    let problem = at.must(&["pool", "status", "tank"]);
    assert!(!problem.contains("snapcontrol"), "{problem}");
}

/// Sends a call, kills the daemon so much later, and starts it again. Returns it; `nfs` is where it
/// is now.
fn killed(at: &Place, daemon: Daemon, nfs: &mut String, call: &[u8], wait_ms: u64) -> Daemon {
    let mut stream = connect(nfs);
    stream.write_all(call).unwrap();
    thread::sleep(Duration::from_millis(wait_ms));
    daemon.kill9();
    let daemon = at.serve();
    at.wait_for(|| address(at) != *nfs);
    *nfs = address(at);
    daemon
}

/// The daemon is killed at some moment after a client sent its call, mostly before the answer. The
/// call that is sent again gets its answer, and has been made once.
#[test]
fn an_act_is_made_once_over_kill_9() {
    let (at, mut daemon) = allowed();
    let mut nfs = address(&at);
    let root = mounted(&nfs, "/tank/vms");
    let mut client = Client { nfs: nfs.clone(), sent: Vec::new() };
    let list = list(&client, root);
    client.call(mkdir(list, "first"));
    let mut handles = vec![client.lookup(list, "first").unwrap()];
    for (round, wait_ms) in [0, 1, 2, 4, 8, 15, 30].into_iter().enumerate() {
        let name = format!("take-{round}");
        let gone = if round == 0 { "first".into() } else { format!("take-{}", round - 1) };
        let acts = [mkdir(list, &name), Args3::Rmdir(place(list, &gone))];
        for (act, args) in acts.iter().enumerate() {
            let xid = 0x100 + u32::try_from(2 * round + act).unwrap();
            daemon = killed(&at, daemon, &mut nfs, &nfs3(xid, 1, args), wait_ms);
            let (status, handle) = answer(args, &exchange(&nfs, &nfs3(xid, 2, args)));
            assert_eq!(status, 0, "{args:?} after {wait_ms} ms");
            // And once more, with the answer known.
            let again = answer(args, &exchange(&nfs, &nfs3(xid, 3, args)));
            assert_eq!(again, (0, handle));
            handles.extend(handle);
        }
        assert_eq!(names(&at), [format!("tank/vms@{name}")]);
        client.nfs.clone_from(&nfs);
        assert_eq!(client.lookup(list, &name), handles.last().copied());
    }
    at.must(&["pool", "export", "tank"]);
    let report = at.json(&["inspect", &at.text("a")]);
    assert_eq!(report["errors"], 0, "{report:#}");
}

fn line(control: NfsFh3, line: &[u8]) -> Args3<'_> {
    let count = u32::try_from(line.len()).unwrap();
    let head = Write3Head { file: control, offset: 0, count, stable: StableHow::Unstable };
    Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: line } })
}

fn write(nfs: &str, file: NfsFh3, data: &[u8]) {
    // On disk when it is answered: the server is killed next.
    let mut args = line(file, data);
    if let Args3::Write(write) = &mut args {
        write.head.stable = StableHow::FileSync;
    }
    assert_eq!(answer(&args, &exchange(nfs, &nfs3(0x50, 0, &args))).0, 0);
}

/// Kills the daemon at some moment after a host sent its act on a file: it takes a snapshot of it,
/// rolls it back, clones it, and destroys the snapshot. The call that is sent again gets its
/// answer, and has been made once.
#[test]
fn an_act_on_a_file_is_made_once_over_kill_9() {
    let (at, mut daemon) = allowed();
    let mut nfs = address(&at);
    let root = mounted(&nfs, "/tank/vms");
    let mut client = Client { nfs: nfs.clone(), sent: Vec::new() };
    let create = |dir, name| {
        Args3::Create(Create3Args {
            place: place(dir, name),
            how: CreateHow3::Unchecked(Sattr3::NONE),
        })
    };
    let disk = client.call(create(root, "disk")).unwrap();
    let hidden = client.lookup(root, ".aquifer").unwrap();
    let versions = client.lookup(hidden, "disk").unwrap();
    let control = client.lookup(versions, "control").unwrap();
    for (round, wait_ms) in [0, 1, 2, 4, 8, 15, 30].into_iter().enumerate() {
        let (clone, old) = (format!("copy-{round}"), format!("old-{round}\n"));
        let orders = ["rollback v\n".to_owned(), format!("clone v {clone}\n")];
        write(&nfs, disk, old.as_bytes());
        let acts = [
            create(versions, "v"),
            line(control, orders[0].as_bytes()),
            line(control, orders[1].as_bytes()),
            Args3::Remove(place(versions, "v")),
        ];
        for (act, args) in acts.iter().enumerate() {
            let xid = 0x100 + u32::try_from(acts.len() * round + act).unwrap();
            daemon = killed(&at, daemon, &mut nfs, &nfs3(xid, 1, args), wait_ms);
            client.nfs.clone_from(&nfs);
            let (status, handle) = answer(args, &exchange(&nfs, &nfs3(xid, 2, args)));
            assert_eq!(status, 0, "{args:?} after {wait_ms} ms");
            // Written since: a copy that comes late does not roll it back.
            write(&nfs, disk, b"now\n");
            let again = answer(args, &exchange(&nfs, &nfs3(xid, 3, args)));
            assert_eq!(again, (0, handle));
            assert_eq!(client.read(disk, 4), b"now\n");
            if act == 0 {
                assert_eq!(client.lookup(versions, "v"), handle);
            }
        }
        assert_eq!(client.lookup(versions, "v"), None);
        let copy = client.lookup(root, &clone).unwrap();
        assert_eq!(client.read(copy, 3), b"old");
    }
    let history = at.must(&["pool", "history", "-a", "-l", "tank"]);
    for part in ["snapshot tank/vms:disk@v", "rollback tank/vms:disk@v", "clone tank/vms:disk@v"] {
        assert!(history.contains(part), "{part}: {history}");
    }
    at.must(&["pool", "export", "tank"]);
    let report = at.json(&["inspect", &at.text("a")]);
    assert_eq!(report["errors"], 0, "{report:#}");
}
