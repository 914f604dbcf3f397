//! `aquifer top` on a terminal of 80 columns, and off it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::eyes::client::Client;
use crate::support::Place;

/// A program on a terminal.
pub struct Terminal {
    master: File,
    /// The program's side, kept so that its modes can be asked for.
    side: File,
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn run(place: &Place, words: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let (master, side) = (File::from(master), File::from(side));
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let mut command = place.command(words);
        let copy = || side.try_clone().unwrap();
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut from, into) = (master.try_clone().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { master, side, child, said }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Waits for text, and forgets what came so far.
    #[track_caller]
    fn wait_for(&self, what: &str) {
        self.until(what);
        self.said.lock().unwrap().clear();
    }

    #[track_caller]
    fn until(&self, what: &str) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !self.text().contains(what) {
            assert!(Instant::now() < limit, "no {what:?} in {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a program that ends by itself, and does well. Returns what it has said.
    #[track_caller]
    pub fn all_it_says(&mut self) -> String {
        assert!(self.child.wait().unwrap().success(), "{}", self.text());
        // What it said last may be on its way.
        let mut before = usize::MAX;
        while before != self.text().len() {
            before = self.text().len();
            std::thread::sleep(Duration::from_millis(100));
        }
        self.text()
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether lines are edited and shown as they are typed: so it was, and so it must be.
    fn is_plain(&self) -> bool {
        let modes = tcgetattr(&self.side).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// The program has ended, and the terminal is as before.
    #[track_caller]
    fn ends(&mut self) -> ExitStatus {
        let limit = Instant::now() + Duration::from_secs(20);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > limit => {
                    self.child.kill().unwrap();
                    panic!("it does not end: {:?}", self.text());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        // Its screen, and its cursor, are gone.
        self.until("\x1b[?1049l");
        assert!(self.is_plain());
        status
    }
}

/// A VM that reads and writes until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn new(place: &Place, path: &str, name: &str) -> Load {
        let mut client = Client::new(place, "127.0.0.1");
        let root = client.mount(path);
        let file = client.create(&root, name);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                client.write(&file, 0, &[1; 4096], true);
                client.read(&file, 0, 4096).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Two VM disks under load.
fn bed() -> (Place, crate::support::Daemon, [Load; 2]) {
    let place = Place::new();
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/db"]);
    let loads = [("/tank/vms", "web.vhd"), ("/tank/db", "sql.vhd")];
    let loads = loads.map(|(path, name)| Load::new(&place, path, name));
    (place, daemon, loads)
}

#[test]
fn disks_are_shown_each_second_and_keys_are_heard() {
    let (place, daemon, _loads) = bed();
    let mut top = Terminal::run(&place, &["top"]);
    top.wait_for("\x1b[?1049h");
    assert!(!top.is_plain());
    top.wait_for("tank/vms:web.vhd");
    top.wait_for("tank/db:sql.vhd");
    top.wait_for("by operations");
    top.press(b"b");
    top.wait_for("by bytes");
    top.press(b"l");
    top.wait_for("by mean time");
    top.press(b"ddb\r");
    top.wait_for("datasets with \"db\"");
    top.wait_for("aquifer top: 1 disks");
    top.wait_for("tank/db:sql.vhd");
    // A daemon that is away is no end of it.
    daemon.kill9();
    top.wait_for("no answer: ");
    let _daemon = place.serve();
    top.press(b"q");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn the_terminal_is_as_before_however_it_ends() {
    let (place, _daemon, _loads) = bed();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut top = Terminal::run(&place, &["top", "-s", "bytes"]);
        top.wait_for("by bytes");
        top.signal(signal);
        assert_eq!(top.ends().code(), Some(0), "{signal:?}");
    }
    // Ctrl-C, as it is typed.
    let mut top = Terminal::run(&place, &["top", "-d", "db"]);
    top.wait_for("tank/db:sql.vhd");
    top.press(b"\x03");
    assert_eq!(top.ends().code(), Some(0));
    // A panic: what it says is on the screen from before.
    let mut top = Terminal::run(&place, &["top"]);
    top.wait_for("by operations");
    top.press(b"\x10");
    assert_eq!(top.ends().code(), Some(101));
    top.until("a panic was asked for");
}

#[test]
fn off_a_terminal_it_is_one_table() {
    let (place, _daemon, _loads) = bed();
    let table = place.must(&["top"]);
    assert!(table.starts_with("DISK "), "{table}");
    assert!(table.contains("tank/vms:web.vhd") && table.contains("tank/db:sql.vhd"), "{table}");
    assert!(!table.contains('\x1b'), "{table}");
    let one = place.must(&["top", "-H", "-d", "db"]);
    assert_eq!(one.lines().count(), 1, "{one}");
    assert_eq!(one.trim_end().split('\t').count(), 8, "{one}");
    let json = place.json(&["top", "--sort", "latency"]);
    let disks = json.as_array().unwrap();
    assert_eq!(disks.len(), 2, "{json}");
    assert!(disks.iter().all(|disk| disk["writes_per_s"].as_u64().unwrap() > 0), "{json}");
    assert!(disks[0]["mean_ns"].as_u64() >= disks[1]["mean_ns"].as_u64(), "{json}");
}
