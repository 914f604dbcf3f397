//! Changes between two snapshots, sent from one daemon to another: the real binary, pipes, files
//! and NFS.

use std::io::Write;
use std::process::Stdio;

use crate::bed::{fill, has, noise, with_file};
use crate::eyes::client::Client;
use crate::send::{receive, send_words};
use crate::support::{Daemon, Place, Said};

#[track_caller]
fn received(said: Said) {
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}

#[track_caller]
fn fails(said: Said, why: &str) {
    assert!(said.code == 1 && said.err.contains(why), "{said:?}");
}

/// A daemon that is killed while it receives this stream, and the next one.
fn killed_in_the_middle(there: &Place, daemon: Daemon, stream: &[u8]) -> Daemon {
    let mut receiving = there.command(&["receive", "backup/vms"]);
    let mut receiving = receiving.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = receiving.stdin.take().unwrap();
    input.write_all(&stream[..stream.len() * 2 / 3]).unwrap();
    there.wait_for(|| {
        let said = there.ask(&["diff", "backup/vms@a", "backup/vms"]);
        said.err.contains("is being received into")
    });
    daemon.kill9();
    drop(input);
    assert!(!receiving.wait().unwrap().success());
    there.serve()
}

#[test]
fn a_copy_follows_by_increments_and_takes_the_place_of_what_was_sent() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("disk"), there.image("disk"));
    let (_daemon, daemon) = (here.serve(), there.serve());
    let file = with_file(&here, "tank", &[&disk]);
    let mut client = Client::new(&here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 8);
    here.must(&["snapshot", "tank/vms@a"]);
    fill(&mut client, &file, 2, 3, 3);
    here.must(&["snapshot", "tank/vms@b"]);
    fill(&mut client, &file, 3, 5, 1);
    here.must(&["snapshot", "tank/vms@c"]);
    there.must(&["pool", "create", "backup", &other_disk]);
    send_words(&here, &["tank/vms@a"], "a");
    received(receive(&there, &["backup/vms"], &here, "a"));

    let said = here.must(&["send", "-n", "-i", "@a", "tank/vms@b"]);
    let text = "would send tank/vms@b, what changed since @a: a stream of 3M\n";
    assert_eq!(said, text);
    let json = here.json(&["send", "-n", "-i", "@a", "tank/vms@b"]);
    send_words(&here, &["-i", "@a", "tank/vms@b"], "ab");
    let bytes = std::fs::metadata(here.path("ab")).unwrap().len();
    assert_eq!(json["stream_bytes"].as_u64(), Some(bytes));
    let text = "(tank/vms@b, what changed since tank/vms@a): 1 files and directories changed, 0 \
                removed, 3M\n";
    let said = receive(&there, &["-n", "backup/vms"], &here, "ab");
    assert_eq!(said.out, format!("would receive backup/vms@b {text}"), "{said:?}");
    // The daemon dies in the middle: the copy is what it was.
    let whole = std::fs::read(here.path("ab")).unwrap();
    let _daemon = killed_in_the_middle(&there, daemon, &whole);
    assert_eq!(there.must(&["diff", "backup/vms@a", "backup/vms"]), "");
    let said = receive(&there, &["-v", "backup/vms"], &here, "ab");
    assert_eq!(said.out, format!("received backup/vms@b {text}"), "{said:?}");
    assert_eq!(there.must(&["diff", "backup/vms@b", "backup/vms"]), "");

    // All between, in one go: b again is refused, and nothing is lost.
    send_words(&here, &["-I", "@a", "tank/vms@c"], "abc");
    let said = receive(&there, &["backup/vms"], &here, "abc");
    assert!(said.err.contains("\"backup/vms@b\" exists already"), "{said:?}");
    there.must(&["rollback", "-r", "backup/vms@a"]);
    received(receive(&there, &["backup/vms"], &here, "abc"));
    let listed = there.json(&["list", "-t", "snapshot", "backup/vms"]);
    let names = listed.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["backup/vms@a", "backup/vms@b", "backup/vms@c"]);

    // It takes the place of what was sent: the client goes on with its handle.
    there.must(&["set", "-f", "standby=off", "backup/vms"]);
    let said = receive(&there, &["backup/vms"], &here, "ab");
    assert!(said.err.contains("is in service: set standby=on on it"), "{said:?}");
    let mut client = Client::new(&there, "127.0.0.1");
    let root = client.mount("/backup/vms");
    assert_eq!(client.lookup(&root, "disk.raw").unwrap(), file);
    has(&mut client, &file, 2, 3, 2);
    has(&mut client, &file, 3, 5, 1);
    fill(&mut client, &file, 4, 0, 1);
    // And back: the first one follows the second.
    there.must(&["snapshot", "backup/vms@d"]);
    here.must(&["set", "standby=on", "tank/vms"]);
    send_words(&there, &["-i", "@c", "backup/vms@d"], "cd");
    received(receive(&here, &["tank/vms"], &there, "cd"));
    there.must(&["set", "standby=on", "backup/vms"]);
    here.must(&["set", "-f", "standby=off", "tank/vms"]);
    let mut client = Client::new(&here, "127.0.0.1");
    has(&mut client, &file, 4, 0, 1);
    has(&mut client, &file, 3, 5, 1);
    here.must(&["pool", "export", "tank"]);
    there.must(&["pool", "export", "backup"]);
    here.must(&["inspect", "--deep", "-d", &disk, "tank"]);
    there.must(&["inspect", "--deep", "-d", &other_disk, "backup"]);
}

