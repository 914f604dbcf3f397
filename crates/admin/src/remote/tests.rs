//! Who shows no token is in nobody's way.

use std::net::{IpAddr, TcpStream as StdStream};

use axum::routing::get;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::guests::{ADDRESS_CONNECTIONS_MAX, CONNECTIONS_MAX};
use super::*;

const SHORT: Patience = Patience {
    token: Duration::from_millis(1500),
    idle: Duration::from_secs(3),
    wrong: Duration::from_millis(300),
};

struct Served {
    address: SocketAddr,
    token: String,
    connector: TlsConnector,
    _keys: tempfile::TempDir,
}

fn serve_here() -> Served {
    let keys = tempfile::tempdir().unwrap();
    let opened = Keys::open(keys.path(), &[], &[]).unwrap();
    let token = opened.token.clone();
    let mut roots = RootCertStore::empty();
    for certificate in keys::read_certificates(&keys.path().join("certificate.pem")).unwrap() {
        roots.add(certificate).unwrap();
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(tls));
    let listeners = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let address = listeners[0].local_addr().unwrap();
    let router = Router::new().route("/daemon", get(async || "here"));
    tokio::spawn(serve_with(listeners, opened, router, SHORT, std::future::pending()));
    Served { address, token, connector, _keys: keys }
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
        let name = ServerName::try_from("localhost").unwrap();
        self.connector.connect(name, self.connect(from).await).await
    }

    async fn ask(&self, from: IpAddr, token: &str) -> io::Result<String> {
        let mut stream = self.tls(from).await?;
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
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
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

/// Who has shown the token stays, as long as anything moves.
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
