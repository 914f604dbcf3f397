//! The API over TCP: for callers with certificate and token, and for nobody else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::{Daemon, PATIENCE, Place, Said};

/// A daemon whose API listens on TCP as well, and its port.
pub fn serve(place: &Place) -> (Daemon, u16) {
    // The port was free a moment ago: nobody else binds ports of this machine's loopback that fast.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n");
    std::fs::write(place.path("config"), config).unwrap();
    let daemon = place.spawn_as("state", &[], &[], &["--config", &place.text("config")]);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    (daemon, port)
}

#[test]
fn who_has_certificate_and_token_administers_from_afar_and_nobody_else() {
    let place = Place::new();
    let (_daemon, port) = serve(&place);
    let image = place.image("a.img");
    let url = format!("https://127.0.0.1:{port}");
    let key = |name: &str| place.text(&format!("state/api/{name}"));
    let (certificate, token) = (key("certificate.pem"), key("token"));
    let ask = |certificate: &str, token: &str, words: &[&str]| {
        let start = ["--api", &url, "--api-certificate", certificate, "--api-token", token];
        place.ask(&[&start, words].concat())
    };
    let made = ask(&certificate, &token, &["pool", "create", "tank", &image]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(ask(&certificate, &token, &["pool", "list"]).out.contains("tank"));
    // Over the socket it is the same daemon.
    assert!(place.must(&["pool", "list"]).contains("tank"));

    std::fs::write(place.path("guess"), "0".repeat(64)).unwrap();
    std::process::Command::new("chmod").args(["600", &place.text("guess")]).status().unwrap();
    let guessed = ask(&certificate, &place.text("guess"), &["pool", "list"]);
    assert_eq!((guessed.code, guessed.out.as_str()), (1, ""), "{guessed:?}");
    assert!(guessed.err.contains("not the token"), "{guessed:?}");
    // An act is refused before its parameters are read.
    let acted = ask(&certificate, &place.text("guess"), &["pool", "export", "tank"]);
    assert_eq!(acted.code, 1, "{acted:?}");
    assert!(place.must(&["pool", "list"]).contains("tank"));

    // Another daemon's certificate: this is not it.
    let other = Place::new();
    let (_other_daemon, _) = serve(&other);
    let mistaken = ask(&other.text("state/api/certificate.pem"), &token, &["pool", "list"]);
    assert_eq!(mistaken.code, 1);
    assert!(mistaken.err.contains("--api-certificate"), "{mistaken:?}");

    // Search places are paths of the server: here they need not exist.
    let looked = ask(&certificate, &token, &["pool", "import", "-d", "/nothing/here"]);
    assert!(looked.err.contains("no pool was found"), "{looked:?}");
    let looked = ask(&certificate, &token, &["pool", "import", "-d", "here"]);
    assert!((looked.code, looked.err.contains("the server's")) == (2, true), "{looked:?}");

    // Half of the options.
    let half = place.ask(&["--api", &url, "pool", "list"]);
    assert_eq!(half.code, 2, "{half:?}");
}

#[test]
fn without_tls_nothing_is_said_and_who_says_nothing_holds_nobody_up() {
    let place = Place::new();
    let (daemon, port) = serve(&place);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let token = std::fs::read_to_string(place.path("state/api/token")).unwrap();
    let mut plain = connect();
    let request =
        format!("GET /v1/pools HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    plain.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    // A TLS alert, or the end of the connection.
    let _ = plain.read_to_end(&mut said);
    assert!(!said.windows(4).any(|bytes| bytes == b"HTTP"), "{said:?}");

    let silent: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    let url = format!("https://127.0.0.1:{port}");
    let (certificate, token) =
        (place.text("state/api/certificate.pem"), place.text("state/api/token"));
    let far = ["--api", &url, "--api-certificate", &certificate, "--api-token", &token];
    let begun = std::time::Instant::now();
    place.must(&[&far[..], &["pool", "list"]].concat());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(daemon.terminate(PATIENCE).unwrap().success(), "{}", place.log());
    drop(silent);
}

/// The work for strangers runs on threads that yield to those of clients.
#[test]
fn strangers_are_heard_on_threads_that_yield() {
    let place = Place::new();
    let (daemon, port) = serve(&place);
    // Also what they are let in to start does not.
    let (image, token) = (place.image("a.img"), place.text("state/api/token"));
    Far::new(&place, port).must(&token, &["pool", "create", "tank", &image]);
    let nice = |thread: &str| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let stats = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")));
        // "pid (name) state ppid ...": nice is the 19th field (proc_pid_stat(5)).
        let stats: Vec<String> = stats.filter_map(Result::ok).collect();
        let of_it = stats.iter().find_map(|stat| {
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            (name == thread).then(|| rest.split_whitespace().nth(16))?
        });
        of_it.map(|nice| nice.parse::<i32>().unwrap())
    };
    // A thread takes its name, and how nice it is, when it first runs.
    let own = nice("aquifer").unwrap();
    for thread in ["pool tank", "nfs-0"] {
        place.wait_for(|| nice(thread) == Some(own));
    }
    for thread in ["nfs-lobby", "api", "api-tcp"] {
        place.wait_for(|| nice(thread) == Some((own + 10).min(19)));
    }
}

/// The API of a place, over TCP.
pub struct Far<'a> {
    place: &'a Place,
    url: String,
    certificate: String,
}

