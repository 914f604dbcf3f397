use aquifer_api::{CopyInfo, DroppedLog, PoolSummary, ReplicationInfo, ReplicationState, VdevKind};

use super::*;

fn leaf(path: &str, state: LeafState) -> LeafStatus {
    LeafStatus {
        path: path.into(),
        guid: "00000000000000aa".into(),
        state,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        repaired: 0,
        spare_for: None,
        replaces: None,
        last_error: None,
        own_past: false,
        slow: None,
        trim: None,
        initialize: None,
        cannot_discard: false,
        disk: None,
    }
}

fn vdev(class: VdevClass, leaves: Vec<LeafStatus>) -> VdevStatus {
    let kind = if leaves.len() > 1 { VdevKind::Mirror } else { VdevKind::Single };
    let health = super::super::health_of(leaves.iter().map(|l| l.state == LeafState::Online));
    let name = match kind {
        VdevKind::Mirror => "mirror-0".into(),
        VdevKind::Single => leaves[0].path.clone(),
    };
    VdevStatus { name, class, kind, size_bytes: 1 << 30, health, leaves }
}

/// A pool on a mirror, whose sides are in these states.
fn mirror(a: LeafState, b: LeafState) -> PoolStatus {
    PoolStatus {
        spares: Vec::new(),
        caches: Vec::new(),
        summary: PoolSummary {
            name: "tank".into(),
            guid: "00000000000000ff".into(),
            health: Health::Online,
            size_bytes: 1 << 30,
            allocated_bytes: 0,
            free_bytes: 1 << 30,
            freeing_bytes: 0,
            damaged_files: 0,
            reason: None,
        },
        txg: 7,
        held_bytes: 0,
        closed_metaslabs: 0,
        vdevs: vec![vdev(VdevClass::Data, vec![leaf("/dev/a", a), leaf("/dev/b", b)])],
        import_notes: Vec::new(),
        notes: Vec::new(),
        damaged: Vec::new(),
        sync_disabled: Vec::new(),
        replications: Vec::new(),
        dropped_log: None,
        scan: None,
        scrub: None,
        drill: None,
        status: None,
        action: None,
        problems: Vec::new(),
    }
}

fn healthy() -> PoolStatus {
    mirror(LeafState::Online, LeafState::Online)
}

/// A pool with these disks of the log, a vdev each.
fn with_logs(logs: &[&[LeafState]]) -> PoolStatus {
    let mut pool = healthy();
    for (at, states) in logs.iter().enumerate() {
        let leaves = states.iter().zip(["l", "m"]);
        let leaves = leaves.map(|(state, side)| leaf(&format!("/dev/{side}{at}"), *state));
        pool.vdevs.push(vdev(VdevClass::Log, leaves.collect()));
    }
    pool
}

fn damage(file: &str) -> DamagedFile {
    DamagedFile {
        dataset: "tank/vms".into(),
        file: file.into(),
        unreadable: true,
        ranges: vec![(0, 4096)],
        more: false,
        since_ns: 0,
        txg: 5,
        lost_bytes: 0,
        error: "checksum".into(),
    }
}

/// A change of a healthy pool.
fn with(change: impl FnOnce(&mut PoolStatus)) -> PoolStatus {
    let mut pool = healthy();
    change(&mut pool);
    pool
}

#[track_caller]
fn says(pool: PoolStatus, status: &str, action: &str) {
    let told = told(pool);
    let lines = (told.status.unwrap_or_default(), told.action.unwrap_or_default());
    assert_eq!((lines.0.as_str(), lines.1.as_str()), (status, action));
}

#[test]
fn a_healthy_pool_has_nothing_to_say() {
    says(healthy(), "", "");
    says(with_logs(&[&[LeafState::Online], &[LeafState::Online; 2]]), "", "");
}

