//! Failures at the start, or in service: nothing else stops working; what failed is told, and tried
//! again.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::logs::Mounted;
use crate::support::{Daemon, PATIENCE, Place};

/// An address that nothing listens on; where it is not there yet.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A pool with an export.
fn tank(place: &Place) {
    let a = place.image("a");
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
}

/// NULL of NFS, MNT and GETATTR, as a client does; why not, if not.
fn mounts(at: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect(at).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let said = |error: std::io::Error| error.to_string();
    call(&mut stream, 100_003, 0, &[]).map_err(said)?;
    let reply = call(&mut stream, 100_005, 1, &opaque(b"/tank/vms")).map_err(said)?;
    if reply[..4] != [0; 4] {
        return Err(format!("MNT: {reply:?}"));
    }
    let length = u32::from_be_bytes(reply[4..8].try_into().unwrap()) as usize;
    let reply = call(&mut stream, 100_003, 1, &opaque(&reply[8..8 + length])).map_err(said)?;
    if reply[..4] == [0; 4] { Ok(()) } else { Err(format!("GETATTR: {reply:?}")) }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    encoded.extend(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// The results of a call, behind RPC's SUCCESS.
fn call(
    stream: &mut TcpStream,
    program: u32,
    procedure: u32,
    args: &[u8],
) -> std::io::Result<Vec<u8>> {
    let words: [u32; 10] = [7, 0, 2, program, 3, procedure, 0, 0, 0, 0];
    let length = u32::try_from(40 + args.len()).unwrap();
    let mut call = (0x8000_0000 | length).to_be_bytes().to_vec();
    call.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    call.extend(args);
    stream.write_all(&call)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[4..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    Ok(reply.split_off(24))
}

/// Returns what `status -x` says is wrong, empty if nothing is; checks that the command fails just
/// then.
fn wrong(place: &Place) -> String {
    let said = place.ask(&["pool", "status", "-x"]);
    assert_eq!(said.code == 3, said.out != "all pools are healthy\n", "{said:?}");
    if said.code == 3 { said.out } else { String::new() }
}

fn alerts(place: &Place) -> Vec<String> {
    let active = place.json(&["alerts"])["active"].clone();
    let codes = active.as_array().unwrap().iter();
    codes.map(|alert| alert["code"].as_str().unwrap().to_string()).collect()
}

/// While `code` is told, everything says so, and when it is not, nothing does.
fn is_told(place: &Place, code: &str, word: &str) {
    place.wait_for(|| wrong(place).replace("\n        ", " ").contains(word));
    place.wait_for(|| alerts(place).iter().any(|told| told == code));
    let doctor = place.ask(&["doctor", "--json"]);
    assert!(doctor.out.contains(&format!("\"{code}\"")), "{doctor:?}");
}

fn is_over(place: &Place, code: &str) {
    place.wait_for(|| wrong(place).is_empty());
    place.wait_for(|| !alerts(place).iter().any(|told| told == code));
}

fn spawn(place: &Place, words: &[&str]) -> Daemon {
    let daemon = place.spawn_as("state", &[], &[], words);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    daemon
}

/// The first finding of the issue: the port is taken, and then it is not.
#[test]
fn a_port_that_is_taken_at_the_start_is_listened_on_when_it_is_free() {
    let place = Place::new();
    let daemon = place.serve();
    tank(&place);
    daemon.terminate(PATIENCE).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, other) = (taken.local_addr().unwrap(), free());
    let notices = UnixDatagram::bind(place.path("notify")).unwrap();
    let manager = [("NOTIFY_SOCKET", place.text("notify"))];
    let daemon = place.spawn_as("state", &manager, &[], &["--nfs-addr", &at.to_string()]);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    is_told(&place, "nfs-not-served", "cannot listen on");
    // The service manager is told why it waits, and waits.
    notices.set_nonblocking(true).unwrap();
    let next = || {
        let mut text = [0; 4096];
        let bytes = notices.recv(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text[..bytes]).into_owned())
    };
    let said: Vec<String> = std::iter::from_fn(next).collect();
    assert!(said.iter().any(|said| said.contains("STATUS=Not served over NFS")), "{said:?}");
    assert!(!said.iter().any(|said| said.contains("READY=1")), "{said:?}");
    drop(taken);
    place.wait_for(|| mounts(at).is_ok());
    is_over(&place, "nfs-not-served");
    place.wait_for(|| next().is_some_and(|said| said.contains("READY=1")));
    daemon.terminate(PATIENCE).unwrap();

    // Of two addresses, one is not there. (A network for documentation.)
    let words = ["--nfs-addr", &other.to_string(), "--nfs-addr", "192.0.2.7:2049"];
    let _daemon = spawn(&place, &words);
    place.wait_for(|| mounts(other).is_ok());
    is_told(&place, "nfs-not-served", "192.0.2.7:2049");
}

/// A portmapper that nobody can be, and that does not answer.
#[test]
fn a_portmapper_that_is_taken_is_told_and_opened_when_it_is_free() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let mut config = String::from("[portmap]\nlisten = [\"");
    config.push_str(&format!("{at}\"]\n"));
    fs::write(place.path("config"), config).unwrap();
    let serve = aquifer_rig::process::Invocation::new(crate::support::AQUIFER);
    let serve = serve.arg("serve").arg("--api-socket").arg(place.socket());
    let serve = serve.args(["--config", &place.text("config"), "--memory", "64M"]);
    let nfs = free();
    let serve = serve.args(["--state-dir", &place.text("state"), "--nfs-addr", &nfs.to_string()]);
    let _daemon = serve.spawn(&place.path("log")).unwrap();
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    tank(&place);
    is_told(&place, "portmap-off", "do not find NFS");
    assert!(mounts(nfs).is_ok());
    drop(taken);
    is_over(&place, "portmap-off");
    let listening = place.json(&["pool", "list"]);
    assert!(listening.is_array());
    let (_, info) = place.get("/v1/daemon");
    assert!(info.contains(&format!("portmap {at}")), "{info}");
}

