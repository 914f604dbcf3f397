//! Attacks on TLS ports: the API, and NFS over TLS. Also the control, which goes elsewhere.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aquifer_client::starttls::ask;
use aquifer_rig::wire::SERVER as TLS_NAME;
use aquifer_rig::wire::call::Source;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

use super::strangers::{HELD_MAX, answer, null};
use super::{Attacker, Field, Held, Pace};
use crate::attacks::http::session;
use crate::attacks::place::{nfs, stranger};
use crate::attacks::watch::knock;

/// Attackers of the API.
pub(super) const API: [Attacker; 3] = [silent, half, wrong];
/// Attackers of NFS over TLS.
pub(super) const TLS: [Attacker; 3] = [begun, whole, torn];
/// The control's attackers.
pub(super) const ELSEWHERE: [Attacker; 3] = [connections, datagrams, arithmetic];

/// Connections that send nothing, from one machine and from many.
fn silent(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(1000), |number| {
        let own = if number % 2 == 0 { 4 } else { number };
        held.add(knock(Source::user(stranger(own)))?);
        Ok(1)
    });
}

/// Handshakes and requests that are begun and left.
fn half(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    let Some(hello) = hello(&field.place.api.0, TLS_NAME) else { return };
    field.repeat(Pace::of(200), |number| {
        let mut stream = knock(Source::user(stranger(number)))?;
        if number % 4 == 0 {
            let mut session = session(&field.place.api.0)?;
            let mut tls = Stream::new(&mut session, &mut stream);
            tls.write_all(b"GET /pools HTTP/1.1\r\nHost: pool\r\nX: ")?;
            tls.flush()?;
        } else {
            stream.write_all(&hello)?;
        }
        held.add(stream);
        Ok(1)
    });
}

/// Wrong tokens, and none. The answer comes late, and the attacker does not wait for it.
fn wrong(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(100), |number| {
        let own = if number % 2 == 0 { 5 } else { number };
        let mut stream = knock(Source::user(stranger(own)))?;
        let mut session = session(&field.place.api.0)?;
        let mut tls = Stream::new(&mut session, &mut stream);
        let request = format!(
            "GET /pools HTTP/1.1\r\nHost: pool\r\nAuthorization: Bearer {number:064}\r\n\r\n"
        );
        tls.write_all(request.as_bytes())?;
        tls.flush()?;
        held.add(stream);
        Ok(1)
    });
}

/// Sends the same beginning of a handshake again and again: it costs the attacker nothing, and the
/// server a signature.
fn begun(field: &Field<'_>) {
    let Some(hello) = hello(&field.place.tls, TLS_NAME) else { return };
    let mut scrap = [0; 4096];
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(400), |number| {
        let own = if number % 2 == 0 { 6 } else { number };
        let mut stream = Source::user(stranger(own)).connect_abrupt(nfs())?;
        ask(&mut stream)?;
        stream.write_all(&hello)?;
        // The server has made its signature.
        answer(&mut stream, &mut scrap)?;
        if number % 2 == 0 {
            held.add(stream);
        }
        Ok(1)
    });
}

/// Complete handshakes, a call, and then garbage in place of records.
fn whole(field: &Field<'_>) {
    let mut scrap = [0; 4096];
    field.repeat(Pace::of(100), |number| {
        let mut stream = Source::user(stranger(number)).connect_abrupt(nfs())?;
        ask(&mut stream)?;
        let name = ServerName::try_from(TLS_NAME).map_err(io::Error::other)?;
        let config = Arc::clone(&field.place.tls);
        let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut tls = Stream::new(&mut session, &mut stream);
        tls.write_all(&null(number))?;
        tls.flush()?;
        let _ = tls.read(&mut scrap)?;
        stream.write_all(&scrap)?;
        Ok(1)
    });
}

/// Asks for TLS and sends something else, or a part of a handshake, or nothing.
fn torn(field: &Field<'_>) {
    let Some(hello) = hello(&field.place.tls, TLS_NAME) else { return };
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(500), |number| {
        let mut stream = Source::user(stranger(number)).connect_abrupt(nfs())?;
        ask(&mut stream)?;
        match number % 3 {
            0 => stream.write_all(&null(number))?,
            1 => stream.write_all(hello.get(..hello.len() / 2).unwrap_or_default())?,
            _ => {}
        }
        held.add(stream);
        Ok(1)
    });
}

/// The first message of a client.
fn hello(config: &Arc<ClientConfig>, name: &'static str) -> Option<Vec<u8>> {
    let name = ServerName::try_from(name).ok()?;
    let mut session = ClientConnection::new(Arc::clone(config), name).ok()?;
    let mut hello = Vec::new();
    session.write_tls(&mut hello).ok()?;
    Some(hello)
}

/// An address of no machine.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(10, 9, 200, 1);

fn connections(field: &Field<'_>) {
    let Ok(listener) = TcpListener::bind((NOWHERE, 0)) else { return };
    let Ok(to) = listener.local_addr() else { return };
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(2000), |number| {
        held.add(Source::user(stranger(number)).connect_abrupt(to)?);
        drop(listener.accept()?);
        Ok(1)
    });
}

fn datagrams(field: &Field<'_>) {
    let Ok(receiver) = UdpSocket::bind((NOWHERE, 0)) else { return };
    let Ok(to) = receiver.local_addr() else { return };
    let Ok(socket) = Source::user(stranger(7)).datagrams(to) else { return };
    let (message, mut scrap) = ([0; 200], [0; 512]);
    field.repeat(Pace::of(5000), |_| {
        socket.send(&message)?;
        receiver.recv(&mut scrap).map(|_| 1)
    });
}

/// Uses as much of a processor as there is.
fn arithmetic(field: &Field<'_>) {
    let mut value = 1_u64;
    while !field.over.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            value = std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    }
}