#[test]
fn a_disk_that_holds_data_is_away() {
    use LeafState::{Failed, Missing, Offline, Online, Outdated, Resilvering};
    let runs = "; the pool runs on the other disks.";
    let tried = "Check disk and cable. To try at once, type `aquifer pool online tank /dev/b`. To \
                 put a new disk in its place, type `aquifer pool replace tank /dev/b NEW`.";
    for (state, status, action) in [
        (
            Missing,
            "/dev/b is missing",
            "Attach what is missing, then type `aquifer pool online tank /dev/b`. To put a new \
             disk in its place, type `aquifer pool replace tank /dev/b NEW`.",
        ),
        (Failed, "/dev/b missed writes and is tried again by itself", tried),
        (Outdated, "/dev/b missed writes and is tried again by itself", tried),
        (
            Offline,
            "/dev/b was taken offline by the administrator",
            "To use it again, type `aquifer pool online tank /dev/b`.",
        ),
        (
            Resilvering,
            "/dev/b is being resilvered",
            "Keep the other disks in. `aquifer pool wait tank` returns when it is done.",
        ),
    ] {
        says(mirror(Online, state), &format!("{status}{runs}"), action);
    }
    // What the resilver says comes before a state that is a moment old.
    for (state, disk, what) in [
        (ScanState::Running, "/dev/b", "is being resilvered"),
        (ScanState::Running, "/dev/a", "missed writes"),
        (ScanState::Failed, "/dev/b", "missed writes"),
    ] {
        let mut pool = mirror(Online, Outdated);
        let (copied_bytes, unread_blocks, took_ms) = (0, 0, 0);
        let disk = disk.into();
        let total_bytes = None;
        pool.scan =
            Some(ResilverInfo { disk, state, total_bytes, copied_bytes, unread_blocks, took_ms });
        let status = told(pool).status.unwrap();
        assert!(status.contains(what), "{status}");
    }
}

#[test]
fn several_disks_in_a_state_are_one_problem_and_the_worst_comes_first() {
    let mut pool = mirror(LeafState::Online, LeafState::Offline);
    let other = ["/dev/c", "/dev/d", "/dev/e"].map(|path| leaf(path, LeafState::Missing));
    pool.vdevs.push(vdev(VdevClass::Data, other.to_vec()));
    let told = told(pool);
    let status: Vec<&str> = told.status.as_deref().unwrap().lines().collect();
    assert!(status[0].starts_with("/dev/c, /dev/d, /dev/e are missing;"), "{status:?}");
    assert!(status[1].starts_with("/dev/b was taken offline"), "{status:?}");
    let action: Vec<&str> = told.action.as_deref().unwrap().lines().collect();
    assert!(action[0].contains("`aquifer pool online tank DISK`"), "{action:?}");
    assert!(action[1].contains("`aquifer pool online tank /dev/b`"), "{action:?}");
}

#[test]
fn a_log_device_is_away() {
    use LeafState::{Online, Outdated};
    let back = |disk: &str| {
        format!(
            "When it is back, type `aquifer pool online tank {disk}`. To put a new one in its \
             place, type `aquifer pool replace tank {disk} NEW`."
        )
    };
    let without = " To do without, type `aquifer pool remove tank /dev/l0`.";
    says(
        with_logs(&[&[Outdated]]),
        "Log device /dev/l0 is not in use; the log is on the data disks, and nothing is lost.",
        &(back("/dev/l0") + without),
    );
    says(
        with_logs(&[&[Outdated], &[Online]]),
        "Log device /dev/l0 is not in use; the log is on the other one, and nothing is lost.",
        &(back("/dev/l0") + without),
    );
    says(
        with_logs(&[&[Online, Outdated]]),
        "Log device /dev/m0 is not in use; the log runs on the other side of the mirror, and \
         nothing is lost.",
        &back("/dev/m0"),
    );
    says(
        with_logs(&[&[LeafState::Offline]]),
        "Log device /dev/l0 was taken offline by the administrator; the log is on the data disks, \
         and nothing is lost.",
        &(back("/dev/l0").replace("When it is back", "To use it again") + without),
    );
    // An import may have lost something with it.
    let mut lost = with_logs(&[&[Outdated]]);
    lost.dropped_log =
        Some(DroppedLog { from_txg: 7, since_ns: 0, rewound: false, datasets: Vec::new() });
    says(
        lost,
        "An import dropped changes that were acknowledged, see `lost`.\nLog device /dev/l0 is not \
         in use; the log is on the data disks.",
        &format!(
            "Check the guests there as after a power cut. Then type `aquifer pool clear tank`.\n\
             {}{without}",
            back("/dev/l0")
        ),
    );
}

