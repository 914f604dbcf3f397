//! Replication from one daemon to another: the real binary, TLS, tokens, kills, and NFS.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{fill, has, with_file};
use crate::eyes::client::Client;
use crate::support::{Daemon, Place, Said};

/// Two machines, each of which knows the other as `other`.
pub struct Pair {
    pub here: Place,
    pub there: Place,
    ports: [u16; 2],
    pub disks: [String; 2],
}

impl Pair {
    pub fn new() -> Pair {
        let (here, there) = (Place::new(), Place::new());
        let disks = [here.image("disk"), there.image("disk")];
        // Both ports were free a moment ago.
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let pair = Pair { here, there, ports, disks };
        pair.configure(&pair.here, 0);
        pair.configure(&pair.there, 1);
        pair
    }

    fn configure(&self, own: &Place, at: usize) {
        let (port, far) = (self.ports[at], self.ports[1 - at]);
        let config = format!(
            "[api]\nlisten = [\"127.0.0.1:{port}\"]\n[peers.other]\nurl = \
             \"https://127.0.0.1:{far}\"\ncertificate = {:?}\ntoken = {:?}\n",
            own.text("other.pem"),
            own.text("other.token")
        );
        std::fs::write(own.path("config"), config).unwrap();
    }

    /// The API of the other machine.
    pub fn url_there(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[1])
    }

    /// That of this one.
    pub fn url_here(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[0])
    }

    /// Starts one of the two.
    pub fn serve(&self, place: &Place) -> Daemon {
        place.spawn_serving(&["--config", &place.text("config")])
    }

    /// Starts both, and gives each the other's certificate and token, as an administrator would.
    pub fn both(&self) -> (Daemon, Daemon) {
        let daemons = (self.serve(&self.here), self.serve(&self.there));
        for (own, other) in [(&self.here, &self.there), (&self.there, &self.here)] {
            std::fs::copy(other.path("state/api/certificate.pem"), own.path("other.pem")).unwrap();
            // One that may only receive, as the manual says.
            if !own.path("other.token").exists() {
                give_token(own, &other.must(&["token", "create", "copies", "--role", "receive"]));
            }
        }
        daemons
    }

    pub fn inspect(&self) {
        self.here.must(&["pool", "export", "tank"]);
        self.there.must(&["pool", "export", "backup"]);
        self.here.must(&["inspect", "--deep", "-d", &self.disks[0], "tank"]);
        self.there.must(&["inspect", "--deep", "-d", &self.disks[1], "backup"]);
    }
}

pub fn give_token(place: &Place, token: &str) {
    std::fs::write(place.path("other.token"), token).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.path("other.token"), mode).unwrap();
}

/// The token of an administrator of the other side.
pub fn give_admins(own: &Place, other: &Place) {
    give_token(own, &std::fs::read_to_string(other.path("state/api/token")).unwrap());
}

pub fn snapshots(place: &Place, dataset: &str) -> Vec<String> {
    let listed = place.json(&["list", "-t", "snapshot", dataset]);
    let name = |of: &Value| of["name"].as_str().unwrap().split_once('@').unwrap().1.to_string();
    listed.as_array().unwrap().iter().map(name).collect()
}

pub fn replicate(place: &Place, words: &[&str]) -> Said {
    place.ask(&[&["replicate"], words].concat())
}

#[track_caller]
pub fn done(said: &Said) {
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}

#[track_caller]
pub fn fails(said: &Said, why: &str) {
    assert!(said.code == 1 && said.err.contains(why), "{said:?}");
}

/// Begins one that takes some seconds, and waits until some of it went.
fn begin_slowly(place: &Place, words: &[&str]) -> Child {
    let all = [&["replicate", "--rate", "1M"], words].concat();
    let mut command = place.command(&all);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.spawn().unwrap();
    place.wait_for(|| {
        let all = place.json(&["replicate"]);
        let is_sent = |of: &Value| of["state"] == "running" && of["sent_bytes"].as_u64() > Some(0);
        all.as_array().unwrap().iter().any(is_sent)
    });
    child
}

/// Bytes of content that wait for the rest of their stream.
fn waits(place: &Place) -> u64 {
    let all = place.json(&["list", "-t", "receiving"]);
    all.as_array().unwrap().iter().map(|of| of["received_bytes"].as_u64().unwrap()).sum()
}

