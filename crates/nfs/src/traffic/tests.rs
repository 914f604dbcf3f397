//! Counts compared with the recorded calls: by hand, and by a model that forgets nothing.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use aquifer_ondisk::{Guid, ObjectId};

use super::*;
use crate::limits::TRAFFIC_ENTRIES_MIN;

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn call(procedure: Procedure3, object: u64, bytes: u32) -> Done {
    let file = FileHandle { fs_guid: Guid(7), object: ObjectId(object), generation: 1 };
    Done { procedure, status: Nfsstat3::Ok, file: Some(file), bytes }
}

fn totals(flow: &Flow) -> [u64; 7] {
    let Flow { reads, writes, others, others_ns, errors } = flow;
    let (reads_ns, writes_ns) = (reads.latency.total_ns(), writes.latency.total_ns());
    let counts = [reads.latency.count(), writes.latency.count(), *others];
    let ns = reads_ns + writes_ns + others_ns;
    [counts[0], reads.bytes, counts[1], writes.bytes, counts[2], ns, *errors]
}

#[test]
fn calls_are_counted_by_procedure_client_and_file_on_all_runtimes() {
    let traffic = Traffic::default();
    let (one, two) = (traffic.meter(), traffic.meter());
    one.record(client(1), &call(Procedure3::Read, 5, 4096), 10_000);
    two.record(client(1), &call(Procedure3::Read, 5, 4096), 30_000);
    one.record(client(1), &call(Procedure3::Write, 5, 512), 1_000_000);
    one.record(client(1), &call(Procedure3::Commit, 5, 0), 2_000_000);
    let failed = Done { status: Nfsstat3::Io, bytes: 0, ..call(Procedure3::Write, 6, 0) };
    two.record(client(2), &failed, 100);
    let getattr = Done { file: None, ..call(Procedure3::Getattr, 0, 0) };
    two.record(client(2), &getattr, 2_000);

    let counts = traffic.look();
    assert_eq!(counts.procedures.len(), Procedure3::ALL.len());
    let of = |wanted: Procedure3| {
        let found = counts.procedures.iter().find(|one| one.procedure == wanted).unwrap();
        (found.latency.count(), found.failed, found.latency.total_ns())
    };
    assert_eq!(of(Procedure3::Read), (2, 0, 40_000));
    assert_eq!(of(Procedure3::Write), (2, 1, 1_000_100));
    assert_eq!(of(Procedure3::Commit), (1, 0, 2_000_000));
    assert_eq!(of(Procedure3::Getattr), (1, 0, 2_000));
    assert_eq!(of(Procedure3::Lookup), (0, 0, 0));
    let clients: Vec<_> = counts.clients.iter().map(|(who, flow)| (*who, totals(flow))).collect();
    assert_eq!(
        clients,
        [(client(1), [2, 8192, 1, 512, 1, 3_040_000, 0]), (client(2), [0, 0, 1, 0, 1, 2_100, 1])]
    );
    let disks: Vec<_> =
        counts.disks.iter().map(|(key, disk)| (key.object, totals(&disk.flow))).collect();
    assert_eq!(disks, [(5, [2, 8192, 1, 512, 1, 3_040_000, 0]), (6, [0, 0, 1, 0, 0, 100, 1])]);
    assert_eq!(totals(&counts.other_disks), [0; 7]);
}

#[test]
fn a_file_says_who_used_it_and_whether_others_did() {
    let traffic = Traffic::default();
    let meter = traffic.meter();
    meter.record(client(1), &call(Procedure3::Read, 5, 1), 1);
    let (_, disk) = &traffic.look().disks[0];
    assert_eq!((disk.client, disk.shared), (client(1), false));
    meter.record(client(2), &call(Procedure3::Read, 5, 1), 1);
    let (_, disk) = &traffic.look().disks[0];
    assert_eq!((disk.client, disk.shared), (client(2), true));
}

/// Ten times the files that fit, one of them used all the time.
#[test]
fn tables_are_bounded_and_lose_nothing_and_keep_whom_is_active() {
    let traffic = Traffic::default();
    let meter = traffic.meter();
    let mut sent: HashMap<u64, u64> = HashMap::new();
    let mut state = 1u64;
    for _ in 0..20 * DISKS_MAX {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let object = 100 + (state >> 33) % (10 * DISKS_MAX as u64);
        for object in [object, 5] {
            *sent.entry(object).or_default() += 1;
            meter.record(client(1), &call(Procedure3::Write, object, 3), 1_500);
        }
    }
    let counts = traffic.look();
    assert_eq!(counts.disks.len(), DISKS_MAX);
    let busy = counts.disks.iter().find(|(key, _)| key.object == 5).unwrap();
    assert_eq!(busy.1.flow.writes.latency.count(), sent[&5]);
    let mut all = counts.other_disks.clone();
    for (key, disk) in &counts.disks {
        assert!(disk.flow.writes.latency.count() <= sent[&key.object]);
        all.add(&disk.flow);
    }
    let calls: u64 = sent.values().sum();
    assert_eq!(totals(&all), [0, 0, calls, 3 * calls, 0, 1_500 * calls, 0]);
    // A runtime that starts late has some room of its own.
    let late = traffic.meter();
    for object in 0..100 {
        late.record(client(1), &call(Procedure3::Read, 1 << 40 | object, 1), 1);
    }
    assert_eq!(traffic.look().disks.len(), DISKS_MAX + TRAFFIC_ENTRIES_MIN);
}

/// The memory that the daemon charges to no client is small.
#[test]
fn the_tables_take_no_more_than_is_said() {
    let disks = DISKS_MAX * (size_of::<Disk>() + 64);
    let clients = TRAFFIC_CLIENTS_MAX * (size_of::<Flow>() + 64);
    assert!(disks + clients <= 4 << 20, "{disks} {clients}");
}

#[test]
fn handles_that_nobody_may_use_are_no_files() {
    let handle = FileHandle { fs_guid: Guid(7), object: ObjectId(5), generation: 1 };
    let file = NfsFh3::new(&handle.encode()).unwrap();
    let args = Args3::Read(crate::proto::v3::Read3Args { file, offset: 0, count: 1 });
    assert_eq!(file_of(&args, Nfsstat3::Ok), Some(handle));
    assert_eq!(file_of(&args, Nfsstat3::Io), Some(handle));
    for status in [Nfsstat3::BadHandle, Nfsstat3::Stale, Nfsstat3::Acces] {
        assert_eq!(file_of(&args, status), None);
    }
}
