//! Mail and webhooks over TLS, with a certificate of an authority of one's own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends by ending")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use aquifer_alerts::{Alerts, Mail, MailTls, Settings, Shape, Webhook};
use aquifer_api::Severity;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Lines that a server heard.
type Heard = Arc<Mutex<Vec<String>>>;

/// A certificate for `localhost`, in a file, and a server's configuration with it.
fn certificate(dir: &Path) -> (PathBuf, Arc<ServerConfig>) {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let path = dir.join("ca.pem");
    fs::write(&path, own.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key);
    (path, Arc::new(config.unwrap()))
}

fn serve(talk: impl Fn(TcpStream, &Heard) -> Option<()> + Send + 'static) -> (u16, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Heard::default();
    let into = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = talk(stream, &into);
        }
    });
    (port, heard)
}

/// A line of one who speaks over `stream`.
fn line(stream: &mut impl Read, heard: &Heard) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
    heard.lock().unwrap().push(line.clone());
    Some(line)
}

/// Mail after STARTTLS (RFC 3207), with a login (RFC 4954).
fn smtp(mut stream: TcpStream, tls: &Arc<ServerConfig>, heard: &Heard) -> Option<()> {
    stream.write_all(b"220 test ESMTP\r\n").ok()?;
    line(&mut stream, heard)?;
    stream.write_all(b"250-test\r\n250 STARTTLS\r\n").ok()?;
    line(&mut stream, heard).filter(|line| line == "STARTTLS")?;
    stream.write_all(b"220 go on\r\n").ok()?;
    let tls = ServerConnection::new(Arc::clone(tls)).ok()?;
    let mut stream = StreamOwned::new(tls, stream);
    loop {
        let line = line(&mut stream, heard)?;
        let answer: &[u8] = match line.split(' ').next()? {
            "EHLO" => b"250-test\r\n250 AUTH PLAIN\r\n",
            "AUTH" => b"235 hello\r\n",
            "DATA" => b"354 go on\r\n",
            "QUIT" => b"221 bye\r\n",
            "MAIL" | "RCPT" | "." => b"250 OK\r\n",
            _ => continue,
        };
        stream.write_all(answer).ok()?;
        if line == "QUIT" {
            return Some(());
        }
    }
}

fn https(stream: TcpStream, tls: &Arc<ServerConfig>, heard: &Heard) -> Option<()> {
    let tls = ServerConnection::new(Arc::clone(tls)).ok()?;
    let mut reader = BufReader::new(StreamOwned::new(tls, stream));
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        heard.lock().unwrap().push(line.trim_end().to_string());
    }
    let stream = reader.get_mut();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn mail_and_webhooks_go_over_tls_and_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, tls) = certificate(dir.path());
    let of_smtp = Arc::clone(&tls);
    let (mail_port, mail_heard) = serve(move |stream, heard| smtp(stream, &of_smtp, heard));
    let (hook_port, hook_heard) = serve(move |stream, heard| https(stream, &tls, heard));
    let mail = Mail {
        name: "mine".into(),
        severity: Severity::Warning,
        server: format!("localhost:{mail_port}"),
        tls: MailTls::Starttls,
        ca: ca.clone(),
        from: "aquifer@example.com".into(),
        to: vec!["admin@example.com".into()],
        user: "me".into(),
        password_file: secret(dir.path(), "password", "open sesame\n"),
    };
    let hook = Webhook {
        url_file: std::path::PathBuf::new(),
        name: "hook".into(),
        severity: Severity::Warning,
        url: format!("https://localhost:{hook_port}/secret/path"),
        shape: Shape::Json,
        ca,
        token_file: secret(dir.path(), "token", "t0ken\n"),
    };
    // The same servers, with no authority that vouches for them.
    let strangers = (
        Mail { name: "mail-x".into(), ca: PathBuf::new(), ..mail.clone() },
        Webhook { name: "hook-x".into(), ca: PathBuf::new(), ..hook.clone() },
    );
    let settings = Settings {
        mail: vec![mail, strangers.0],
        webhook: vec![hook, strangers.1],
        ..Settings::default()
    };
    settings.check().unwrap();
    let alerts = Alerts::open(settings, dir.path(), "store").unwrap();
    let tested = alerts.test(None).unwrap();
    let error = |name: &str| tested.iter().find(|one| one.name == name).unwrap().error.clone();
    assert_eq!((error("mine"), error("hook")), (None, None));
    assert!(error("mail-x").is_some() && error("hook-x").is_some());
    let why = error("hook-x").unwrap();
    assert!(why.contains("localhost") && !why.contains("secret"), "{why}");

    let mail = mail_heard.lock().unwrap().clone();
    // "\0me\0open sesame"
    assert!(mail.contains(&"AUTH PLAIN AG1lAG9wZW4gc2VzYW1l".to_string()), "{mail:?}");
    assert!(mail.iter().any(|line| line == "Subject: [aquifer store] test"), "{mail:?}");
    let hook = hook_heard.lock().unwrap().clone();
    assert!(hook.contains(&"POST /secret/path HTTP/1.1".to_string()), "{hook:?}");
    assert!(hook.iter().any(|line| line.to_lowercase() == "authorization: bearer t0ken"));
    let all = hook.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(all, 1, "a server that nobody vouches for hears nothing");
}

#[test]
fn a_secret_that_others_can_read_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let password_file = secret(dir.path(), "password", "x\n");
    fs::set_permissions(&password_file, fs::Permissions::from_mode(0o644)).unwrap();
    let mail = Mail {
        name: String::new(),
        severity: Severity::Warning,
        server: "localhost:1".into(),
        tls: MailTls::Tls,
        ca: PathBuf::new(),
        from: "aquifer@example.com".into(),
        to: vec!["admin@example.com".into()],
        user: "me".into(),
        password_file,
    };
    let settings = Settings { mail: vec![mail], ..Settings::default() };
    let alerts = Alerts::open(settings, dir.path(), "store").unwrap();
    let tested = alerts.test(Some("mail-1")).unwrap();
    assert!(tested[0].error.as_ref().unwrap().contains("others can read it"), "{tested:?}");
    assert_eq!(alerts.test(Some("nobody")), None);
}
