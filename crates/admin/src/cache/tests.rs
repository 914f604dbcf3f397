use std::os::unix::fs::PermissionsExt;

use super::*;

fn pool(name: &str) -> CachedPool {
    CachedPool {
        name: name.into(),
        guid: "00c0ffee00c0ffee".into(),
        disks: vec!["/dev/sda".into(), "/images/b".into()],
        whole: None,
        two_persons: None,
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
    let (read, _) = cache.load();
    assert_eq!((read.pools, read.dropped_logs.len()), (vec![pool("tank")], 0));
}

#[test]
fn what_is_stored_is_loaded_by_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("var/lib/aquifer");
    let cache = Cache::open(&state).unwrap();
    assert_eq!(cache.load().0, Kept::default());
    cache.store(|| kept(&["tank", "dozer"])).unwrap();
    cache.store(|| kept(&["dozer"])).unwrap();
    drop(cache);
    assert_eq!(Cache::open(&state).unwrap().load().0, kept(&["dozer"]));
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
    cache.store(|| kept(&["tank"])).unwrap();
    fs::write(dir.path().join("pools.new"), b"{\"pools\": [{\"na").unwrap();
    assert_eq!(cache.load().0, kept(&["tank"]));
    cache.store(|| kept(&["dozer"])).unwrap();
    assert_eq!(cache.load().0, kept(&["dozer"]));
}

/// It keeps nothing from starting, and nothing of it is thrown away.
#[test]
fn a_damaged_list_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    for damaged in [&b""[..], b"{}", b"[]", b"{\"pools\": 7}", b"\xff"] {
        fs::write(dir.path().join(FILE_NAME), damaged).unwrap();
        let (kept_now, problem) = cache.load();
        assert!(problem.unwrap().contains("aquifer pool import") && cache.is_lost());
        assert_eq!(kept_now, Kept::default());
        cache.store(|| kept(&["dozer"])).unwrap();
        assert_eq!(fs::read(dir.path().join("pools.lost")).unwrap(), damaged);
        assert!(!cache.is_lost() && cache.load() == (kept(&["dozer"]), None));
        // From now on there is a copy.
        fs::write(dir.path().join(FILE_NAME), damaged).unwrap();
        let (kept_now, problem) = cache.load();
        assert!(problem.unwrap().contains("no list of pools") && !cache.is_lost());
        assert_eq!(kept_now, kept(&["dozer"]));
        cache.mend(|| kept(&["dozer"])).unwrap();
        assert_eq!(cache.load(), (kept(&["dozer"]), None));
        fs::remove_file(dir.path().join("pools.json~")).unwrap();
    }
}

#[test]
fn a_host_keeps_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (id, _) = cache.host_id();
    assert_eq!(cache.host_id(), (id, None));
    drop(cache);
    let cache = Cache::open(dir.path()).unwrap();
    let path = dir.path().join(HOST_ID_NAME);
    for damaged in ["", "0000000000000000", "12345678", "storage-1", "10000000000000000"] {
        fs::write(&path, damaged).unwrap();
        let (kept, problem) = cache.host_id();
        assert!(kept == id && problem.unwrap().contains("no identity"), "{damaged}");
        cache.mend_host_id(id).unwrap();
        assert_eq!(cache.host_id(), (id, None));
    }
    // Without its copy it is another one, which stays.
    for path in [&path, &dir.path().join("host_id~")] {
        fs::write(path, "").unwrap();
    }
    let (other, problem) = cache.host_id();
    assert!(other != id && problem.is_some());
    assert_eq!(cache.host_id(), (other, None));
    let elsewhere = tempfile::tempdir().unwrap();
    assert_ne!(Cache::open(elsewhere.path()).unwrap().host_id().0, id);
}

/// Something stands where a file is to be: the directory is still one daemon's.
#[test]
fn a_directory_without_its_lock_file_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(LOCK_NAME)).unwrap();
    let first = Cache::open(dir.path()).unwrap();
    assert!(matches!(Cache::open(dir.path()).unwrap_err(), CacheError::InUse(_)));
    drop(first);
    assert!(Cache::open(dir.path()).is_ok());
}
