use super::*;

fn asked(guid: u64, pool: &str) -> Asked {
    Asked { guid: Guid(guid), path: "/dev/sdb".into(), pool: pool.into(), file: Weak::new() }
}

fn disk(serial: &str) -> DiskInfo {
    DiskInfo {
        serial: Some(serial.into()),
        device: Some("/dev/sdb".into()),
        by_id: Some(format!("/dev/disk/by-id/ata-X_{serial}")),
        ..DiskInfo::default()
    }
}

fn listed() -> BTreeSet<String> {
    BTreeSet::from(["a".to_string(), "b".to_string()])
}

#[test]
fn a_disk_that_is_gone_is_known_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut known = load(&path).unwrap();
    let both = [asked(1, "a"), asked(2, "a")];
    assert!(note(&mut known, &both, vec![Some(disk("S1")), Some(disk("S2"))], &listed()));
    assert!(!note(&mut known, &both, vec![Some(disk("S1")), Some(disk("S2"))], &listed()));
    store(&Replaced::at(path.clone(), 0o600), &known);

    let inventory = Inventory::open(dir.path(), Path::new(""));
    let mut known = inventory.known.lock().clone();
    assert!(note(&mut known, &both, vec![Some(disk("S1")), None], &listed()));
    *inventory.known.lock() = known.clone();
    let of_pool = inventory.of_pool("a");
    assert_eq!(of_pool[&Guid(2)], DiskInfo { gone: true, ..disk("S2") });
    assert_eq!(of_pool[&Guid(1)], disk("S1"));
    for name in ["S2", "ata-X_S2", "/dev/disk/by-id/ata-X_S2"] {
        assert_eq!(inventory.named("a", name), Some(Guid(2)), "{name}");
        assert_eq!(inventory.named("b", name), None, "{name}");
    }
    // Another disk may have that name by now.
    assert_eq!(inventory.named("a", "/dev/sdb"), None);
    // It is back.
    assert!(note(&mut known, &both, vec![Some(disk("S1")), Some(disk("S2"))], &listed()));
    assert!(!known[&Guid(2)].info.gone);
    // A file that is no list is no reason not to start.
    fs::write(&path, "garbage").unwrap();
    assert!(load(&path).is_err());
    assert!(Inventory::open(dir.path(), Path::new("")).known.lock().is_empty());
}

#[test]
fn what_left_its_pool_is_forgotten() {
    let mut known = BTreeMap::new();
    let all = [asked(1, "a"), asked(2, "a"), asked(3, "b")];
    let found = || vec![Some(disk("S1")), Some(disk("S2")), Some(disk("S3"))];
    note(&mut known, &all, found(), &listed());
    // A look at one pool says nothing about another.
    assert!(note(&mut known, &all[..1], vec![Some(disk("S1"))], &listed()));
    assert_eq!(known.keys().collect::<Vec<_>>(), [&Guid(1), &Guid(3)]);
    let only_a = BTreeSet::from(["a".to_string()]);
    assert!(note(&mut known, &all[..1], vec![Some(disk("S1"))], &only_a));
    assert_eq!(known.keys().collect::<Vec<_>>(), [&Guid(1)]);
}

#[tokio::test]
async fn health_is_asked_once_in_ten_minutes_and_at_once_of_another_disk() {
    let dir = tempfile::tempdir().unwrap();
    let inventory = Inventory::open(dir.path(), Path::new("/nowhere/smartctl"));
    let one = [asked(1, "a")];
    note(&mut inventory.known.lock(), &one, vec![Some(disk("S1"))], &listed());
    assert_eq!(inventory.due(Guid(1)).as_deref(), Some("/dev/sdb"));
    inventory.ask_health(&one).await;
    assert_eq!(inventory.due(Guid(1)), None);
    let note_of = || inventory.of_pool("a")[&Guid(1)].smart_note.clone();
    assert!(note_of().unwrap().contains("not installed"), "{:?}", note_of());
    // What it said once stays when it says nothing later.
    let smart = SmartInfo { passed: false, ..SmartInfo::default() };
    inventory.note_health(&one[0], Ok(smart.clone()));
    assert_eq!(note_of(), None);
    inventory.note_health(&one[0], Err(SmartError::NotInstalled("smartctl".into())));
    let known = inventory.of_pool("a")[&Guid(1)].clone();
    assert_eq!((known.smart, known.smart_note.is_some()), (Some(smart), true));
    let other = DiskInfo { device: Some("/dev/sdc".into()), ..disk("S1") };
    note(&mut inventory.known.lock(), &one, vec![Some(other)], &listed());
    assert_eq!(inventory.due(Guid(1)).as_deref(), Some("/dev/sdc"));
    note(&mut inventory.known.lock(), &one, vec![None], &listed());
    assert_eq!(inventory.due(Guid(1)), None);
}
