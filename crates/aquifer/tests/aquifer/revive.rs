//! Pools that lose the disks they need, and come back by themselves, while clients write.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::bed::{removable, with_file};
use crate::eyes::client::Client;
use crate::support::{Daemon, Place};

/// NFS3ERR_JUKEBOX.
const JUKEBOX: u32 = 10008;
const PAGES: u64 = 4000;

/// A client that writes page after page until it is stopped, and asks again after JUKEBOX. No
/// other error may come.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

/// Record of what a [`Writer`] did.
struct Written {
    /// Acknowledged pages, from the first on.
    pages: u64,
    /// How often it was asked to wait.
    jukebox: u64,
    slowest: Duration,
}

fn page(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(512)
}

impl Writer {
    fn new(mut client: Client, file: Vec<u8>) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut done = Written { pages: 0, jukebox: 0, slowest: Duration::ZERO };
            while !stopped.load(Ordering::Relaxed) && done.pages < PAGES {
                let begun = Instant::now();
                match client.try_write(&file, done.pages * 4096, &page(done.pages), true) {
                    Ok(_) => done.pages += 1,
                    Err(status) => {
                        assert_eq!(status, JUKEBOX);
                        done.jukebox += 1;
                        sleep(Duration::from_millis(100));
                    }
                }
                done.slowest = done.slowest.max(begun.elapsed());
                sleep(Duration::from_millis(5));
            }
            done
        });
        Writer { stop, thread }
    }

    fn end(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn check(client: &mut Client, file: &[u8], pages: u64) {
    for number in 0..pages {
        let read = client.content(file, number * 4096, 4096);
        assert!(read == Ok(page(number)), "page {number}: {:?}", read.map(|read| read.len()));
    }
}

fn events(place: &Place, class: &str) -> usize {
    let events = place.json(&["events"]);
    events.as_array().unwrap().iter().filter(|event| event["class"] == class).count()
}

/// The status of `tank`, without line breaks.
fn status(place: &Place) -> String {
    let status = place.must(&["pool", "status", "tank"]);
    status.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn wait_for_health(place: &Place, pool: &str, health: &str) {
    place.wait_for(|| place.health(pool) == health);
}

/// Exports it, and lets the second opinion read it.
fn inspect(place: &Place, daemon: Daemon, pool: &str, disk: &str) {
    place.must(&["pool", "export", pool]);
    drop(daemon);
    place.must(&["inspect", "--deep", "-d", disk, pool]);
}

#[test]
fn a_pool_whose_only_disk_vanishes_comes_back_with_it() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let other = place.image("other");
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk.path]);
    let other_file = with_file(&place, "dozer", &[&other]);
    let mut client = Client::new(&place, "127.0.0.1");
    let writer = Writer::new(Client::new(&place, "127.0.0.1"), file.clone());
    let beside = Writer::new(Client::new(&place, "127.0.0.1"), other_file.clone());
    sleep(Duration::from_millis(500));
    let unstable = PAGES * 4096;
    let before = client.try_write(&file, unstable, &page(1), false).unwrap();

    disk.vanish();
    wait_for_health(&place, "tank", "SUSPENDED");
    // What is in memory is read, and nothing is changed.
    assert_eq!(client.content(&file, 0, 4096), Ok(page(0)));
    assert_eq!(client.try_write(&file, unstable, &page(2), false), Err(JUKEBOX));
    assert_eq!(client.try_commit(&file), Err(JUKEBOX));
    let waits = format!("waits for disks: {} is missing", disk.path);
    place.wait_for(|| status(&place).contains(&waits));
    assert_eq!(place.health("dozer"), "ONLINE");
    place.must(&["set", "compression=lz4", "dozer/vms"]);

    disk.come_back();
    // It is asked for, so that nobody waits for the next look.
    place.must(&["pool", "clear", "tank"]);
    wait_for_health(&place, "tank", "ONLINE");
    // The client sees by the verifier that it must send again what was not committed.
    assert_ne!(client.try_commit(&file).unwrap(), before);
    sleep(Duration::from_millis(500));
    let (written, beside) = (writer.end(), beside.end());
    assert!(written.jukebox > 0 && beside.jukebox == 0);
    assert!(beside.slowest < Duration::from_secs(2), "{:?}", beside.slowest);
    check(&mut client, &file, written.pages);
    check(&mut client, &other_file, beside.pages);
    assert_eq!((events(&place, "pool.suspended"), events(&place, "pool.resumed")), (1, 1));
    let resumed = "[by itself] the pool is in service again: its disks are back\n";
    place.wait_for(|| place.must(&["pool", "history", "-i", "tank"]).contains(resumed));

    // A second time, and without being asked for.
    disk.vanish();
    assert_eq!(client.try_write(&file, unstable, &page(3), true), Err(JUKEBOX));
    wait_for_health(&place, "tank", "SUSPENDED");
    disk.come_back();
    wait_for_health(&place, "tank", "ONLINE");
    client.try_write(&file, unstable, &page(3), true).unwrap();
    check(&mut client, &file, written.pages);
    inspect(&place, daemon, "tank", &disk.path);
}

