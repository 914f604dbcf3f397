//! Whoever has a token: each role holds connections, asks for much, sends what nobody wants, and
//! tries what it may not.

use std::io::Write;

use aquifer_rig::wire::call::Source;
use rustls::Stream;

use super::{Attacker, Field, Held, Pace};
use crate::attacks::grounds::{LAB, lab_host};
use crate::attacks::http::{Request, session};
use crate::attacks::place::POOL;
use crate::attacks::watch::knock;

/// Callers of the API.
pub(super) const TOKENS: [Attacker; 3] = [slow, curious, forbidden];
/// Senders of streams.
pub(super) const SENDERS: [Attacker; 3] = [unknown_streams, begun_streams, rubbish];

/// A monitor's connections, each with a request that does not end.
fn slow(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    let token = &field.place.grounds.tokens.metrics;
    field.repeat(Pace::of(20), |number| {
        let mut stream = knock(Source::user(lab_host(number % 8)))?;
        let mut session = session(&field.place.api.0)?;
        let mut tls = Stream::new(&mut session, &mut stream);
        let request = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\nX: ");
        tls.write_all(request.as_bytes())?;
        tls.flush()?;
        held.add(stream);
        Ok(1)
    });
}

/// Questions that take the daemon long.
fn curious(field: &Field<'_>) {
    let token = &field.place.grounds.tokens.read;
    let paths = [
        format!("/v1/snapshots?name={}&used=true", LAB.replace('/', "%2F")),
        format!("/v1/diff?from={}%40lab0", LAB.replace('/', "%2F")),
        format!("/v1/pools/{POOL}/history"),
        format!("/v1/pools/{POOL}/events"),
        "/v1/locks".to_owned(),
        "/v1/datasets".to_owned(),
    ];
    field.repeat(Pace::of(20), |number| {
        let path = paths.iter().cycle().nth(number as usize % paths.len());
        let path = path.map(String::as_str).unwrap_or_default();
        let request = Request::get(path).by(token);
        request.send_from(Source::user(lab_host(number % 8)), &field.place.api.0).map(|_| 1)
    });
}

/// Acts that a role does not have, in words that could mean more than a name.
fn forbidden(field: &Field<'_>) {
    let tokens = &field.place.grounds.tokens;
    let tokens = [&tokens.metrics, &tokens.receive, &tokens.read, &tokens.operator];
    let acts = [
        ("/v1/snapshots/destroy", r#"{"confirm":"tank/vms@%","names":["tank/vms@%"]}"#),
        (
            "/v1/snapshots/destroy",
            r#"{"confirm":"tank/vms@before-1","names":["tank/vms@before-1"]}"#,
        ),
        ("/v1/datasets/destroy", r#"{"name":"tank/vms","confirm":"tank/vms","recursive":true}"#),
        ("/v1/datasets/rollback", r#"{"snapshot":"tank/vms@before-1","force":true}"#),
        ("/v1/pools/tank/destroy", r#"{"confirm":"tank"}"#),
    ];
    field.repeat(Pace::of(20), |number| {
        let number = number as usize;
        let Some((path, body)) = acts.get(number % acts.len()) else { return Ok(0) };
        let Some(token) = tokens.get(number / acts.len() % tokens.len()) else { return Ok(0) };
        let request = Request::post(path, body.as_bytes()).by(token);
        request.send_from(Source::user(lab_host(1)), &field.place.api.0).map(|_| 1)
    });
}

/// Parts of streams that do not exist, of which most of the body comes and the rest does not.
fn unknown_streams(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    let token = &field.place.grounds.tokens.receive;
    let body = vec![7; PART_BYTES];
    field.repeat(Pace::of(20), |number| {
        let mut stream = knock(Source::user(lab_host(number % 8)))?;
        let mut session = session(&field.place.api.0)?;
        let mut tls = Stream::new(&mut session, &mut stream);
        let path = format!("/v1/receive/{number}");
        let head = Request::post(&path, &body).by(token).head();
        tls.write_all(head.as_bytes())?;
        tls.write_all(body.get(..PART_BYTES - 1).unwrap_or_default())?;
        tls.flush()?;
        held.add(stream);
        Ok(1)
    });
}

/// Streams by ever new senders, into new names and into copies, that are begun and left.
fn begun_streams(field: &Field<'_>) {
    let token = &field.place.grounds.tokens.receive;
    field.repeat(Pace::of(20), |number| {
        let body = format!(
            r#"{{"name":"tank/copy{}","sender":"made-up-{number}","resumable":true}}"#,
            number % 32
        );
        let request = Request::post("/v1/receive", body.as_bytes()).by(token);
        request.send_from(Source::user(lab_host(2)), &field.place.api.0).map(|_| 1)
    });
}

/// Streams with parts of rubbish, and their ends.
fn rubbish(field: &Field<'_>) {
    let token = &field.place.grounds.tokens.receive;
    let part = vec![0x5a; 64 << 10];
    field.repeat(Pace::of(10).with(3), |number| {
        let send = |request: Request<'_>| {
            request.by(token).send_from(Source::user(lab_host(3)), &field.place.api.0)
        };
        let body = format!(r#"{{"name":"tank/rubbish{}"}}"#, number % 4);
        let (_, said) = send(Request::post("/v1/receive", body.as_bytes()))?;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let Some(id) = said.get("id").and_then(serde_json::Value::as_u64) else { return Ok(1) };
        send(Request::post(&format!("/v1/receive/{id}"), &part))?;
        send(Request::post(&format!("/v1/receive/{id}/end"), b"{}"))?;
        Ok(3)
    });
}

/// Most connections that an attacker holds: more than the API has places.
const HELD_MAX: usize = 400;
/// The largest part of a stream.
const PART_BYTES: usize = 4 << 20;