impl Far<'_> {
    pub fn new(place: &Place, port: u16) -> Far<'_> {
        let url = format!("https://127.0.0.1:{port}");
        Far { place, url, certificate: place.text("state/api/certificate.pem") }
    }

    /// Another machine's API, asked from this place.
    pub fn at(place: &Place, url: String, certificate: String) -> Far<'_> {
        Far { place, url, certificate }
    }

    pub fn ask(&self, token: &str, words: &[&str]) -> Said {
        let (url, certificate) = (self.url.as_str(), self.certificate.as_str());
        let start = ["--api", url, "--api-certificate", certificate, "--api-token", token];
        self.place.ask(&[&start, words].concat())
    }

    #[track_caller]
    pub fn must(&self, token: &str, words: &[&str]) -> String {
        let said = self.ask(token, words);
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
        said.out
    }

    #[track_caller]
    pub fn refused(&self, token: &str, words: &[&str], why: &str) {
        let said = self.ask(token, words);
        assert_eq!((said.code, said.err), (1, format!("aquifer: {why}\n")), "{words:?}");
    }

    /// Keeps a token in a file.
    pub fn keep(&self, name: &str, token: &str) -> String {
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(self.place.path(name));
        file.as_mut().unwrap().write_all(token.as_bytes()).unwrap();
        self.place.text(name)
    }
}

const NO_TOKEN: &str = "this is not the token of this daemon";

/// Roles and revocation while the daemon runs, over the socket and over TCP.
#[test]
fn tokens_have_roles_and_change_without_a_restart() {
    let place = Place::new();
    let (_daemon, port) = serve(&place);
    let (image, far) = (place.image("a.img"), Far::new(&place, port));
    let first = place.text("state/api/token");
    far.must(&first, &["pool", "create", "tank", &image]);
    // Made over the socket, and over TCP by an administrator.
    let made = place.ask(&["token", "create", "ci", "--role", "operator", "--expires", "1d"]);
    assert!(made.err.contains("ci has the role operator until"), "{made:?}");
    let operator = far.keep("operator", &made.out);
    let made = far.must(&first, &["token", "create", "eye", "--role", "read"]);
    let reader = far.keep("reader", &made);

    far.must(&reader, &["pool", "list"]);
    far.must(&operator, &["create", "tank/vms"]);
    let why = "token eye has the role read; this needs operator";
    far.refused(&reader, &["create", "tank/more"], why);
    let why = "token ci has the role operator; this needs admin";
    far.refused(&operator, &["set", "sharenfs=on", "tank"], why);
    far.refused(&operator, &["destroy", "-f", "tank/vms"], why);
    far.refused(&operator, &["token", "create", "me", "--role", "admin"], why);
    let log = place.log();
    let told = |words: &[&str]| log.lines().any(|line| words.iter().all(|w| line.contains(w)));
    assert!(
        told(&["api.refused", r#"token="eye""#, "peer=127.0.0.1", r#"path="/v1/datasets""#]),
        "{log}"
    );
    assert!(told(&[
        "api.act",
        "caller=token ci from 127.0.0.1",
        r#"path="/v1/datasets" status=200"#
    ]));
    assert!(told(&["api.act", "caller=uid 0", r#"path="/v1/tokens" status=200"#]), "{log}");

    far.must(&first, &["token", "revoke", "eye"]);
    far.refused(&reader, &["pool", "list"], NO_TOKEN);
    let listed = place.must(&["-H", "token", "list"]);
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(names, ["ci", "token"]);
}

#[test]
fn tokens_are_rotated_and_outlive_a_restart() {
    let place = Place::new();
    let (daemon, port) = serve(&place);
    let far = Far::new(&place, port);
    let list = &["pool", "list"][..];
    let first = place.text("state/api/token");
    let made = |name| far.must(&first, &["token", "create", name, "--role", "operator"]);
    let (made, gone) = (far.keep("made", &made("ci")), far.keep("gone", &made("gone")));
    // Both are valid for an hour. Once more: the earlier one ends at once.
    let kept = far.must(&first, &["token", "rotate", "ci", "--keep", "1h"]);
    let kept = far.keep("kept", &kept);
    far.must(&made, list);
    far.must(&kept, list);
    let last = far.keep("last", &far.must(&first, &["token", "rotate", "ci"]));
    far.refused(&kept, list, NO_TOKEN);
    far.must(&last, list);
    far.must(&first, &["token", "revoke", "gone"]);

    // The file's token is rotated as any other, and by hand.
    let old = far.keep("old", &std::fs::read_to_string(&first).unwrap());
    let new = far.must(&first, &["token", "rotate", "token"]);
    assert_eq!(std::fs::read_to_string(&first).unwrap(), new.trim());
    far.refused(&old, list, NO_TOKEN);
    far.must(&first, list);
    far.keep("state/api/token", &"9".repeat(64));
    far.must(&first, list);

    // A restart changes nothing.
    daemon.kill9();
    let config = place.text("config");
    let _daemon = place.spawn_as("state", &[], &[], &["--config", &config]);
    place.wait_for(|| place.ask(list).code == 0);
    far.must(&last, list);
    far.refused(&gone, list, NO_TOKEN);
}

/// A caller that hangs up does not keep an act out of the log.
#[test]
fn an_act_is_logged_also_if_nobody_hears_its_end() {
    let place = Place::new();
    let image = place.image("a.img");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    for number in 0..20 {
        let body = format!("{{\"name\": \"tank/{number}\"}}");
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        let head = "POST /v1/datasets HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(number % 5));
    }
    // Acts take turns: when this one is done, all earlier ones are.
    place.must(&["create", "tank/last"]);
    let made = place.json(&["list", "-r", "tank"]).as_array().unwrap().len() - 1;
    assert!(made > 5, "nothing was read before the hang-up: this tests nothing");
    let is_act = |line: &&str| line.contains("api.act") && line.contains(r#"path="/v1/datasets""#);
    place.wait_for(|| place.log().lines().filter(is_act).count() >= made);
}