fn sent_bytes(place: &Place) -> u64 {
    place.json(&["replicate"])[0]["sent_bytes"].as_u64().unwrap()
}

const TARGET: [&str; 2] = ["tank/vms", "other:backup/vms"];

#[test]
fn a_copy_follows_takes_the_place_of_its_source_and_goes_back() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let _daemons = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 6);
    here.must(&["snapshot", "tank/vms@own"]);

    let said = replicate(here, &[&["-v"], &TARGET[..]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    let first = snapshots(there, "backup/vms");
    assert!(first.len() == 1 && first[0].starts_with("replicate-other-"), "{first:?}");
    let start = format!("other:backup/vms has tank/vms@{}: 6", first[0]);
    assert!(said.out.starts_with(&start), "{said:?}");
    assert_eq!(snapshots(here, "tank/vms"), ["own", &first[0]]);
    let holds = here.json(&["holds", "tank/vms"]);
    assert_eq!(holds[0]["tag"], "replicated to other:backup/vms");

    // What changed, with what is between; the one before goes, on both sides.
    fill(&mut client, &file, 2, 1, 1);
    here.must(&["snapshot", "tank/vms@between"]);
    fill(&mut client, &file, 3, 2, 1);
    done(&replicate(here, &[&["--all"], &TARGET[..]].concat()));
    let second = snapshots(there, "backup/vms");
    assert!(second.len() == 2 && second[0] == "between" && second[1] != first[0], "{second:?}");
    assert_eq!(snapshots(here, "tank/vms"), ["own", "between", &second[1]]);
    assert_eq!(here.json(&["holds", "tank/vms"]).as_array().unwrap().len(), 1);
    let listed = here.json(&["replicate"]);
    assert_eq!(listed[0]["state"], "done");
    assert_eq!(listed[0]["copies"][0]["snapshot"], format!("tank/vms@{}", second[1]).as_str());
    assert!(listed[0]["copies"][0]["behind_s"].as_u64().unwrap() < 30);

    // This machine is lost: the copy takes its place, and the client goes on with its handle.
    here.must(&["set", "standby=on", "tank/vms"]);
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    let mut client = Client::new(there, "127.0.0.1");
    has(&mut client, &file, 1, 0, 1);
    has(&mut client, &file, 2, 1, 1);
    has(&mut client, &file, 3, 2, 1);
    fill(&mut client, &file, 4, 0, 1);
    // Nothing is sent over it.
    fails(&replicate(here, &TARGET), "it stands by, and has the snapshots that it receives");
    here.must(&["set", "-f", "standby=off", "tank/vms"]);
    fails(&replicate(here, &TARGET), "\"backup/vms\" is in service there");
    here.must(&["set", "standby=on", "tank/vms"]);

    // And back: the first one follows the second while clients work on, then gets the last of it,
    // and takes its place again.
    fails(&replicate(there, &["-F", "backup/vms", "other:tank/vms"]), "receive; this needs admin");
    give_admins(there, here);
    done(&replicate(there, &["-F", "backup/vms", "other:tank/vms"]));
    fill(&mut client, &file, 5, 5, 1);
    there.must(&["set", "standby=on", "backup/vms"]);
    there.must(&["snapshot", "backup/vms@last"]);
    done(&replicate(there, &["--snapshot", "@last", "backup/vms", "other:tank/vms"]));
    here.must(&["set", "-f", "standby=off", "tank/vms"]);
    let mut client = Client::new(here, "127.0.0.1");
    has(&mut client, &file, 4, 0, 1);
    has(&mut client, &file, 2, 1, 1);
    has(&mut client, &file, 5, 5, 1);
    done(&replicate(here, &TARGET));
    pair.inspect();
}

#[test]
fn what_is_wrong_with_the_other_side_is_said_with_what_to_do() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (_daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 3);

    fails(&replicate(here, &["tank/vms", "nobody:backup/vms"]), "names no peer \"nobody\" (there");
    fails(&replicate(here, &["tank/none", "other:backup/vms"]), "\"tank/none\" does not exist");
    fails(&replicate(here, &["tank/vms", "other:backup"]), "a copy is a dataset below a pool's");
    let said = replicate(here, &["--snapshot", "@none", TARGET[0], TARGET[1]]);
    fails(&said, "\"tank/vms\" has no snapshot \"none\"");
    fails(&replicate(here, &TARGET), "other: there is no pool \"backup\"");
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    fails(&replicate(here, &["tank/vms", "other:backup/a/b"]), "\"backup/a\" does not exist");

    // Tokens.
    let right = std::fs::read_to_string(here.path("other.token")).unwrap();
    give_token(here, &"0".repeat(64));
    fails(&replicate(here, &TARGET), "other: this is not the token of this daemon; make one there");
    give_token(here, &there.must(&["token", "create", "eye", "--role", "read"]));
    fails(&replicate(here, &TARGET), "token eye has the role read; this needs admin; put a");
    std::fs::remove_file(here.path("other.token")).unwrap();
    fails(&replicate(here, &TARGET), "peer \"other\" cannot be asked: ");
    give_token(here, &right);
    // Another machine's certificate.
    let pem = std::fs::read(here.path("other.pem")).unwrap();
    std::fs::copy(here.path("state/api/certificate.pem"), here.path("other.pem")).unwrap();
    fails(&replicate(here, &TARGET), "is not the daemon whose certificate peers.other.certificate");
    std::fs::write(here.path("other.pem"), pem).unwrap();
    // No run that came to nothing leaves more than the snapshot of the newest.
    assert!(snapshots(here, "tank/vms").len() <= 1);

    // No room there: nothing half stays.
    there.must(&["set", "quota=2M", "backup"]);
    fails(&replicate(here, &TARGET), "would be larger than its quota");
    assert!(!there.must(&["list"]).contains("backup/vms"));
    there.must(&["set", "quota=none", "backup"]);
    done(&replicate(here, &TARGET));

    // Somebody wrote to the copy.
    let kept = snapshots(there, "backup/vms").pop().unwrap();
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    let mut stranger = Client::new(there, "127.0.0.1");
    fill(&mut stranger, &file, 9, 0, 1);
    there.must(&["set", "standby=on", "backup/vms"]);
    fails(&replicate(here, &TARGET), "was changed since its newest snapshot");
    there.must(&["snapshot", "backup/vms@theirs"]);
    let said = replicate(here, &TARGET);
    fails(&said, &format!("it has \"theirs\", which is newer than \"{kept}\""));
    fails(&replicate(here, &["-F", TARGET[0], TARGET[1]]), "receive; this needs admin");
    give_admins(here, there);
    done(&replicate(here, &["-F", TARGET[0], TARGET[1]]));
    let left = snapshots(there, "backup/vms");
    assert!(left.len() == 1 && left[0] != kept, "{left:?}");
    // Nothing in common.
    there.must(&["create", "backup/else"]);
    there.must(&["set", "standby=on", "backup/else"]);
    let said = replicate(here, &["tank/vms", "other:backup/else"]);
    fails(&said, "it has no snapshot in common with \"tank/vms\"");

    // Nobody there.
    let before = snapshots(here, "tank/vms");
    other.kill9();
    fails(&replicate(here, &TARGET), "other: nothing answers at https://127.0.0.1:");
    assert_eq!(snapshots(here, "tank/vms"), before);
}

