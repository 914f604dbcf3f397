use std::time::Duration;

use aquifer_meter::Histogram;
use aquifer_ondisk::{Guid, Txg};
use aquifer_vdev::{IoCounts, LeafState as Engine};

use super::*;

fn leaf(path: &str, state: Engine) -> pool::LeafStatus {
    pool::LeafStatus {
        offline: false,
        own_past: false,
        stands: Stands::ForItself,
        guid: Guid(0xab),
        path: path.into(),
        state,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        repaired: 0,
        last_error: None,
        trouble: Default::default(),
        io: IoCounts::default(),
        free_space: Default::default(),
    }
}

fn mirror(states: [Engine; 2]) -> pool::PoolStatus {
    let vdev = pool::VdevStatus {
        class: Class::Data,
        redundancy: aquifer_ondisk::config::Redundancy::Mirror,
        sectors: 1000,
        leaves: vec![leaf("/dev/a", states[0]), leaf("/dev/b", states[1])],
        io: IoCounts::default(),
    };
    pool::PoolStatus {
        spares: Vec::new(),
        caches: Vec::new(),
        name: "tank".into(),
        guid: Guid(1),
        txg: Txg(9),
        suspended: None,
        read_only: false,
        silent: false,
        space: aquifer_space::SpaceUse { total: 1000, taken: 300, held: 20 },
        closed_metaslabs: 0,
        vdevs: vec![vdev],
        uptime: Duration::ZERO,
        syncs: Histogram::default(),
        stable_writes: Histogram::default(),
        stable_writes_in_sync: Histogram::default(),
        resilver: None,
    }
}

#[test]
fn health_follows_the_disks() {
    use Engine::{Failed, Missing, Online, Outdated};
    for (states, health) in [
        ([Online, Online], Health::Online),
        ([Online, Missing], Health::Degraded),
        ([Outdated, Online], Health::Degraded),
        ([Failed, Missing], Health::Unavail),
    ] {
        assert_eq!(summary(&mirror(states)).health, health, "{states:?}");
    }
    let mut suspended = mirror([Online, Online]);
    suspended.suspended = Some("vdev 0: no disk left that takes writes".into());
    let shown = status(&suspended, Beside::default());
    assert_eq!(shown.summary.health, Health::Suspended);
    assert_eq!(shown.summary.reason, suspended.suspended);
    let read_only = pool::PoolStatus { read_only: true, ..mirror([Missing, Missing]) };
    let shown = status(&read_only, Beside::default());
    assert_eq!(shown.summary.health, Health::Unavail);
    assert_eq!(shown.problems[0].code, "pool-read-only");
    let silent = pool::PoolStatus { silent: true, ..mirror([Online, Online]) };
    let shown = status(&silent, Beside::default());
    assert_eq!(shown.summary.health, Health::Online);
    assert_eq!(shown.summary.reason.as_deref(), Some("its disks do not answer"));
}

#[test]
fn there_is_something_to_do_only_if_something_is_wrong() {
    let mut good = mirror([Engine::Online, Engine::Online]);
    let shown = status(&good, Beside::default());
    assert_eq!((shown.action.as_deref(), shown.vdevs[0].name.as_str()), (None, "mirror-0"));
    assert_eq!(shown.summary.size_bytes, 4_096_000);
    assert_eq!((shown.summary.allocated_bytes, shown.held_bytes), (1_228_800, 81_920));
    good.vdevs[0].leaves[1].checksum_errors = 1;
    let met = status(&good, Beside::default());
    assert!(met.status.is_some() && met.action.is_some(), "{met:?}");
    assert_eq!(met.summary.health, Health::Online);
}

#[test]
fn a_disk_is_offline_only_while_it_is_out_of_use() {
    for (engine, state) in [
        (Engine::Failed, LeafState::Offline),
        (Engine::Outdated, LeafState::Offline),
        (Engine::Missing, LeafState::Missing),
        (Engine::Resilvering, LeafState::Resilvering),
        (Engine::Online, LeafState::Online),
    ] {
        let mut pool = mirror([Engine::Online, engine]);
        pool.vdevs[0].leaves[1].offline = true;
        assert_eq!(status(&pool, Beside::default()).vdevs[0].leaves[1].state, state);
        assert_eq!(io(&pool).vdevs[0].leaves[1].state, state);
    }
    let shown = status(&mirror([Engine::Online, Engine::Outdated]), Beside::default());
    assert_eq!(shown.vdevs[0].leaves[1].state, LeafState::Outdated);
}

/// A pool whose log device is in this state.
fn with_log(state: Engine) -> pool::PoolStatus {
    let mut pool = mirror([Engine::Online, Engine::Online]);
    let of = |class, leaves| pool::VdevStatus {
        class,
        redundancy: aquifer_ondisk::config::Redundancy::Single,
        sectors: 1000,
        leaves,
        io: IoCounts::default(),
    };
    let log = of(Class::Log, vec![leaf("/dev/l", state)]);
    pool.vdevs.extend([of(Class::Hole, vec![]), log]);
    pool
}

#[test]
fn a_log_device_that_is_lost_degrades_a_pool_and_nothing_more() {
    let good = status(&with_log(Engine::Online), Beside::default());
    assert_eq!((good.summary.health, good.action), (Health::Online, None));
    // A removed vdev is shown nowhere, and the others keep their numbers.
    let shown: Vec<_> = good.vdevs.iter().map(|v| (v.name.as_str(), v.class)).collect();
    assert_eq!(shown, [("mirror-0", VdevClass::Data), ("/dev/l", VdevClass::Log)]);
    assert_eq!(io(&with_log(Engine::Online)).vdevs.len(), 2);
    let lost = status(&with_log(Engine::Outdated), Beside::default());
    assert_eq!(lost.summary.health, Health::Degraded);
    assert_eq!(lost.vdevs[1].health, Health::Unavail);
}

#[test]
fn a_pool_that_is_not_there_says_how_to_get_it_back() {
    let summary = absent("tank", "00", Health::Unavail, Some("vdev 0 has no usable disk"));
    let shown = absent_status(summary, None);
    assert!(shown.action.unwrap().contains("aquifer pool clear tank"));
    assert_eq!(shown.status.as_deref(), Some("vdev 0 has no usable disk."));
    let importing = absent_status(absent("tank", "00", Health::Importing, None), None);
    assert_eq!((importing.action, importing.status.is_some()), (None, true));
}
