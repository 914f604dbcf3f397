//! Snapshots from one daemon to another: the real binary, pipes, files and NFS.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::{Place, Said};

const MIB: usize = 1 << 20;

/// `aquifer send ... > FILE`.
fn send(place: &Place, snapshot: &str, name: &str) {
    send_words(place, &[snapshot], name);
}

/// Runs `aquifer send ... > FILE` with options.
pub fn send_words(place: &Place, words: &[&str], name: &str) {
    let file = File::create(place.path(name)).unwrap();
    let mut command = place.command(&[&["send"], words].concat());
    let output = command.stdin(Stdio::null()).stdout(file).output().unwrap();
    assert!(output.status.success(), "{output:?}\n{}", place.log());
}

/// `aquifer receive ... < FILE`.
pub fn receive(place: &Place, words: &[&str], from: &Place, name: &str) -> Said {
    let mut command = place.command(&[&["receive"], words].concat());
    let output = command.stdin(File::open(from.path(name)).unwrap()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    Said { code, out: text(output.stdout), err: text(output.stderr) }
}

fn names(place: &Place) -> Vec<String> {
    let listed = place.json(&["list"]);
    listed.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap().into()).collect()
}

fn fill(client: &mut Client, file: &[u8], mib: usize) -> Vec<u8> {
    let content = noise(5, mib * MIB);
    for (at, piece) in content.chunks(65536).enumerate() {
        client.write(file, at as u64 * 65536, piece, false);
    }
    client.commit(file);
    content
}

fn is_there(client: &mut Client, file: &[u8], content: &[u8]) {
    for (at, piece) in content.chunks(65536).enumerate() {
        assert!(client.read_bytes(file, at as u64 * 65536, 65536).unwrap() == piece, "{at}");
    }
}

#[test]
fn a_snapshot_goes_through_a_pipe_to_another_daemon_and_takes_its_handles_with_it() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("a"), there.image("b"));
    let (_daemon, daemon) = (here.serve(), there.serve());
    let file = with_file(&here, "tank", &[&disk]);
    let mut client = Client::new(&here, "127.0.0.1");
    let content = fill(&mut client, &file, 6);
    here.must(&["snapshot", "tank/vms@a"]);
    client.write(&file, 0, &noise(9, 65536), true);

    there.must(&["pool", "create", "backup", &other_disk]);
    let mut sending = here.command(&["send", "-v", "tank/vms@a"]);
    let mut sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut receiving = there.command(&["receive", "-v", "backup/vms"]);
    let received = receiving.stdin(sending.stdout.take().unwrap()).output().unwrap();
    let sent = sending.wait_with_output().unwrap();
    assert!(sent.status.success() && received.status.success(), "{sent:?} {received:?}");
    let said = String::from_utf8(received.stdout).unwrap();
    assert_eq!(said, "received backup/vms@a (tank/vms@a): 2 files and directories, 6M\n");
    let said = String::from_utf8(sent.stderr).unwrap();
    assert!(said.starts_with("note: sent tank/vms@a: 6") && said.contains("M in "), "{said}");

    let list = there.must(&["list"]);
    let line = list.lines().find(|line| line.starts_with("backup/vms")).unwrap();
    assert!(line.ends_with("standby"), "{list}");
    assert_eq!(there.json(&["share"]), serde_json::json!([]));
    // It is read by a clone, and again after a crash.
    there.must(&["clone", "-o", "sharenfs=insecure", "backup/vms@a", "backup/look"]);
    daemon.kill9();
    let _daemon = there.serve();
    let mut client = Client::new(&there, "127.0.0.1");
    let root = client.mount("/backup/look");
    let copy = client.lookup(&root, "disk.raw").unwrap();
    is_there(&mut client, &copy, &content);
    // It takes the place of what was sent: the client goes on with its handle.
    assert!(client.read_bytes(&file, 0, 4096).is_err());
    there.must(&["set", "-f", "standby=off", "backup/vms"]);
    is_there(&mut client, &file, &content);
    client.write(&file, 65536, &noise(10, 65536), true);
    let root = client.mount("/backup/vms");
    assert_eq!(client.lookup(&root, "disk.raw").unwrap(), file);
    there.must(&["pool", "export", "backup"]);
    there.must(&["inspect", "--deep", "-d", &other_disk, "backup"]);
}