#[test]
fn errors_of_disks_in_use_are_told() {
    let check = "Check disk and cable, and keep a backup. If the numbers rise, put another disk \
                 in its place: `aquifer pool replace tank";
    for (read, write, checksum, repaired, status) in [
        (1, 0, 0, 0, "/dev/a had errors since the import or the last clear."),
        (0, 1, 0, 0, "/dev/a had errors since the import or the last clear."),
        (
            0,
            0,
            1,
            1,
            "/dev/a had errors since the import or the last clear; 1 bad copy was rewritten \
             from a good one.",
        ),
        (
            2,
            0,
            3,
            5,
            "/dev/a had errors since the import or the last clear; 5 bad copies were \
             rewritten from good ones.",
        ),
    ] {
        let pool = with(|pool| {
            let leaf = &mut pool.vdevs[0].leaves[0];
            (leaf.read_errors, leaf.write_errors) = (read, write);
            (leaf.checksum_errors, leaf.repaired) = (checksum, repaired);
        });
        says(pool, status, &format!("{check} /dev/a NEW`."));
    }
    let both = with(|pool| pool.vdevs[0].leaves.iter_mut().for_each(|leaf| leaf.read_errors = 1));
    says(
        both,
        "/dev/a, /dev/b had errors since the import or the last clear.",
        &format!("{check} DISK NEW`."),
    );
}

#[test]
fn damage_is_told() {
    says(
        with(|pool| pool.damaged = vec![damage("/vm 1.raw")]),
        "1 file is damaged and gives I/O errors: no disk has a good copy of some bytes.",
        "Restore or remove what `errors` names. To take a file as it is on disk, type `aquifer \
         clear tank/vms '/vm 1.raw'`.",
    );
    says(
        with(|pool| pool.damaged = vec![damage("/a"), damage("/b")]),
        "2 files are damaged and give I/O errors: no disk has a good copy of some bytes.",
        "Restore or remove what `errors` names. To take a file as it is on disk, type `aquifer \
         clear DATASET FILE`.",
    );
    says(
        with(|pool| pool.closed_metaslabs = 1),
        "1 metaslab is closed: its bitmap is damaged, and its free space is not used.",
        "`aquifer pool export tank` and `aquifer inspect tank` say how far the damage goes.",
    );
    let many = told(with(|pool| pool.closed_metaslabs = 3)).status;
    assert!(many.unwrap().starts_with("3 metaslabs are closed: "));
}

#[test]
fn a_pool_whose_disks_do_not_answer_says_so_first() {
    says(
        with(|pool| pool.summary.reason = Some("its disks do not answer".into())),
        "Changes wait, and clients ask again later: its disks do not answer. Nothing is lost; \
         what is in memory is read.",
        "The pool goes on when a disk answers. Look at cables, controller and the kernel's log. \
         `aquifer pool export --force tank` takes it out of service without them.",
    );
}

#[test]
fn a_suspended_pool_comes_back_with_its_disks() {
    let mut pool = mirror(LeafState::Failed, LeafState::Missing);
    pool.summary.health = Health::Suspended;
    pool.summary.reason = Some("vdev 0: no disk left that takes writes".into());
    let status = "The pool is suspended, and changes nothing, so that nothing acknowledged is \
                  lost: vdev 0: no disk left that takes writes.";
    let action = "Attach disks that are missing: the pool then comes back by itself. To look for \
                  them at once, type `aquifer pool clear tank`. `aquifer pool export --force tank` \
                  takes it out of service.";
    says(pool, status, action);
}