/// Each ends a process that does not handle it.
#[test]
fn signals_that_mean_nothing_change_nothing() {
    let place = Place::new();
    let daemon = place.serve();
    tank(&place);
    for (signal, name) in
        [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")]
    {
        daemon.signal(signal).unwrap();
        let logged = format!("signal=\"{name}\"");
        place.wait_for(|| place.log().contains(&logged));
        assert_eq!(place.health("tank"), "ONLINE");
    }
    assert!(daemon.terminate(PATIENCE).unwrap().success());
}

/// The other pool's disk is gone: clients of this one connect at once, and those of the other wait
/// until it is back.
#[test]
fn a_missing_pool_delays_no_client_of_another() {
    let place = Place::new();
    let daemon = place.serve();
    tank(&place);
    let b = place.image("b");
    place.must(&["pool", "create", "gone", &b]);
    place.must(&["create", "-o", "sharenfs=insecure", "gone/vms"]);
    daemon.terminate(PATIENCE).unwrap();
    fs::rename(&b, place.path("away")).unwrap();
    let at = free();
    let words = ["--nfs-addr", &at.to_string(), "--wait-for-disks", "3600"];
    let _daemon = place.spawn_as("state", &[], &[], &words);
    place.wait_for(|| TcpStream::connect(at).is_ok());
    mounts(at).unwrap();
    // Far from the limit of the start.
    let (_, info) = place.get("/v1/daemon");
    assert!(info.contains("\"starting\":true"), "{info}");
    let mut other = TcpStream::connect(at).unwrap();
    other.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let early = call(&mut other, 100_005, 1, &opaque(b"/gone/vms"));
    assert!(early.is_err(), "MOUNT has no word for later: {early:?}");
    let mut nowhere = TcpStream::connect(at).unwrap();
    let none = call(&mut nowhere, 100_005, 1, &opaque(b"/none/vms")).unwrap();
    assert_eq!(none, [0, 0, 0, 2], "what belongs to no pool is not there");
    fs::rename(place.path("away"), &b).unwrap();
    // The call that waits is answered.
    other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut mark = [0; 4];
    other.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    other.read_exact(&mut reply).unwrap();
    assert_eq!(reply[24..28], [0; 4], "it is mounted");
}

/// All files of the state directory, by their paths in it.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => all.push(entry.path().strip_prefix(dir).unwrap().to_path_buf()),
            }
        }
    }
    all.sort();
    all
}