/// A mirror loses one side, goes on, and loses the other: only that one brings it back.
#[test]
fn a_side_that_was_outdated_before_does_not_come_up_alone() {
    let place = Place::new();
    let Some(a) = removable(&place, "a") else { return };
    let Some(b) = removable(&place, "b") else { return };
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a.path, &b.path]);
    let mut client = Client::new(&place, "127.0.0.1");
    client.write(&file, 0, &page(0), true);
    b.vanish();
    // Only side `a` has it.
    client.write(&file, 4096, &page(1), true);
    wait_for_health(&place, "tank", "DEGRADED");
    a.vanish();
    assert_eq!(client.try_write(&file, 8192, &page(2), true), Err(JUKEBOX));
    wait_for_health(&place, "tank", "SUSPENDED");

    b.come_back();
    place.must(&["pool", "clear", "tank"]);
    let waits = format!("waits for disks: {} is missing", a.path);
    place.wait_for(|| status(&place).contains(&waits));
    sleep(Duration::from_secs(3));
    assert_eq!(place.health("tank"), "SUSPENDED");
    // Nor after a restart: its list says who was whole.
    daemon.kill9();
    let daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    assert_eq!(place.health("tank"), "UNAVAIL");
    place.must(&["pool", "clear", "tank"]);
    sleep(Duration::from_secs(3));
    assert_eq!(place.health("tank"), "UNAVAIL");
    assert!(status(&place).contains(&format!("{} is missing", a.path)), "{}", status(&place));

    a.come_back();
    wait_for_health(&place, "tank", "ONLINE");
    let mut client = Client::new(&place, "127.0.0.1");
    check(&mut client, &file, 2);
    client.write(&file, 8192, &page(2), true);
    check(&mut client, &file, 3);
    inspect(&place, daemon, "tank", &a.path);
}

/// Both sides vanish at once: each holds everything, and they come back together.
#[test]
fn a_mirror_that_loses_both_sides_comes_back_whole() {
    let place = Place::new();
    let Some(a) = removable(&place, "a") else { return };
    let Some(b) = removable(&place, "b") else { return };
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a.path, &b.path]);
    let writer = Writer::new(Client::new(&place, "127.0.0.1"), file.clone());
    sleep(Duration::from_millis(300));
    a.vanish();
    b.vanish();
    wait_for_health(&place, "tank", "SUSPENDED");
    a.come_back();
    sleep(Duration::from_secs(3));
    b.come_back();
    wait_for_health(&place, "tank", "ONLINE");
    sleep(Duration::from_millis(300));
    let written = writer.end();
    assert!(written.jukebox > 0);
    let mut client = Client::new(&place, "127.0.0.1");
    check(&mut client, &file, written.pages);
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "ONLINE"]);
    // Nothing stays noted: the next start goes by the disks alone.
    let list = fs::read_to_string(place.path("state/pools.json")).unwrap();
    assert!(!list.contains("whole"), "{list}");
    inspect(&place, daemon, "tank", &a.path);
}