/// All, then what changed: each breaks off twice, once by a kill of the daemon, and goes on by its
/// token.
#[test]
fn a_stream_that_breaks_off_goes_on_by_its_token() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("disk"), there.image("disk"));
    let _daemon = here.serve();
    let mut daemon = Some(there.serve());
    let file = with_file(&here, "tank", &[&disk]);
    let mut client = Client::new(&here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 8);
    here.must(&["snapshot", "tank/vms@a"]);
    fill(&mut client, &file, 2, 0, 8);
    here.must(&["snapshot", "tank/vms@b"]);
    there.must(&["pool", "create", "backup", &other_disk]);
    let token = || {
        let words = ["-H", "get", "-o", "value", "receive_resume_token", "backup/vms"];
        there.must(&words).trim().to_string()
    };
    assert_eq!(token(), "-");
    let said = there.must(&["list", "-t", "receiving"]);
    assert_eq!(said, "no stream waits for its rest (aquifer receive -s keeps what came)\n");
    for words in [&["tank/vms@a"][..], &["-i", "@a", "tank/vms@b"]] {
        send_words(&here, words, "all");
        let whole = std::fs::read(here.path("all")).unwrap();
        std::fs::write(here.path("part"), &whole[..whole.len() / 3]).unwrap();
        let said = receive(&there, &["-s", "backup/vms"], &here, "part");
        let kept = "What came waits for the rest: `aquifer get receive_resume_token backup/vms`";
        assert!(said.code == 1 && said.err.contains(kept), "{said:?}");
        let listed = there.must(&["list", "-t", "receiving"]);
        assert!(listed.contains("broke off") && listed.contains("tank/vms@"), "{listed}");
        let first = token();
        let size = here.must(&["send", "-n", "-t", &first]);
        assert!(size.starts_with("would send the rest of a stream: "), "{size}");
        // The daemon dies in the middle of the rest.
        send_words(&here, &["-t", &first], "rest");
        let rest = std::fs::read(here.path("rest")).unwrap();
        assert!(rest.len() < whole.len() - 1_000_000, "{} {}", rest.len(), whole.len());
        let mut receiving = there.command(&["receive", "backup/vms"]);
        let mut receiving = receiving.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = receiving.stdin.take().unwrap();
        input.write_all(&rest[..rest.len() * 2 / 3]).unwrap();
        there.wait_for(|| token() != first);
        daemon.take().unwrap().kill9();
        drop(input);
        assert!(!receiving.wait().unwrap().success());
        daemon = Some(there.serve());
        // To the end, and not once more.
        let last = token();
        send_words(&here, &["-t", &last], "rest");
        received(receive(&there, &["backup/vms"], &here, "rest"));
        assert_eq!(token(), "-");
        let said = receive(&there, &["backup/vms"], &here, "rest");
        assert!(said.err.contains("nothing of a stream waits in \"backup/vms\""), "{said:?}");
    }
    assert_eq!(there.must(&["diff", "backup/vms@b", "backup/vms"]), "");
    // Given up, and a token of what is gone.
    fill(&mut client, &file, 3, 0, 4);
    here.must(&["snapshot", "tank/vms@c"]);
    send_words(&here, &["-i", "@b", "tank/vms@c"], "all");
    let whole = std::fs::read(here.path("all")).unwrap();
    std::fs::write(here.path("part"), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(receive(&there, &["-s", "backup/vms"], &here, "part").code, 1);
    let token = token();
    here.must(&["destroy", "-f", "tank/vms@c"]);
    fails(here.ask(&["send", "-n", "-t", &token]), "is not here any more: give up what came");
    fails(here.ask(&["send", "-n", "-t", &token[..20]]), "that is no resume token");
    there.must(&["receive", "-A", "backup/vms"]);
    fails(there.ask(&["receive", "-A", "backup/vms"]), "nothing of a stream waits in");
    assert_eq!(there.must(&["diff", "backup/vms@b", "backup/vms"]), "");
    there.must(&["set", "-f", "standby=off", "backup/vms"]);
    let mut client = Client::new(&there, "127.0.0.1");
    has(&mut client, &file, 2, 0, 8);
    there.must(&["pool", "export", "backup"]);
    there.must(&["inspect", "--deep", "-d", &other_disk, "backup"]);
}

