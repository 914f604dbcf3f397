//! Tests of the API over TCP: callers who show no token are in nobody's way.

use std::net::{IpAddr, TcpStream as StdStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use aquifer_api::{CreateToken, Role, RotateToken};
use axum::extract::Extension;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::guests::{ADDRESS_CONNECTIONS_MAX, CONNECTIONS_MAX};
use super::*;

mod browsers;
mod proofs;

const SHORT: Patience = Patience {
    token: Duration::from_millis(1500),
    idle: Duration::from_secs(3),
    wrong: Duration::from_millis(300),
};

struct Served {
    address: SocketAddr,
    token: String,
    tokens: Arc<Tokens>,
    connector: TlsConnector,
    keys: tempfile::TempDir,
    /// How often `/act` was carried out.
    acts: Arc<AtomicUsize>,
}

fn serve_here() -> Served {
    let keys = tempfile::tempdir().unwrap();
    let opened = Keys::open(keys.path(), &[], &[]).unwrap();
    let token = aquifer_api::keys::read_token(&keys.path().join("token")).unwrap();
    let tokens = Arc::new(Tokens::open(keys.path()));
    let connector = connector(keys.path());
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let doorways: Vec<Doorway> = vec![Box::pin(std::future::ready(listener))];
    let certificate = Arc::new(opened.certificate);
    let who = async |Extension(caller): Extension<Caller>| match caller.needs(Role::Operator) {
        Ok(()) => format!("{caller} is here").into_response(),
        Err(refused) => refusal(refused),
    };
    let acts: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&acts);
    let act = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let router = Router::new().route("/daemon", get(who)).route("/act", post(act));
    let door = Door::new(Arc::clone(&tokens), SHORT);
    tokio::spawn(serve_with(doorways, certificate, router, door, std::future::pending()));
    Served { address, token, tokens, connector, keys, acts }
}

/// A client that knows the certificate in a directory.
fn connector(keys: &Path) -> TlsConnector {
    let tls = ClientConfig::builder().with_root_certificates(roots(keys));
    TlsConnector::from(Arc::new(tls.with_no_client_auth()))
}

