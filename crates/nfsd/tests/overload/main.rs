//! Clients that are slow, silent, or too fast, and many of them: memory stays bounded and others
//! are served. The tests run one at a time, since they measure the process.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

#[path = "../serve/client.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod client;
#[path = "../serve/fixture.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod fixture;

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aquifer_nfs::Export;
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Getattr3Args, NfsFh3, Read3Args,
    Read3Res, Res3, Sattr3, StableHow, Write3Args, Write3Head, Write3Res,
};
use aquifer_nfsd::limits::Limits;
use aquifer_nfsd::{Config, Load};
use aquifer_rpc::xdr::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use client::Client;
use fixture::{Fixture, config};

const MIB: usize = 1 << 20;

/// How long a well-behaved client may have to wait.
const STALL_MAX: Duration = Duration::from_secs(1);

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process, clients and pool included.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn pattern() -> Vec<u8> {
    (0..MIB).map(|at| (at / 7 % 251) as u8).collect()
}

/// A file of 1 MiB, on disk.
fn file(client: &mut Client, dir: NfsFh3) -> NfsFh3 {
    let place = DirOpArgs3 { dir, name: b"file" };
    let how = CreateHow3::Guarded(Sattr3::NONE);
    let made = client.nfs(&Args3::Create(Create3Args { place, how }));
    let Res3::Ok(made) = made.decode::<Create3Res>() else { panic!("CREATE failed") };
    let file = made.obj.unwrap();
    write(client, file);
    file
}

fn write_args(file: NfsFh3, data: &[u8]) -> Args3<'_> {
    let count = u32::try_from(data.len()).unwrap();
    let head = Write3Head { file, offset: 0, count, stable: StableHow::FileSync };
    Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: data } })
}

/// Writes 1 MiB, stable.
fn write(client: &mut Client, file: NfsFh3) {
    let data = pattern();
    let written = client.nfs(&write_args(file, &data));
    let Res3::Ok(written) = written.decode::<Write3Res>() else { panic!("WRITE failed") };
    assert_eq!((written.count as usize, written.committed), (MIB, StableHow::FileSync));
}

fn read_args(file: NfsFh3) -> Args3<'static> {
    Args3::Read(Read3Args { file, offset: 0, count: 1 << 20 })
}

/// Reads 1 MiB, and how long it took.
fn read(client: &mut Client, file: NfsFh3) -> Duration {
    let begun = Instant::now();
    let results = client.nfs(&read_args(file));
    let took = begun.elapsed();
    let Res3::Ok(read) = results.decode::<Read3Res<'_>>() else { panic!("READ failed") };
    assert!(read.data.bytes == pattern(), "the content is what was written");
    took
}

/// Sends `record` repeatedly until the server takes no more. Returns the number taken whole.
fn flood(client: &mut Client, record: &[u8]) -> usize {
    client.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let batch = record.repeat(64.min(MIB / record.len()).max(1));
    let mut taken = 0;
    loop {
        // A write may end within a record: the next one continues there.
        match client.stream.write(&batch[taken % batch.len()..]) {
            Ok(bytes) => taken += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return taken / record.len(),
            Err(_) => return taken / record.len(),
        }
        assert!(taken < 64 * MIB, "a flooding client is not stopped");
    }
}

/// Watches the server while `during` runs; returns the largest leases.
fn peak(fixture: &Fixture, during: impl FnOnce() + Send) -> Load {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let mut peak = Load::default();
            while !done.load(Ordering::Relaxed) {
                let load = fixture.server().load();
                peak.request_bytes = peak.request_bytes.max(load.request_bytes);
                peak.reply_bytes = peak.reply_bytes.max(load.reply_bytes);
                std::thread::sleep(Duration::from_millis(2));
            }
            peak
        });
        during();
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    })
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let _one = one_at_a_time();
    let fixture = Fixture::new();
    let (mut good, root) = fixture.mounted();
    let file = file(&mut good, root);
    let mut greedy = fixture.client();
    let record = greedy.nfs_record(&read_args(file));
    let mut sent = 0;
    let peak = peak(&fixture, || sent = flood(&mut greedy, &record));
    assert!(sent > 100, "{sent}");
    // For each connection: four of the largest replies, and received requests that have not begun.
    assert!(peak.reply_bytes <= 5 * MIB, "{peak:?}");
    assert!(peak.request_bytes <= 2 * MIB, "{peak:?}");
    for _ in 0..20 {
        let took = read(&mut good, file);
        assert!(took < STALL_MAX, "{took:?}");
    }
    assert_eq!(fixture.server().load().closed_as_slow, 0, "nobody had to wait");
    // It may read at last: nothing is lost.
    for _ in 0..sent {
        let reply = greedy.receive();
        assert!(reply.len() > MIB, "{} bytes: {:?}", reply.len(), &reply[..reply.len().min(200)]);
    }
    drop(greedy);
    fixture.until("memory is back", |fixture| {
        let load = fixture.server().load();
        (load.request_bytes, load.reply_bytes) == (0, 0)
    });
}

