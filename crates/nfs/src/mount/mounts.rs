//! The mounts of all clients, for DUMP: a courtesy to people, kept in memory since the start.
//!
//! Invariants:
//! - A client's path is in the list once; the list stays within its limits, and the oldest mount
//!   goes first.

use std::collections::VecDeque;
use std::net::IpAddr;

use aquifer_rpc::xdr::EncodeBuf;
use parking_lot::Mutex;

use crate::export::{components, path_of};
use crate::limits::{MOUNT_PATH_BYTES_MAX, MOUNTS_MAX};
use crate::proto::mount::{MountBody, Name, Path};

/// The mounts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    mounts: VecDeque<(IpAddr, Vec<u8>)>,
    path_bytes: usize,
}

impl Mounts {
    /// Notes that `host` has mounted `directory`, a normalised path.
    pub(crate) fn add(&self, host: IpAddr, directory: Vec<u8>) {
        let mut list = self.list.lock();
        list.retain(|by, path| (by, path) != (host, &directory));
        list.path_bytes += directory.len();
        list.mounts.push_back((host, directory));
        while list.mounts.len() > MOUNTS_MAX || list.path_bytes > MOUNT_PATH_BYTES_MAX {
            let Some((_, path)) = list.mounts.pop_front() else { break };
            list.path_bytes -= path.len();
        }
    }

    /// Notes that `host` has unmounted `path`.
    pub(super) fn remove(&self, host: IpAddr, path: &[u8]) {
        let directory = path_of(components(path));
        self.list.lock().retain(|by, path| (by, path) != (host, &directory));
    }

    /// Notes that `host` has unmounted everything.
    pub(super) fn remove_all(&self, host: IpAddr) {
        self.list.lock().retain(|by, _| by != host);
    }

    /// Appends a `mountlist`, of one host if `only` is given.
    pub(super) fn encode(&self, only: Option<IpAddr>, to: &mut EncodeBuf) {
        let list = self.list.lock();
        let told = list.mounts.iter().filter(|(host, _)| only.is_none_or(|only| only == *host));
        for (host, directory) in told {
            let hostname = host.to_string();
            to.bool(true);
            to.put(&MountBody { hostname: Name(hostname.as_bytes()), directory: Path(directory) });
        }
        to.bool(false);
    }

    /// An upper bound of the bytes that [`Mounts::encode`] appends now.
    pub(super) fn encoded_bytes_max(&self) -> usize {
        let list = self.list.lock();
        4 + list.path_bytes + list.mounts.len() * MOUNT_BYTES_MAX
    }
}

impl List {
    fn retain(&mut self, keep: impl Fn(IpAddr, &Vec<u8>) -> bool) {
        self.mounts.retain(|(host, path)| keep(*host, path));
        self.path_bytes = self.mounts.iter().map(|(_, path)| path.len()).sum();
    }
}

/// An entry without its path's bytes: link, two length words, padding, the longest address.
const MOUNT_BYTES_MAX: usize = 4 + 4 + 40 + 4 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn listed(mounts: &Mounts) -> Vec<(IpAddr, String)> {
        let list = mounts.list.lock();
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        list.mounts.iter().map(|(host, path)| (*host, text(path))).collect()
    }

    #[test]
    fn a_mount_is_listed_once_and_until_unmounted() {
        let mounts = Mounts::default();
        mounts.add(host(1), b"/a".to_vec());
        mounts.add(host(2), b"/a".to_vec());
        mounts.add(host(1), b"/b/c".to_vec());
        mounts.add(host(1), b"/a".to_vec());
        let all = [(host(2), "/a"), (host(1), "/b/c"), (host(1), "/a")];
        assert_eq!(listed(&mounts), all.map(|(host, path)| (host, path.to_owned())));
        mounts.remove(host(1), b"//b/./c/");
        mounts.remove(host(3), b"/a");
        assert_eq!(listed(&mounts), [(host(2), "/a".into()), (host(1), "/a".into())]);
        mounts.remove_all(host(1));
        assert_eq!(listed(&mounts), [(host(2), "/a".into())]);
    }

    #[test]
    fn the_list_stays_within_its_limits_and_its_reply_within_its_estimate() {
        let mounts = Mounts::default();
        for number in 0..5_000 {
            let path = format!("/{number}{}", "x".repeat(number % 300));
            mounts.add("fd00:1234:5678:9abc:def0:1234:5678:9abc".parse().unwrap(), path.into());
            let list = mounts.list.lock();
            assert!(list.mounts.len() <= MOUNTS_MAX && list.path_bytes <= MOUNT_PATH_BYTES_MAX);
        }
        let last = listed(&mounts).pop().unwrap();
        assert!(last.1.starts_with("/4999"));
        let mut to = EncodeBuf::new();
        mounts.encode(None, &mut to);
        assert!(to.len() <= mounts.encoded_bytes_max());
        mounts.remove_all(last.0);
        assert_eq!(mounts.list.lock().path_bytes, 0);
    }
}