#[test]
fn increments_that_do_not_fit_are_refused() {
    let place = Place::new();
    let disk = place.image("disk");
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 1);
    place.must(&["snapshot", "tank/vms@a"]);
    fill(&mut client, &file, 2, 0, 1);
    place.must(&["snapshot", "tank/vms@b"]);
    send_words(&place, &["tank/vms@a"], "a");
    send_words(&place, &["-i", "tank/vms@a", "tank/vms@b"], "ab");
    let refused = |words: &[&str], why: &str| {
        let said = receive(&place, words, &place, "ab");
        assert_eq!((said.code, said.err), (1, format!("aquifer: {why}\n")));
    };
    refused(
        &["tank/copy"],
        "the stream has only what changed since \"tank/vms@a\", and there is no dataset \
         \"tank/copy\": send \"tank/vms@a\" without -i, and receive that first",
    );
    received(receive(&place, &["tank/copy"], &place, "a"));
    refused(
        &["--new-handles", "tank/copy"],
        "the stream has what changed since \"tank/vms@a\", for a copy with the file handles of \
         that: leave out --new-handles",
    );
    place.must(&["set", "standby=on", "tank/vms"]);
    place.must(&["set", "-f", "standby=off", "tank/copy"]);
    client.write(&file, 0, &noise(9, 4096), true);
    place.must(&["set", "standby=on", "tank/copy"]);
    refused(
        &["tank/copy"],
        "\"tank/copy\" was changed since its newest snapshot: -F drops these changes",
    );
    received(receive(&place, &["-F", "tank/copy"], &place, "ab"));
    place.refuses(
        &["send", "-i", "@b", "tank/vms@a"],
        "\"tank/vms@b\" is not older than \"tank/vms@a\": send the newer one with -i and the \
         older one",
    );
    place.refuses(
        &["send", "-I", "@none", "tank/vms@b"],
        "snapshot \"tank/vms@none\" does not exist; `aquifer list -t snapshot` shows those that do",
    );
}