/// Kills of either side, a stop, and a second run meanwhile: the copy is as it was, and the next
/// run brings it up to date.
#[test]
fn a_run_that_breaks_off_leaves_the_copy_as_it_was() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 8);

    // A whole one: the side of the copy dies.
    let mut child = begin_slowly(here, &TARGET);
    fails(&replicate(here, &TARGET), "is being replicated to other:backup/vms already");
    there.wait_for(|| waits(there) > 0);
    // An act makes durable what came before.
    there.must(&["snapshot", "backup@now"]);
    other.kill9();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let listed = here.json(&["replicate"]);
    assert!(listed[0]["error"].as_str().unwrap().contains("other: "), "{listed}");
    let other = pair.serve(there);
    assert!(!there.must(&["list"]).contains("backup/vms"));
    // What came waits, and goes on; behind it comes what changed since.
    let came = waits(there);
    assert!(came > 0);
    let taken = snapshots(here, "tank/vms");
    done(&replicate(here, &TARGET));
    assert!(sent_bytes(here) <= (8 << 20) + (1 << 20) - came, "{came}");
    assert_eq!(waits(there), 0);
    let first = snapshots(there, "backup/vms").pop().unwrap();
    assert!(!taken.contains(&first), "{taken:?}");
    assert_eq!(snapshots(here, "tank/vms"), [first.as_str()]);

    // What changed: it is stopped, then the copy's side dies, then this one.
    fill(&mut client, &file, 2, 0, 8);
    let as_before = || {
        assert_eq!(snapshots(there, "backup/vms"), [first.as_str()]);
        let waiting = "has part of a stream that broke off";
        fails(&there.ask(&["diff", &format!("backup/vms@{first}"), "backup/vms"]), waiting);
        fails(&there.ask(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]), waiting);
        waits(there)
    };
    let mut child = begin_slowly(here, &TARGET);
    here.must(&["replicate", "--stop", TARGET[0], TARGET[1]]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let came = as_before();
    let mut child = begin_slowly(here, &TARGET);
    other.kill9();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let _other = pair.serve(there);
    assert!(as_before() >= came);
    let mut child = begin_slowly(here, &TARGET);
    daemon.kill9();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let _daemon = pair.serve(here);
    // The other side still waits for more of that stream: this one begins again at once.
    let begun = Instant::now();
    done(&replicate(here, &TARGET));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let now = snapshots(there, "backup/vms");
    assert!(now.len() == 1 && now[0] != first, "{now:?}");
    assert_eq!(snapshots(here, "tank/vms"), now);
    here.must(&["set", "standby=on", "tank/vms"]);
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    let mut client = Client::new(there, "127.0.0.1");
    has(&mut client, &file, 2, 0, 8);
    pair.inspect();
}