#[test]
fn another_disk_or_an_older_copy_does_not_bring_a_pool_back() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk.path]);
    let copy = place.text("copy");
    fs::copy(&disk.image, &copy).unwrap();
    let mut client = Client::new(&place, "127.0.0.1");
    client.write(&file, 0, &page(0), true);
    // A txg on disk, whose uberblock the copy lacks.
    place.must(&["set", "compression=lz4", "tank/vms"]);
    disk.vanish();
    assert_eq!(client.try_write(&file, 4096, &page(1), true), Err(JUKEBOX));
    wait_for_health(&place, "tank", "SUSPENDED");
    let waits_for = |path: &str, why: &str| {
        place.must(&["pool", "clear", "tank"]);
        let waits = format!("waits for disks: {path} {why}");
        place.wait_for(|| status(&place).contains(&waits));
        assert_eq!(place.health("tank"), "SUSPENDED");
    };
    let (path, image, blank) = (disk.path.clone(), disk.image.clone(), place.image("blank"));
    disk.show(blank.as_ref()).unwrap();
    waits_for(&path, "is missing");
    let before = fs::read(&copy).unwrap();
    disk.show(copy.as_ref()).unwrap();
    waits_for(&path, "holds an older state, as a copy made before does");
    assert!(fs::read(&blank).unwrap().iter().all(|byte| *byte == 0), "nothing was written to it");
    assert!(fs::read(&copy).unwrap() == before, "nothing was written to it");
    disk.show(image.as_ref()).unwrap();
    wait_for_health(&place, "tank", "ONLINE");
    check(&mut client, &file, 1);
    inspect(&place, daemon, "tank", &disk.path);
}

/// A daemon whose threads wait for no disk. With io_uring the kernel may carry out a write to FUSE
/// on the thread that submits it.
fn serve_hanging(place: &Place) -> Daemon {
    let daemon = place.spawn_with("state", &[("AQUIFER_DISK_ENGINE", "pread".into())]);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    daemon
}

/// How long a call may wait for a disk that hangs, with room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(16);

/// A disk that hangs is waited for: nothing is lost, and nothing is suspended. Clients get an
/// answer all the same, but for a call whose fate is open.
#[test]
fn a_pool_whose_only_disk_hangs_goes_on_when_it_answers() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let other = place.image("other");
    let daemon = serve_hanging(&place);
    let file = with_file(&place, "tank", &[&disk.path]);
    let other_file = with_file(&place, "dozer", &[&other]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let writer = Writer::new(Client::new(&place, "127.0.0.1"), file.clone());
    let beside = Writer::new(Client::new(&place, "127.0.0.1"), other_file.clone());
    sleep(Duration::from_millis(300));
    let _hanging = disk.hang();
    // It is made in memory, and its record waits for the disk.
    let (mut making, dir) = (Client::new(&place, "127.0.0.1"), root.clone());
    let made = thread::spawn(move || making.mkdir(&dir, "made"));
    place.wait_for(|| events(&place, "pool.silent") == 1);
    assert!(status(&place).contains("its disks do not answer"), "{}", status(&place));
    // What is in memory is read, and nothing begins: also on one connection, one after the other.
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(client.content(&file, 0, 4096), Ok(page(0)));
        assert_eq!(client.try_write(&file, PAGES * 4096, &page(1), false), Err(JUKEBOX));
        assert_eq!(client.try_commit(&file), Err(JUKEBOX));
        assert_eq!(client.try_mkdir(&root, "refused"), Err(JUKEBOX));
        client.write(&other_file, PAGES * 4096, &page(1), true);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    sleep(Duration::from_secs(2));
    assert!(!made.is_finished(), "its fate is open");
    disk.come_back();
    let made = made.join().unwrap();
    place.wait_for(|| events(&place, "pool.answers") == 1);
    assert_eq!(client.lookup(&root, "made"), Ok(made));
    sleep(Duration::from_millis(500));
    let (written, beside) = (writer.end(), beside.end());
    assert!(written.jukebox > 0 && written.slowest < PATIENCE, "{:?}", written.slowest);
    assert!(beside.jukebox == 0 && beside.slowest < Duration::from_secs(2), "{:?}", beside.slowest);
    assert_eq!(place.health("tank"), "ONLINE");
    check(&mut client, &file, written.pages);
    assert_eq!(events(&place, "pool.suspended"), 0);
    inspect(&place, daemon, "tank", &disk.path);
}

