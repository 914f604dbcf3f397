//! `aquifer locks`: locked files, and the holders of the locks.

use std::net::IpAddr;

use aquifer_api::client::Client;
use aquifer_api::{ClearLocks, LockExtent, LockInfo, LocksQuery};

use super::pool::confirm;
use super::{Output, tell};
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn locks(client: &Client, output: Output) -> Result<(), Failure> {
    let info = client.ask(&LocksQuery).await?;
    if info.grace {
        let note = "the daemon has just started: clients claim the locks that they had, nobody \
                    gets another one";
        tell(output, &[note.into()]);
    }
    output.answer(&info, |info| {
        let header = ["FILE", "RANGE", "KIND", "STATE", "CLIENT", "ADDRESS", "SVID", "OWNER"];
        let mut table = Table::new(&header);
        for lock in &info.locks {
            table.row(row(lock));
        }
        output.table(&table)
    })
}

pub(super) async fn clear(
    client: &Client,
    output: Output,
    force: bool,
    address: IpAddr,
    name: Option<String>,
) -> Result<(), Failure> {
    if !force {
        eprintln!("If the client lives, it goes on to believe that it has them.");
        confirm("the locks of client", &address.to_string())?;
    }
    let done = client.ask(&ClearLocks { address, client: name }).await?;
    output.answer(&done, |done| format!("{} ended\n", done.ended))
}

fn row(lock: &LockInfo) -> Vec<String> {
    let LockInfo { client, address, svid, owner, state, .. } = lock;
    vec![
        place(lock),
        range(lock),
        kind(lock.extent),
        state.clone(),
        or_dash(client),
        address.to_string(),
        svid.to_string(),
        or_dash(owner),
    ]
}

/// Dataset and path, as clients mount it. If the path is unknown, the number of the file.
fn place(lock: &LockInfo) -> String {
    let LockInfo { dataset, file, object, .. } = lock;
    match file {
        Some(file) => format!("{dataset}{file}"),
        None => format!("{dataset}#{object}"),
    }
}

/// First and last byte.
fn range(lock: &LockInfo) -> String {
    match (lock.offset, lock.length) {
        (0, 0) => "all".into(),
        (first, 0) => format!("{first}-"),
        (first, 1) => first.to_string(),
        (first, length) => format!("{first}-{}", first.saturating_add(length - 1)),
    }
}

fn kind(extent: LockExtent) -> String {
    let bits = |bits| match bits {
        0 => "none",
        1 => "read",
        2 => "write",
        _ => "read/write",
    };
    match extent {
        LockExtent::Shared => "shared".into(),
        LockExtent::Exclusive => "exclusive".into(),
        LockExtent::Reservation { access, deny } => {
            format!("share({}, deny {})", bits(access), bits(deny))
        }
    }
}

fn or_dash(name: &str) -> String {
    if name.is_empty() { "-".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(offset: u64, length: u64, extent: LockExtent) -> LockInfo {
        LockInfo {
            dataset: "tank/vms".into(),
            file: Some("/disk.qcow2".into()),
            object: 7,
            client: "pve1".into(),
            address: [10, 0, 0, 1].into(),
            svid: 3,
            owner: "3@pve1".into(),
            extent,
            offset,
            length,
            state: "held".into(),
        }
    }

    #[test]
    fn a_lock_names_file_range_kind_and_holder() {
        let row = row(&lock(100, 1, LockExtent::Shared));
        let expected =
            ["tank/vms/disk.qcow2", "100", "shared", "held", "pve1", "10.0.0.1", "3", "3@pve1"];
        assert_eq!(row, expected);
    }

    #[test]
    fn ranges_and_kinds_read_well() {
        let of = |offset, length| range(&lock(offset, length, LockExtent::Shared));
        assert_eq!(
            [of(0, 0), of(5, 0), of(100, 104), of(u64::MAX, 1)].join(" "),
            "all 5- 100-203 18446744073709551615"
        );
        let reservation = LockExtent::Reservation { access: 3, deny: 2 };
        assert_eq!(kind(reservation), "share(read/write, deny write)");
        let unknown = LockInfo { file: None, ..lock(0, 0, LockExtent::Exclusive) };
        assert_eq!(place(&unknown), "tank/vms#7");
        assert_eq!((or_dash("a"), or_dash("")), ("a".into(), "-".into()));
    }
}