fn roots(keys: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in aquifer_api::keys::read_certificates(&keys.join("certificate.pem")).unwrap()
    {
        roots.add(certificate).unwrap();
    }
    roots
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

impl Served {
    /// A connection from one of this machine's addresses.
    async fn connect(&self, from: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn tls(&self, from: IpAddr) -> io::Result<Tls> {
        self.tls_by(&self.connector, from).await
    }

    async fn tls_by(&self, connector: &TlsConnector, from: IpAddr) -> io::Result<Tls> {
        let name = ServerName::try_from("localhost").unwrap();
        connector.connect(name, self.connect(from).await).await
    }

    async fn ask(&self, from: IpAddr, token: &str) -> io::Result<String> {
        self.ask_by(&self.connector, from, token).await
    }

    async fn ask_by(&self, by: &TlsConnector, from: IpAddr, token: &str) -> io::Result<String> {
        let mut stream = self.tls_by(by, from).await?;
        let request = format!(
            "GET /daemon HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn at(number: u8) -> IpAddr {
    [127, 0, 1, number].into()
}

/// How long until the server closes.
async fn closed(mut stream: impl AsyncRead + Unpin) -> Duration {
    let begun = Instant::now();
    let mut scrap = [0; 64];
    while !matches!(stream.read(&mut scrap).await, Ok(0) | Err(_)) {}
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_without_a_token_shut_nobody_out() {
    let served = serve_here();
    let mut idle = Vec::new();
    // From many addresses, with TLS and without, more than there is room for.
    for number in 0..20 {
        for _ in 0..ADDRESS_CONNECTIONS_MAX / 2 {
            idle.push(served.connect(at(number)).await);
        }
    }
    assert!(idle.len() > CONNECTIONS_MAX);
    let mut shaken = Vec::new();
    for number in 100..120 {
        shaken.push(served.tls(at(number)).await.unwrap());
    }
    let begun = Instant::now();
    let answer = served.ask(at(200), &served.token).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("is here"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // They are closed, all of them, however far they have come.
    for stream in idle {
        assert!(closed(stream).await < 3 * SHORT.token);
    }
    for stream in shaken {
        assert!(closed(stream).await < 3 * SHORT.token);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_has_a_part_of_all() {
    let served = serve_here();
    let held: Vec<StdStream> = {
        let mut held = Vec::new();
        for _ in 0..ADDRESS_CONNECTIONS_MAX {
            held.push(served.connect(at(1)).await.into_std().unwrap());
        }
        held
    };
    // The administrator is at that very address: the oldest there goes.
    assert!(served.ask(at(1), &served.token).await.unwrap().contains("here"));
    let mut held = held.into_iter();
    let oldest = TcpStream::from_std(held.next().unwrap()).unwrap();
    assert!(closed(oldest).await < SHORT.token / 2);
    // Where all have shown the token, the next one is closed.
    let mut known = Vec::new();
    for _ in 0..ADDRESS_CONNECTIONS_MAX {
        let mut stream = served.tls(at(3)).await.unwrap();
        let request = format!(
            "GET /daemon HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            served.token
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        known.push(stream);
    }
    assert!(closed(served.connect(at(3)).await).await < SHORT.token / 2);
    drop(known);
}

/// Header lines in drops are no token, and a wrong one is answered late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_drips_or_guesses_is_not_waited_for() {
    let served = serve_here();
    let mut drips = served.tls(at(1)).await.unwrap();
    let begun = Instant::now();
    let dripped = async {
        drips.write_all(b"GET /daemon HTTP/1.1\r\n").await?;
        for _ in 0..100 {
            drips.write_all(b"x: y\r\n").await?;
            drips.flush().await?;
            sleep(Duration::from_millis(100)).await;
        }
        io::Result::Ok(())
    };
    assert!(dripped.await.is_err(), "it was let drip");
    assert!(begun.elapsed() < 3 * SHORT.token, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let answer = served.ask(at(2), "0123456789abcdef").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(begun.elapsed() >= SHORT.wrong);
}

/// A caller who has shown the token stays, as long as anything moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_known_stays_until_nothing_moves() {
    let served = serve_here();
    let mut stream = served.tls(at(1)).await.unwrap();
    let request = format!(
        "GET /daemon HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        served.token
    );
    let mut answer = [0; 4096];
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(stream.read(&mut answer).await.unwrap() > 0);
        sleep(SHORT.token + Duration::from_millis(300)).await;
    }
    let took = closed(stream).await;
    assert!(took < 2 * SHORT.idle, "{took:?}");
}

/// Each request is judged by what holds when it comes, on a connection too that was let in before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_made_rotated_and_revoked_under_a_running_server() {
    let served = serve_here();
    let ask = async |token: &str| served.ask(at(1), token).await.unwrap();
    let create = |name: &str, role| CreateToken {
        name: name.into(),
        role,
        expires_s: None,
        certificates: Vec::new(),
        datasets: Vec::new(),
    };
    let made = served.tokens.create(&create("ci", Role::Operator)).unwrap().token;
    assert!(ask(&made).await.ends_with("token ci from 127.0.1.1 is here"));
    assert!(ask(&served.token).await.ends_with("token token from 127.0.1.1 is here"));
    let reader = served.tokens.create(&create("eye", Role::Read)).unwrap().token;
    let refused = ask(&reader).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("token eye has the role read; this needs operator"), "{refused}");

    let mut stream = served.tls(at(2)).await.unwrap();
    let request =
        format!("GET /daemon HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {made}\r\n\r\n");
    let mut statuses = Vec::new();
    let mut answer = [0; 4096];
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let length = stream.read(&mut answer).await.unwrap();
        statuses.push(String::from_utf8_lossy(&answer[9..length.min(12)]).into_owned());
        let keep = RotateToken { keep_s: 0, expires_s: None, certificates: None };
        if statuses.len() == 1 {
            let rotated = served.tokens.rotate("ci", &keep).unwrap().token;
            assert!(ask(&rotated).await.starts_with("HTTP/1.1 200"));
        }
    }
    assert_eq!(statuses, ["200", "401"]);

    served.tokens.revoke("eye").unwrap();
    assert!(ask(&reader).await.contains("not the token"));
    // The file's token is another from the moment that the file is.
    let other = "f".repeat(64);
    std::fs::write(served.keys.path().join("token"), &other).unwrap();
    assert!(ask(&other).await.starts_with("HTTP/1.1 200"));
    assert!(ask(&served.token).await.starts_with("HTTP/1.1 401"));
}

/// That a token has expired is said to its bearer alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_is_answered_so_and_as_late_as_a_wrong_one() {
    let served = serve_here();
    let request = CreateToken {
        name: "ci".into(),
        role: Role::Admin,
        expires_s: Some(now_s() + 1),
        certificates: Vec::new(),
        datasets: Vec::new(),
    };
    let made = served.tokens.create(&request).unwrap().token;
    sleep(Duration::from_millis(1100)).await;
    let begun = Instant::now();
    let answer = served.ask(at(1), &made).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("has expired"), "{answer}");
    assert!(begun.elapsed() >= SHORT.wrong);
    assert!(!served.ask(at(1), &"0".repeat(64)).await.unwrap().contains("expired"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_shown_to_the_next_connection() {
    let served = serve_here();
    let old = served.tls(at(1)).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    Keys::open(other.path(), &[], &[]).unwrap();
    for name in ["certificate.pem", "key.pem"] {
        std::fs::copy(other.path().join(name), served.keys.path().join(name)).unwrap();
    }
    assert!(served.tls(at(1)).await.is_err(), "the old certificate is shown");
    let renewed = Served { connector: connector(other.path()), ..served };
    assert!(renewed.ask(at(1), &renewed.token).await.unwrap().contains("is here"));
    drop(old);
}