/// Together they ask for far more than the budget. Those that do not read are closed, and no other
/// client waits for long.
#[test]
fn silent_readers_cannot_use_up_the_memory() {
    let _one = one_at_a_time();
    let fixture = Fixture::new();
    let (mut good, root) = fixture.mounted();
    let file = file(&mut good, root);
    read(&mut good, file);
    let before = resident_bytes();
    let mut silent: Vec<_> = (0..60).map(|_| fixture.client()).collect();
    let mut longest = Duration::ZERO;
    let peak = peak(&fixture, || {
        for client in &mut silent {
            let record = client.nfs_record(&read_args(file));
            let many = record.repeat(64);
            client.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            let _ = client.stream.write(&many);
            longest = longest.max(read(&mut good, file));
        }
        for _ in 0..50 {
            longest = longest.max(read(&mut good, file));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let grown = resident_bytes().saturating_sub(before);
    let load = fixture.server().load();
    assert!(peak.reply_bytes <= 56 * MIB, "{peak:?}");
    assert!(grown < 100 * MIB, "{} MiB more", grown / MIB);
    assert!(load.closed_as_slow > 0, "{load:?}");
    assert!(longest < 2 * STALL_MAX, "{longest:?}");
    println!("longest wait {longest:?}, {} MiB more, {load:?}", grown / MIB);
}

/// Records that are announced and never come.
#[test]
fn half_sent_records_cannot_use_up_the_memory() {
    let _one = one_at_a_time();
    let fixture = Fixture::new();
    let (mut good, root) = fixture.mounted();
    let file = file(&mut good, root);
    let before = resident_bytes();
    let data = pattern();
    let mut slow: Vec<_> = (0..300).map(|_| fixture.client()).collect();
    let mut longest = Duration::ZERO;
    let peak = peak(&fixture, || {
        for (number, client) in slow.iter_mut().enumerate() {
            let record = client.nfs_record(&write_args(file, &data));
            client.send(&record[..70_000 + number]);
        }
        // Now each wants the memory of a whole record.
        for client in &mut slow {
            client.send(&data[..1000]);
        }
        for _ in 0..20 {
            let begun = Instant::now();
            write(&mut good, file);
            longest = longest.max(begun.elapsed());
        }
    });
    let grown = resident_bytes().saturating_sub(before);
    let load = fixture.server().load();
    assert!(peak.request_bytes <= 64 * MIB, "{peak:?}");
    assert!(grown < 150 * MIB, "{} MiB more", grown / MIB);
    assert!(load.closed_as_slow > 0, "{load:?}");
    // 300 whole records in rounds of 60, and those of a round are dropped after 0.75 s. This finds
    // only a client that is not served at all.
    assert!(longest < 10 * STALL_MAX, "{longest:?}");
    good.ping();
    println!("longest write {longest:?}, {} MiB more, {load:?}", grown / MIB);
}

/// Calls as fast as they can be sent, replies not read.
#[test]
fn floods_of_small_calls_are_bounded_and_disturb_nobody() {
    let _one = one_at_a_time();
    let fixture = Fixture::new();
    let (mut good, root) = fixture.mounted();
    let getattr = Args3::Getattr(Getattr3Args { object: root });
    let before = resident_bytes();
    let mut longest = Duration::ZERO;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = fixture.client();
            let record = client.nfs_record(&getattr);
            let stop = &stop;
            scope.spawn(move || {
                flood(&mut client, &record);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        for _ in 0..200 {
            let begun = Instant::now();
            good.nfs(&getattr);
            longest = longest.max(begun.elapsed());
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 60 * MIB, "{} MiB more", grown / MIB);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(longest < STALL_MAX, "{longest:?}");
    println!("longest GETATTR {longest:?}, {:?}", fixture.server().load());
}

/// A lock renewal (ESXi, every 10 s, lost after 35 s) among bulk writes that use up the memory.
#[test]
fn a_small_write_does_not_wait_for_others_bulk() {
    let _one = one_at_a_time();
    let mut config = config();
    config.limits.request_bytes_max = 8 * MIB;
    config.limits.reply_bytes_max = 8 * MIB;
    let fixture = Fixture::with(config, vec![Export::new("/vms", "tank/vms")]);
    let (mut good, root) = fixture.mounted();
    let bulk = file(&mut good, root);
    let place = DirOpArgs3 { dir: root, name: b".lck-3" };
    let how = CreateHow3::Guarded(Sattr3::NONE);
    let made = good.nfs(&Args3::Create(Create3Args { place, how }));
    let Res3::Ok(made) = made.decode::<Create3Res>() else { panic!("CREATE failed") };
    let lock = made.obj.unwrap();
    let data = pattern();
    let stop = AtomicBool::new(false);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let mut client = fixture.client();
            let (data, stop) = (&data, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let record = client.nfs_record(&write_args(bulk, data));
                    let mut sender = client.another_half();
                    std::thread::scope(|scope| {
                        scope.spawn(move || (0..8).for_each(|_| sender.send(&record)));
                        (0..8).for_each(|_| drop(client.receive()));
                    });
                }
            });
        }
        for _ in 0..30 {
            let begun = Instant::now();
            good.nfs(&write_args(lock, &data[..84]));
            longest = longest.max(begun.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("longest renewal {longest:?}, {:?}", fixture.server().load());
    assert!(longest < 2 * STALL_MAX, "{longest:?}");
}

#[test]
fn a_thousand_connections() {
    let _one = one_at_a_time();
    more_files();
    let fixture = Fixture::new();
    let (_, root) = fixture.mounted();
    let before = resident_bytes();
    let mut clients: Vec<_> = (0..1000).map(|_| fixture.client()).collect();
    fixture.until("all are accepted", |fixture| fixture.server().load().connections >= 1000);
    for client in &mut clients {
        client.ping();
    }
    let idle = resident_bytes().saturating_sub(before) / 1000;
    println!("{idle} bytes for an idle connection and its client");
    assert!(idle < 16 * 1024, "{idle} bytes");
    let begun = Instant::now();
    for client in &mut clients {
        let record = client.nfs_record(&Args3::Getattr(Getattr3Args { object: root }));
        client.send(&record.repeat(10));
    }
    for client in &mut clients {
        for _ in 0..10 {
            client.receive();
        }
    }
    println!("10,000 GETATTR over 1,000 connections in {:?}", begun.elapsed());
    fixture.until("memory is back", |fixture| {
        let load = fixture.server().load();
        (load.request_bytes, load.reply_bytes) == (0, 0)
    });
    drop(clients);
    fixture.until("all are gone", |fixture| fixture.server().load().connections == 0);
}

#[test]
fn one_connection_too_many_is_closed() {
    let _one = one_at_a_time();
    let mut config = Config { threads: 1, ..config() };
    config.limits.connections_max = 10;
    let fixture = Fixture::with(config, vec![Export::new("/vms", "tank/vms")]);
    let mut clients: Vec<_> = (0..10).map(|_| fixture.client()).collect();
    clients.iter_mut().for_each(Client::ping);
    fixture.client().closed();
    clients.iter_mut().for_each(Client::ping);
    clients.pop();
    fixture.until("there is room", |fixture| fixture.server().load().connections < 10);
    fixture.client().ping();
    assert_eq!(fixture.server().load().turned_away, 1);
}

#[test]
fn a_server_without_files_waits_and_goes_on() {
    let _one = one_at_a_time();
    let fixture = Fixture::with(config(), vec![Export::new("/vms", "tank/vms")]);
    let (mut client, root) = fixture.mounted();
    let before = getrlimit(Resource::Nofile);
    let _restored = Restored(before);
    // Room for the client's end of the next connection, and none for ours.
    let highest = files_open().into_iter().max().unwrap();
    let holes = (0..highest).filter(|fd| !files_open().contains(fd)).count();
    let fillers: Vec<_> = (0..holes).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let most = highest + 2;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..before }).unwrap();
    let mut waiting = fixture.client();
    waiting.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let call = waiting.nfs_record(&Args3::Getattr(Getattr3Args { object: root }));
    waiting.send(&call);
    fixture.until("it cannot accept", |fixture| fixture.server().load().accept_failures > 0);
    let (failures, busy) = (fixture.server().load().accept_failures, busy_time());
    let begun = Instant::now();
    while begun.elapsed() < STALL_MAX {
        client.ping();
        std::thread::sleep(Duration::from_millis(20));
    }
    let failed = fixture.server().load().accept_failures - failures;
    let busy = busy_time() - busy;
    assert!((1..=40).contains(&failed), "tried {failed} times in {:?}", begun.elapsed());
    assert!(busy < STALL_MAX / 4, "{busy:?} of processor time");
    let mut none = [0];
    let kind = std::io::Read::read(&mut waiting.stream, &mut none).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind:?}");
    setrlimit(Resource::Nofile, before).unwrap();
    drop(fillers);
    // The waiting client is served, and its call was not lost.
    waiting.stream.set_read_timeout(Some(STALL_MAX)).unwrap();
    waiting.receive();
    assert_eq!(fixture.server().load().turned_away, 0);
}

#[test]
fn connections_leave_files_for_others() {
    let limits = |files| Limits::default().within_files(files).connections_max;
    assert_eq!(limits(None), 4096);
    assert_eq!(limits(Some(65536)), 4096);
    assert_eq!(limits(Some(1024)), 512);
    assert_eq!(limits(Some(3)), 1);
}

/// Puts the limit of files back, however a test ends.
struct Restored(Rlimit);

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

/// The numbers of the files that this process has open.
fn files_open() -> Vec<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = listed.map(|entry| entry.unwrap().file_name());
    let numbers: Vec<u64> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    // The directory itself was opened last, and is closed again.
    let there = |fd: &u64| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok();
    numbers.into_iter().filter(there).collect()
}

/// Processor time of this process.
fn busy_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap()
}

/// As many open files as the system allows us.
fn more_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let _ = setrlimit(Resource::Nofile, raised);
}