/// Damage that a file may suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoilt {
    Gone,
    Empty,
    Cut,
    Noise,
    Directory,
}

const ALL: [Spoilt; 5] =
    [Spoilt::Gone, Spoilt::Empty, Spoilt::Cut, Spoilt::Noise, Spoilt::Directory];

impl Spoilt {
    fn apply(self, path: &Path) {
        let whole = fs::read(path).unwrap_or_default();
        match self {
            Spoilt::Gone => fs::remove_file(path).unwrap(),
            Spoilt::Empty => fs::write(path, "").unwrap(),
            Spoilt::Cut => fs::write(path, &whole[..whole.len() / 2]).unwrap(),
            Spoilt::Noise => fs::write(path, crate::bed::noise(7, 512)).unwrap(),
            Spoilt::Directory => {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
                fs::write(path.join("there"), "").unwrap();
            }
        }
    }
}

/// A daemon that has all kinds of files, a way to put them back, and where NFS is.
struct Whole {
    place: Place,
    at: SocketAddr,
    words: Vec<String>,
}

impl Whole {
    /// One that ran once.
    fn new() -> Whole {
        let place = Place::new();
        let (at, api) = (free(), free());
        let config = format!(
            "[api]\nlisten = [\"{api}\"]\n[peers.backup]\nurl = \"https://127.0.0.1:1\"\n\
             certificate = \"/c\"\ntoken = \"/t\"\n"
        );
        fs::write(place.path("config"), config).unwrap();
        let words = ["--nfs-addr".into(), at.to_string(), "--config".into(), place.text("config")];
        let whole = Whole { place, at, words: words.to_vec() };
        let daemon = whole.start();
        tank(&whole.place);
        whole.place.must(&["token", "create", "ci", "--role", "read"]);
        whole.place.wait_for(|| whole.place.path("state/disks.json").exists());
        let state = whole.place.path("state/api/client-key.pem");
        whole.place.wait_for(|| state.exists());
        daemon.terminate(PATIENCE).unwrap();
        whole
    }

    fn start(&self) -> Daemon {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        spawn(&self.place, &words)
    }

