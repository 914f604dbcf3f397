//! Machines that no export names: they take nothing from the named ones.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use aquifer_conformance::Result;
use aquifer_conformance::clients::Call;
use aquifer_rig::netns::connect;
use aquifer_rig::process::Invocation;

use crate::place::{Aquifer, DATASET, SOON, Setup};

/// The machine's address on a network: a machine that calls it from there has the same address.
const NETWORK: &str = "10.9.0.1";

/// How many of the connections the server has ended.
fn ended(held: &[TcpStream]) -> usize {
    let is_open = |stream: &TcpStream| {
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    held.iter().filter(|stream| !is_open(stream)).count()
}

/// Idle connections: as many as a stranger likes to open.
#[test]
fn client_comes_in_while_a_stranger_holds_connections() -> Result<()> {
    let aquifer = Aquifer::start("neighbours", Setup::default())?;
    aquifer.must(&["set", "sharenfs=rw=127.0.0.1", DATASET])?;
    let address = ["addr", "add", &format!("{NETWORK}/24"), "dev", "lo"];
    Invocation::new("ip").args(address).inside(aquifer.netns()).check(SOON)?;
    let server = SocketAddr::new(NETWORK.parse().unwrap(), 2049);
    let open = || -> Result<u64> {
        let said = aquifer.must(&["--json", "nfsstat"])?;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        Ok(said["load"]["connections"].as_u64().unwrap())
    };
    let pid = aquifer.daemon()?.pid();
    let held: Result<Vec<TcpStream>> = (0..600).map(|_| connect(Some(pid), server)).collect();
    let held = held?;
    let begun = Instant::now();
    // Connections that the kernel has made and the server has not yet accepted count nowhere.
    while ended(&held) < 600 - 256 {
        assert!(begun.elapsed() < SOON, "{} ended, {} are open", ended(&held), open()?);
    }
    assert!(open()? <= 256, "{} connections are open", open()?);
    assert!(open()? > 200, "the newest of them are open: this tests nothing");
    aquifer.clients().nfs_ls(&aquifer.url("")).done()?;
    drop(held);
    let log = aquifer.daemon()?.said();
    let lines = log.lines().filter(|line| line.contains(NETWORK)).count();
    assert!(lines < 20, "{lines} lines tell of it");
    aquifer.finish()
}
