//! Programs that are NFS clients themselves, run inside the server's namespace: libnfs's tools,
//! `qemu-img` and `qemu-io` with QEMU's nfs driver, `showmount`, `rpcinfo`.
//!
//! Invariant: a call returns the program's outcome whatever its exit status, because a refusal is a
//! finding too. Only a program that is missing or hangs is an error. [`Call::done`] turns a refusal
//! into an error.

mod libnfs;
mod qemu;

use std::time::Duration;

use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Outcome};

pub use qemu::Bench;

use crate::Result;

/// Clients of the server in a namespace.
#[derive(Clone, Debug)]
pub struct Clients {
    netns: Option<NetNs>,
    limit: Duration,
}

impl Clients {
    /// Clients in `netns` (or on this machine), each killed after `limit`.
    #[must_use]
    pub fn new(netns: Option<&NetNs>, limit: Duration) -> Self {
        Self { netns: netns.cloned(), limit }
    }

    /// `showmount ARGS...` (XCP-ng and Proxmox call `--no-headers -e HOST`).
    ///
    /// # Errors
    /// [`crate::Error::MissingTool`], [`crate::Error::Timeout`].
    pub fn showmount(&self, args: &[&str]) -> Result<Outcome> {
        self.run("showmount", args)
    }

    /// `rpcinfo ARGS...` (XCP-ng calls `-s HOST`, Proxmox `-T tcp HOST nfs 4`).
    ///
    /// # Errors
    /// [`crate::Error::MissingTool`], [`crate::Error::Timeout`].
    pub fn rpcinfo(&self, args: &[&str]) -> Result<Outcome> {
        self.run("rpcinfo", args)
    }

    fn run<A: AsRef<std::ffi::OsStr>>(&self, tool: &str, args: &[A]) -> Result<Outcome> {
        let invocation = Invocation::tool(tool, "clients")?.args(args);
        match &self.netns {
            Some(netns) => invocation.inside(netns).run(self.limit),
            None => invocation.run(self.limit),
        }
    }
}

/// A call that must succeed.
pub trait Call {
    /// The outcome if the exit status is 0.
    ///
    /// # Errors
    /// [`crate::Error::Failed`] with the program's output.
    fn done(self) -> Result<Outcome>;
}

impl Call for Result<Outcome> {
    fn done(self) -> Result<Outcome> {
        let outcome = self?;
        if outcome.status.success() {
            return Ok(outcome);
        }
        let what = format!("client ({})", outcome.status);
        Err(crate::Error::Failed { what, said: outcome.said() })
    }
}