/// A call that was carried out in memory when its pool lost its disk: the client hears how it ended
/// when the pool is back, in the same daemon on the same connection, or in the next one when it
/// sends the call again.
#[test]
fn a_call_under_way_at_a_suspension_gets_its_true_answer() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let daemon = serve_hanging(&place);
    let file = with_file(&place, "tank", &[&disk.path]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let make = |name: &'static str| {
        let (mut making, dir) = (Client::new(&place, "127.0.0.1"), root.clone());
        let hanging = disk.hang();
        let made = thread::spawn(move || making.mkdir(&dir, name));
        sleep(Duration::from_millis(500));
        drop(hanging);
        wait_for_health(&place, "tank", "SUSPENDED");
        assert_eq!(client_of(&place).try_mkdir(&root, "refused"), Err(JUKEBOX));
        assert!(!made.is_finished(), "its fate is open");
        made
    };
    let made = make("one");
    disk.come_back();
    place.must(&["pool", "clear", "tank"]);
    let one = made.join().unwrap();
    assert_eq!(client.lookup(&root, "one"), Ok(one.clone()));

    let made = make("two");
    daemon.kill9();
    assert!(made.join().is_err(), "no answer came");
    disk.come_back();
    let daemon = serve_hanging(&place);
    // The same calls, byte for byte.
    let mut client = client_of(&place);
    let two = client.mkdir(&root, "two");
    assert_eq!(client.mkdir(&root, "two"), two);
    assert_eq!(client.mkdir(&root, "one"), one);
    assert_eq!(client.lookup(&root, "two"), Ok(two));
    client.write(&file, 0, &page(0), true);
    inspect(&place, daemon, "tank", &disk.path);
}

fn client_of(place: &Place) -> Client {
    Client::new(place, "127.0.0.1")
}

/// A disk that hangs cannot hold its pool, nor an act on it, nor other pools.
#[test]
fn an_export_by_force_returns_although_the_disk_hangs() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let other = place.image("other");
    let daemon = serve_hanging(&place);
    let file = with_file(&place, "tank", &[&disk.path]);
    let other_file = with_file(&place, "dozer", &[&other]);
    let mut client = Client::new(&place, "127.0.0.1");
    for number in 0..20 {
        client.write(&file, number * 4096, &page(number), true);
    }
    let mut beside = Client::new(&place, "127.0.0.1");
    let _hanging = disk.hang();
    // A call that hangs with it, and an act.
    let mut hanging = Client::new(&place, "127.0.0.1");
    let (late, given) = (file.clone(), page(20));
    let call = thread::spawn(move || hanging.try_write(&late, 20 * 4096, &given, true));
    let mut act = place.command(&["create", "tank/more"]).spawn().unwrap();
    sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let said = place.ask(&["pool", "export", "--force", "tank"]);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let left = format!("tank: left behind: {} owe answers", disk.path);
    assert!(said.code == 0 && said.err.contains(&left), "{said:?}");
    assert_ne!(act.wait().unwrap().code(), Some(0));
    assert!(!place.must(&["pool", "list"]).contains("tank"));
    beside.write(&other_file, 0, &page(0), true);
    // What was left behind keeps the disk.
    let refused = place.ask(&["pool", "create", "-f", "new", &disk.path]);
    assert!(refused.code == 1 && refused.err.contains("tank"), "{refused:?}");

    disk.come_back();
    let said = || place.ask(&["pool", "import", "-d", &disk.path, "tank"]);
    place.wait_for(|| said().code == 0);
    let mut client = Client::new(&place, "127.0.0.1");
    match call.join().unwrap() {
        Ok(_) => check(&mut client, &file, 21),
        Err(status) => {
            assert_eq!(status, JUKEBOX);
            check(&mut client, &file, 20);
        }
    }
    place.must(&["list", "tank/vms"]);
    inspect(&place, daemon, "tank", &disk.path);
}