    /// NFS works, and whatever is not as it should be is told.
    fn works(&self, file: &Path, spoilt: Spoilt, in_service: bool, kept: &Path) {
        let path = self.place.path("state").join(file);
        let name = file.file_name().unwrap().to_str().unwrap();
        // A lock; sessions of browsers; settings that the configuration has; the token of a file
        // that is gone is no token.
        let is_of_no_use = ["lock", "sessions.json", "settings.toml"].contains(&name)
            || spoilt == Spoilt::Gone && in_service && name == "token";
        // Of a pair that is gone, the first is named.
        let told = if name.ends_with(".pem") { ".pem" } else { name.trim_end_matches('~') };
        let is_whole = || {
            let there = fs::read(&path).unwrap_or_default();
            let is_hex =
                |there: &[u8]| there.len() >= 32 && there.iter().all(u8::is_ascii_hexdigit);
            match name.contains(".json") {
                _ if name == "token" && is_hex(there.trim_ascii()) => true,
                true => serde_json::from_slice::<Value>(&there).is_ok(),
                // It is as it was, or was made again.
                false => {
                    there == fs::read(kept.join(file)).unwrap()
                        || name.ends_with(".pem")
                            && there.starts_with(b"-----BEGIN")
                            && there.ends_with(b"-----\n")
                }
            }
        };
        self.place.wait_for(|| {
            let said = wrong(&self.place);
            is_of_no_use || is_whole() || said.contains(told) || {
                eprintln!("{name} {spoilt:?}, in service: {in_service}: {said:?}");
                false
            }
        });
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Each file that a daemon made, spoilt in each way at a start; and all of them in service. A file
/// that a later release makes is spoilt, too.
#[test]
fn each_file_of_the_state_may_be_spoilt_and_nfs_is_served() {
    let whole = Whole::new();
    let (state, kept) = (whole.place.path("state"), whole.place.path("kept"));
    copy(&state, &kept);
    let all = files(&state);
    for needed in ["pools.json", "host_id", "api/tokens.json", "api/key.pem", "lock-clients.json"] {
        assert!(all.contains(&PathBuf::from(needed)), "{all:?}");
    }
    for spoilt in ALL {
        copy(&kept, &state);
        let daemon = whole.start();
        whole.place.wait_for(|| mounts(whole.at).is_ok());
        all.iter().for_each(|file| spoilt.apply(&state.join(file)));
        for file in &all {
            whole.works(file, spoilt, true, &kept);
        }
        assert_eq!(mounts(whole.at), Ok(()), "{spoilt:?} in service");
        daemon.kill9();
        for file in &all {
            copy(&kept, &state);
            spoilt.apply(&state.join(file));
            let daemon = whole.start();
            whole.place.wait_for(|| mounts(whole.at).is_ok());
            whole.works(file, spoilt, false, &kept);
            daemon.kill9();
        }
    }
}

/// The state directory has no room, from the start on and in service.
#[test]
fn a_full_state_directory_is_told_and_nfs_is_served() {
    let whole = Whole::new();
    let (state, kept) = (whole.place.path("state"), whole.place.path("kept"));
    fs::rename(&state, &kept).unwrap();
    let Some(_mounted) = Mounted::tmpfs(state.to_str().unwrap(), 8) else { return };
    for file in files(&kept) {
        fs::create_dir_all(state.join(&file).parent().unwrap()).unwrap();
        fs::copy(kept.join(&file), state.join(&file)).unwrap();
    }
    let fill = || {
        let mut filler = fs::File::create(state.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    };
    fill();
    let daemon = whole.start();
    whole.place.wait_for(|| mounts(whole.at).is_ok());
    is_told(&whole.place, "state-dir-full", "is full");
    fs::remove_file(state.join("filler")).unwrap();
    whole.place.wait_for(|| wrong(&whole.place).is_empty());
    fill();
    assert_eq!(mounts(whole.at), Ok(()));
    is_told(&whole.place, "state-dir-full", "is full");
    daemon.kill9();
}

/// Settings that nobody can use: NFS is where it was at the last good start.
#[test]
fn a_spoilt_configuration_is_told_and_nfs_is_served() {
    let whole = Whole::new();
    let config = whole.place.path("config");
    let good = fs::read_to_string(&config).unwrap();
    for (text, word) in [
        (good.clone() + "[later]\nkey = 1\n", "later"),
        (good.replace("[api]", "[api]\nnames = [\"bad name\"]"), "bad name"),
        ("\0\0\0".into(), "configuration"),
        (String::from("[nfs"), "configuration"),
    ] {
        fs::write(&config, text).unwrap();
        let daemon = whole.start();
        whole.place.wait_for(|| mounts(whole.at).is_ok());
        is_told(&whole.place, "settings-unusable", word);
        daemon.kill9();
    }
    fs::write(&config, good).unwrap();
    let _daemon = whole.start();
    is_over(&whole.place, "settings-unusable");
}

/// An address of the API that is taken, and a certificate that is spoilt at the start: NFS is
/// served, and the API answers when they are mended.
#[test]
fn the_api_on_tcp_comes_when_it_can_and_nfs_before() {
    let whole = Whole::new();
    let text = fs::read_to_string(whole.place.path("config")).unwrap();
    let api: SocketAddr = text.split('"').nth(1).unwrap().parse().unwrap();
    let taken = TcpListener::bind(api).unwrap();
    let key = whole.place.path("state/api/key.pem");
    let secret = fs::read(&key).unwrap();
    fs::write(&key, "").unwrap();
    let _daemon = whole.start();
    whole.place.wait_for(|| mounts(whole.at).is_ok());
    is_told(&whole.place, "api-not-served", "key.pem");
    fs::write(&key, secret).unwrap();
    is_told(&whole.place, "api-not-served", &api.to_string());
    drop(taken);
    whole.place.wait_for(|| TcpStream::connect(api).is_ok());
    is_over(&whole.place, "api-not-served");
}