#[test]
fn a_copy_beside_what_was_sent_has_handles_of_its_own() {
    let place = Place::new();
    let disk = place.image("a");
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    let content = fill(&mut client, &file, 2);
    place.must(&["snapshot", "tank/vms@a"]);
    send(&place, "tank/vms@a", "stream");
    let said = receive(&place, &["-n", "tank/copy"], &place, "stream");
    let text = "would receive tank/copy@a (tank/vms@a): 2 files and directories, 2M\n";
    assert_eq!((said.code, said.out.as_str()), (0, text), "{said:?}");
    assert_eq!(names(&place), ["tank", "tank/vms"]);
    let said = receive(&place, &["--new-handles", "tank/copy"], &place, "stream");
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    // Its own sharenfs came with it.
    let root = client.mount("/tank/copy");
    let copy = client.lookup(&root, "disk.raw").unwrap();
    assert_ne!(copy, file);
    is_there(&mut client, &copy, &content);
    client.write(&copy, 0, &noise(11, 65536), true);
    is_there(&mut client, &file, &content);
    // One that stands by cannot come into service beside the other.
    assert_eq!(receive(&place, &["tank/twin"], &place, "stream").code, 0);
    place.refuses(
        &["set", "-f", "standby=off", "tank/twin"],
        "\"tank/twin\" has the file handles of \"tank/vms\", which is in service: destroy that, or \
         set standby=on on it first",
    );
    place.must(&["set", "standby=on", "tank/vms"]);
    place.must(&["set", "-f", "standby=off", "tank/twin"]);
    is_there(&mut client, &file, &content);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

#[test]
fn a_stream_that_breaks_off_leaves_nothing() {
    let place = Place::new();
    let disk = place.image("a");
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    fill(&mut client, &file, 6);
    place.must(&["snapshot", "tank/vms@a"]);
    send(&place, "tank/vms@a", "stream");
    let whole = std::fs::read(place.path("stream")).unwrap();
    let wrong = |name: &str, bytes: &[u8], why: &str| {
        std::fs::write(place.path(name), bytes).unwrap();
        let said = receive(&place, &["tank/copy"], &place, name);
        assert!(said.code == 1 && said.err.contains(why), "{said:?}");
        assert_eq!(names(&place), ["tank", "tank/vms"]);
    };
    wrong("half", &whole[..whole.len() / 2], "before its end: send it again");
    wrong("text", b"this is a text, and longer than a header", "no stream of `aquifer send`");
    wrong("empty", b"", "no stream of `aquifer send`");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    wrong("flipped", &flipped, "checksum of record");
    wrong("two", &[&whole[..], &whole].concat(), "receive one stream at a time");
    let said = receive(&place, &["tank/vms"], &place, "stream");
    assert_eq!(said.err, "aquifer: dataset \"tank/vms\" exists already\n");
    let said = receive(&place, &["other/vms"], &place, "stream");
    assert!(said.code == 1 && said.err.contains("other"), "{said:?}");
    place.refuses(
        &["send", "tank/vms@none"],
        "snapshot \"tank/vms@none\" does not exist; `aquifer list -t snapshot` shows those that do",
    );

    // The daemon dies while it receives.
    let mut receiving = place.command(&["receive", "tank/copy"]);
    let mut receiving = receiving.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = receiving.stdin.take().unwrap();
    input.write_all(&whole[..whole.len() * 2 / 3]).unwrap();
    let allocated = || place.json(&["pool", "list", "tank"])[0]["allocated_bytes"].as_u64();
    let before = allocated();
    assert!(before.is_some());
    place.wait_for(|| allocated() > before);
    daemon.kill9();
    drop(input);
    assert!(!receiving.wait().unwrap().success());
    let _daemon = place.serve();
    assert_eq!(names(&place), ["tank", "tank/vms"]);
    assert_eq!(receive(&place, &["tank/copy"], &place, "stream").code, 0);
    assert_eq!(names(&place), ["tank", "tank/copy", "tank/vms"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
