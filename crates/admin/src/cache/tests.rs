use std::os::unix::fs::PermissionsExt;

use super::*;

fn pool(name: &str) -> CachedPool {
    CachedPool {
        name: name.into(),
        guid: "00c0ffee00c0ffee".into(),
        disks: vec!["/dev/sda".into(), "/images/b".into()],
        whole: None,
    }
}

fn kept(pools: &[&str]) -> Kept {
    let dropped =
        DroppedLog { from_txg: 7, since_ns: 1, rewound: false, datasets: vec!["tank".into()] };
    let dropped_logs = BTreeMap::from([("00c0ffee00c0ffee".to_string(), dropped)]);
    Kept { pools: pools.iter().map(|name| pool(name)).collect(), dropped_logs }
}

/// A file that the first release wrote.
#[test]
fn a_list_without_losses_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let list = br#"{"pools":[{"name":"tank","guid":"00c0ffee00c0ffee",
        "disks":["/dev/sda","/images/b"]}]}"#;
    fs::write(dir.path().join(FILE_NAME), list).unwrap();
    let read = cache.load().unwrap();
    assert_eq!((read.pools, read.dropped_logs.len()), (vec![pool("tank")], 0));
}

#[test]
fn what_is_stored_is_loaded_by_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("var/lib/aquifer");
    let cache = Cache::open(&state).unwrap();
    assert_eq!(cache.load().unwrap(), Kept::default());
    cache.store(&kept(&["tank", "dozer"])).unwrap();
    cache.store(&kept(&["dozer"])).unwrap();
    drop(cache);
    assert_eq!(Cache::open(&state).unwrap().load().unwrap(), kept(&["dozer"]));
    let mode = fs::metadata(state.join(FILE_NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn two_daemons_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = Cache::open(dir.path()).unwrap();
    let error = Cache::open(dir.path()).unwrap_err();
    assert!(matches!(error, CacheError::InUse(_)), "{error}");
    drop(first);
    assert!(Cache::open(dir.path()).is_ok());
}

/// A daemon that dies between writing the second file and renaming it leaves the old list. The next
/// daemon overwrites what it left.
#[test]
fn half_a_replacement_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache.store(&kept(&["tank"])).unwrap();
    fs::write(dir.path().join("pools.new"), b"{\"pools\": [{\"na").unwrap();
    assert_eq!(cache.load().unwrap(), kept(&["tank"]));
    cache.store(&kept(&["dozer"])).unwrap();
    assert_eq!(cache.load().unwrap(), kept(&["dozer"]));
}

#[test]
fn a_damaged_list_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    for damaged in [&b""[..], b"{}", b"[]", b"{\"pools\": 7}", b"\xff"] {
        fs::write(dir.path().join(FILE_NAME), damaged).unwrap();
        let error = cache.load().unwrap_err().to_string();
        assert!(error.contains("aquifer pool import"), "{error}");
    }
}

#[test]
fn a_host_keeps_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let id = cache.host_id().unwrap();
    assert_eq!(cache.host_id().unwrap(), id);
    drop(cache);
    let cache = Cache::open(dir.path()).unwrap();
    assert_eq!(cache.host_id().unwrap(), id);
    for damaged in ["", "0000000000000000", "storage-1", "10000000000000000"] {
        fs::write(dir.path().join(HOST_ID_NAME), damaged).unwrap();
        let error = cache.host_id().unwrap_err();
        assert!(matches!(error, CacheError::NoHostId(_)), "{damaged}: {error}");
    }
    let other = tempfile::tempdir().unwrap();
    assert_ne!(Cache::open(other.path()).unwrap().host_id().unwrap(), id);
}