#[test]
fn a_pool_that_is_not_in_service_says_why() {
    let absent = |health, reason: Option<&str>| {
        with(|pool| {
            pool.vdevs.clear();
            pool.summary.health = health;
            pool.summary.reason = reason.map(Into::into);
        })
    };
    says(
        absent(Health::Unavail, Some("none of its disks was found: /a")),
        "none of its disks was found: /a.",
        "Attach what is missing: the pool then comes by itself. To look for it at once, type \
         `aquifer pool clear tank`. `aquifer pool export tank` takes it off the list.",
    );
    says(absent(Health::Importing, None), "The pool is being imported.", "");
}

/// People who stand before the machine need more than a path.
#[test]
fn a_slow_disk_is_told_with_what_it_is() {
    let mut pool = healthy();
    let slow = &mut pool.vdevs[0].leaves[1];
    slow.slow = Some(SlowInfo {
        at: "writes".into(),
        thousandths: 500,
        own_ns: 240_000_000,
        others_ns: 400_000,
    });
    slow.disk = Some(aquifer_api::DiskInfo {
        model: Some("WDC WD40".into()),
        serial: Some("S1".into()),
        location: Some("slot 7".into()),
        ..Default::default()
    });
    let told = told(pool);
    assert_eq!(
        told.status.unwrap(),
        "/dev/b is much slower than the other disks: half of its writes took 240 ms or more, and \
         of theirs less than 1 ms."
    );
    let action = told.action.unwrap();
    let wanted = "`aquifer pool replace tank /dev/b NEW`. /dev/b is WDC WD40, serial number S1, at \
                  slot 7.";
    assert!(action.ends_with(wanted), "{action}");
}

/// A copy of `tank/vms` that is so far behind, and is to be every five minutes.
fn copied(behind_s: Option<u64>, error: Option<&str>) -> PoolStatus {
    let copy = CopyInfo {
        dataset: "tank/vms".into(),
        copy: "pool/vms".into(),
        snapshot: None,
        taken_ns: None,
        behind_s,
        state: ReplicationState::Failed,
        error: None,
    };
    let replication = ReplicationInfo {
        id: None,
        dataset: "tank/vms".into(),
        target: "backup:pool/vms".into(),
        every_s: Some(300),
        state: if error.is_some() { ReplicationState::Failed } else { ReplicationState::Done },
        begun_ns: None,
        ended_ns: None,
        sending: None,
        sent_bytes: 0,
        total_bytes: None,
        error: error.map(Into::into),
        copies: vec![CopyInfo { behind_s: Some(1), ..copy.clone() }, copy],
        left: Vec::new(),
    };
    with(|pool| pool.replications = vec![replication])
}

#[test]
fn a_copy_is_too_far_behind_or_is_not_there() {
    let action = "`aquifer replicate` shows how it stands, `aquifer replicate tank/vms \
                  backup:pool/vms` tries now. `aquifer set replicate=off tank/vms` ends it.";
    // A run that fails once, and one that takes as long as the time between two, are no problem.
    says(copied(Some(1020), Some("nothing answers")), "", "");
    says(
        copied(Some(1021), None),
        "The copy of tank/vms at backup:pool/vms is 1021 s behind, and is to be 1020 at most.",
        action,
    );
    // A first copy takes as long as it takes.
    says(copied(None, None), "", "");
    says(
        copied(None, Some("nothing answers")),
        "The copy of tank/vms at backup:pool/vms is not there: nothing answers.",
        action,
    );
    let mut fetched = copied(Some(1021), None);
    fetched.replications[0].dataset = "store1:tank/vms".into();
    fetched.replications[0].target = "pool/vms".into();
    says(
        fetched,
        "The copy of store1:tank/vms at pool/vms is 1021 s behind, and is to be 1020 at most.",
        "`aquifer replicate` shows how it stands, `aquifer replicate --pull store1:tank/vms \
         pool/vms` tries now. `aquifer set pull=off pool/vms` ends it.",
    );
    let by_hand = with(|pool| {
        pool.replications = copied(Some(9999), Some("x")).replications;
        pool.replications[0].every_s = None;
    });
    says(by_hand, "", "");
}