#[test]
fn a_tree_follows_by_its_property_and_the_status_says_how_far_it_is_behind() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    for name in ["tank/vms/a", "tank/vms/b", "tank/vms/a/deep"] {
        here.must(&["create", name]);
    }
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 1);
    here.must(&["set", "replicate=off", "tank/vms/b"]);
    let said = here.ask(&["set", "replicate=other:backup every=5m", "tank/vms"]);
    assert!(said.err.contains("property replicate: "), "{said:?}");
    here.must(&["set", "replicate=other:backup/vms every=10s keep=2", "tank/vms"]);
    let newest = |place: &Place| {
        let listed = place.json(&["replicate"]);
        let copies = listed[0]["copies"].as_array().unwrap().clone();
        let of = |copy: &Value| (copy["dataset"].clone(), copy["snapshot"].clone());
        copies.iter().map(of).collect::<Vec<_>>()
    };
    let is_there = |place: &Place| newest(place).iter().all(|(_, of)| !of.is_null());
    here.wait_for(|| is_there(here) && there.ask(&["list", "backup/vms/a/deep"]).code == 0);
    let first = newest(here);
    let names: Vec<&str> = first.iter().map(|(dataset, _)| dataset.as_str().unwrap()).collect();
    assert_eq!(names, ["tank/vms", "tank/vms/a", "tank/vms/a/deep"]);
    assert_ne!(there.ask(&["list", "backup/vms/b"]).code, 0);
    // A copy does not go on by the property: it stays here.
    assert_eq!(there.json(&["get", "replicate", "backup/vms"])[0]["value"], "off");
    assert_eq!(there.json(&["replicate"]), serde_json::json!([]));
    // Of one moment, in both.
    let taken: Vec<&str> =
        first.iter().map(|(_, of)| of.as_str().unwrap().split_once('@').unwrap().1).collect();
    assert!(taken.iter().all(|name| *name == taken[0]), "{taken:?}");

    // The next ones come by themselves; of this replication two stay there, and one here.
    here.wait_for(|| newest(here) != first);
    here.wait_for(|| newest(here) != first && snapshots(there, "backup/vms").len() == 2);
    let status = here.must(&["pool", "status", "tank"]);
    let line = status.lines().find(|line| line.starts_with("  copy: ")).unwrap();
    let start = "  copy: tank/vms to other:backup/vms: 00:00:";
    assert!(line.starts_with(start) && line.ends_with(" behind, every 00:00:10"), "{status}");
    let (_, page) = here.get("/metrics");
    let behind = "aquifer_replication_behind_seconds{dataset=\"tank/vms/a\",\
                  target=\"other:backup/vms/a\"} ";
    assert!(page.contains(behind), "{page}");

    // Nobody there, and a restart here: it is known what the copy has.
    let two = snapshots(there, "backup/vms");
    other.kill9();
    daemon.kill9();
    let _daemon = pair.serve(here);
    here.wait_for(|| here.json(&["replicate"])[0]["state"] == "failed");
    assert!(newest(here)[0].1.as_str().unwrap().ends_with(two.last().unwrap().as_str()));
    let listed = here.must(&["replicate"]);
    assert!(listed.contains("failed") && listed.contains("nothing answers at"), "{listed}");
    let (_, page) = here.get("/metrics");
    let failed = "aquifer_replication_failed{dataset=\"tank/vms\",target=\"other:backup/vms\"} 1\n";
    assert!(page.contains(failed), "{page}");
    // It comes back: the copy follows without anybody's help.
    let _other = pair.serve(there);
    let last = newest(here);
    here.wait_for(|| newest(here) != last);
    here.must(&["set", "replicate=off", "tank/vms"]);
    assert_eq!(here.json(&["pool", "status", "tank"])["replications"], Value::Null);
    here.wait_for(|| {
        let all = here.json(&["replicate"]);
        all.as_array().unwrap().iter().all(|of| of["state"] != "running")
    });
    pair.inspect();
}

