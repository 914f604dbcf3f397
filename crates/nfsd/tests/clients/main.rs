//! Foreign clients and the portmapper, in network namespaces of their own, where ports 111 and 2049
//! are free: `examples/serve` is the server. Needs root and `scripts/setup-deps.sh clients guest`.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

mod kernel;
mod libnfs;
mod portmapper;
mod qemu;

use std::time::Duration;

use aquifer_conformance::clients::Clients;
use aquifer_rig::netns::NetNs;
use aquifer_rig::process::Invocation;
use aquifer_rig::server::Server;
use aquifer_rig::work::{Scratch, WorkDir};

const SOON: Duration = Duration::from_secs(30);

/// A server in a namespace, with clients there.
struct Served {
    server: Server,
    clients: Clients,
    netns: NetNs,
    scratch: Scratch,
}

impl Served {
    /// Not started yet.
    fn new(name: &str) -> Self {
        Self::with(name, None)
    }

    /// Each start takes a snapshot with a name that begins so.
    fn with(name: &str, snapshot: Option<&str>) -> Self {
        let scratch = WorkDir::open().unwrap().scratch(name).unwrap();
        let netns = NetNs::new(&scratch).unwrap();
        let image = scratch.join("image");
        let args = [image.to_str().unwrap(), "[::]:2049", "[::]:111", "2"];
        let args = args.into_iter().chain(snapshot);
        let invocation = Invocation::new(example()).args(args);
        let server = Server::new(invocation, Some(&netns), 2049, &scratch.join("log"));
        let clients = Clients::new(Some(&netns), Duration::from_secs(60));
        Served { server, clients, netns, scratch }
    }

    fn started(name: &str) -> Self {
        let mut this = Self::new(name);
        this.server.start(SOON).unwrap();
        this
    }

    fn url(path: &str) -> String {
        format!("nfs://127.0.0.1/vms/{path}")
    }

    /// The server's output says that it stopped, and without a panic.
    fn stop(&mut self) {
        let status = self.server.stop(SOON).unwrap();
        let said = self.server.said();
        assert!(status.success() && said.contains("panics: 0"), "{status} {said}");
    }
}

/// `examples/serve`, which lies beside the directory of the tests' programs.
fn example() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let example = profile.join("examples/serve");
    assert!(example.is_file(), "{} is built with the tests", example.display());
    example
}
