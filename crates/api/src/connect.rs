//! Advice on what to type on a hypervisor.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// The user of a datastore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// XCP-ng, XenServer.
    XcpNg,
    /// VMware ESXi.
    Esxi,
    /// Proxmox VE.
    Proxmox,
    /// libvirt, with images on a mount.
    Libvirt,
    /// QEMU's own driver, `nfs://`.
    Qemu,
    /// Any Linux.
    Linux,
}

/// `GET /connect?dataset=..&hypervisor=..&host=..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectQuery {
    /// Full name of the dataset.
    pub dataset: String,
    /// Which hypervisor.
    pub hypervisor: Hypervisor,
    /// The server's name or address, as the hypervisor reaches it; else the server's host name.
    #[serde(default)]
    pub host: Option<String>,
}

request!(Get "/connect", Read, ConnectQuery -> ConnectAdvice);

/// Lines to type, and notes about them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectAdvice {
    /// The lines.
    pub lines: Vec<String>,
    /// Notes.
    pub why: Vec<String>,
}

impl Hypervisor {
    /// All, as the command line lists them.
    pub const ALL: [Hypervisor; 6] = [
        Hypervisor::XcpNg,
        Hypervisor::Esxi,
        Hypervisor::Proxmox,
        Hypervisor::Libvirt,
        Hypervisor::Qemu,
        Hypervisor::Linux,
    ];

    /// The name in the API and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Hypervisor::XcpNg => "xcp-ng",
            Hypervisor::Esxi => "esxi",
            Hypervisor::Proxmox => "proxmox",
            Hypervisor::Libvirt => "libvirt",
            Hypervisor::Qemu => "qemu",
            Hypervisor::Linux => "linux",
        }
    }
}