#[test]
fn a_tree_goes_to_another_pool_of_this_daemon() {
    let place = Place::new();
    let (disk, other) = (place.image("a"), place.image("b"));
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    place.must(&["pool", "create", "backup", &other]);
    place.must(&["create", "tank/vms/below"]);
    let mut client = Client::new(&place, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 1);
    place.must(&["snapshot", "-r", "tank/vms@a"]);
    fill(&mut client, &file, 2, 0, 1);
    place.must(&["snapshot", "-r", "tank/vms@b"]);
    let words = ["-r", "--all", "--snapshot", "@b", "tank/vms", "backup/vms"];
    done(&replicate(&place, &words));
    for dataset in ["backup/vms", "backup/vms/below"] {
        assert_eq!(snapshots(&place, dataset), ["a", "b"]);
    }
    let said = place.must(&["replicate"]);
    assert!(said.contains("backup/vms/below") && said.contains("@b"), "{said}");
    // Once more: it has that already.
    done(&replicate(&place, &words));
    fails(&replicate(&place, &["--snapshot", "@a", "tank/vms", "backup/vms"]), "newer than \"a\"");
    fails(&replicate(&place, &["tank/vms", "tank/vms"]), "cannot be a copy of itself");
    fails(&replicate(&place, &["--keep", "0", "tank/vms", "backup/vms"]), "from 1 to");
    place.refuses(
        &["replicate", "--stop", "tank/vms", "backup/vms"],
        "\"tank/vms\" is not being replicated to backup/vms; `aquifer replicate` shows what is",
    );
}

/// The snapshot that both had is gone here: a bookmark of it is enough.
#[test]
fn a_run_begins_at_a_bookmark() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (_daemon, _other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 6);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    done(&replicate(here, &TARGET));
    let first = snapshots(here, "tank/vms").pop().unwrap();
    here.must(&["bookmark", &format!("tank/vms@{first}"), "#had"]);
    for hold in here.json(&["holds", "tank/vms"]).as_array().unwrap() {
        let (tag, name) = (hold["tag"].as_str().unwrap(), format!("tank/vms@{first}"));
        here.must(&["release", tag, &name]);
    }
    here.must(&["destroy", "-f", &format!("tank/vms@{first}")]);
    fill(&mut client, &file, 2, 3, 1);
    done(&replicate(here, &TARGET));
    let sent = here.json(&["replicate"])[0]["sent_bytes"].as_u64().unwrap();
    assert!(sent < 2 << 20, "only what changed: {sent}");
    assert_eq!(snapshots(there, "backup/vms").last(), snapshots(here, "tank/vms").last());
    pair.inspect();
}
