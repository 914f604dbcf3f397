use std::os::unix::fs::symlink;

use super::search::is_lasting_name;
use super::take::Taken;
use super::*;

fn request(disks: &[&str]) -> TakeRequest {
    TakeRequest {
        disks: disks.iter().map(ToString::to_string).collect(),
        force: false,
        create_bytes: None,
        dry_run: false,
        in_use: Vec::new(),
        pool: "dozer".into(),
        own: None,
        held_until_s: None,
    }
}

fn image(dir: &Path, name: &str, bytes: u64) -> String {
    let path = dir.join(name);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path.to_str().unwrap().to_string()
}

fn taken(request: TakeRequest) -> Result<Taken, aquifer_api::ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(take(request))
}

fn refusal(request: TakeRequest) -> String {
    taken(request).unwrap_err().message
}

#[test]
fn a_disk_is_taken_once_whatever_it_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let a = image(dir.path(), "a", DISK_BYTES_MIN);
    let hard = dir.path().join("hard").to_str().unwrap().to_string();
    fs::hard_link(&a, &hard).unwrap();
    let soft = dir.path().join("soft").to_str().unwrap().to_string();
    symlink(&a, &soft).unwrap();
    assert_eq!(refusal(request(&[&a, &a])), format!("{a}: is given twice"));
    for other in [&hard, &soft] {
        assert_eq!(
            refusal(request(&[&a, other])),
            format!("{other}: is the same disk as {a}; give each disk once")
        );
    }
    let in_use = vec![(Identity::of(Path::new(&a)).unwrap(), "tank".to_string())];
    let used = || TakeRequest { in_use: in_use.clone(), ..request(&[&soft]) };
    let refused = refusal(used());
    assert!(refused.contains("is in use by pool \"tank\""), "{refused}");
    let own = refusal(TakeRequest { pool: "tank".into(), ..used() });
    assert_eq!(own, format!("{soft}: is a disk of pool \"tank\" already; use another disk"));
    assert_eq!(taken(request(&[&soft])).unwrap().disks.len(), 1);
}

#[test]
fn sizes_are_checked_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let small = image(dir.path(), "small", DISK_BYTES_MIN - 1);
    assert_eq!(
        refusal(request(&[&small])),
        format!("{small}: is too small: 255M, a pool needs disks of 256M or more")
    );
    let enough = image(dir.path(), "enough", DISK_BYTES_MIN);
    assert_eq!(taken(request(&[&enough])).unwrap().disks[0].bytes, DISK_BYTES_MIN);
}

#[test]
fn image_files_are_made_and_go_again_if_nothing_comes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let new = path.to_str().unwrap();
    let small = image(dir.path(), "small", 4096);
    assert!(refusal(request(&[new])).contains("--create-size=10G"));
    let make = |disks: &[&str]| TakeRequest {
        create_bytes: Some(DISK_BYTES_MIN + 5000),
        ..request(disks)
    };
    // A later disk is refused: the files made for the request are removed.
    assert!(refusal(make(&[new, &small])).contains("too small"));
    assert!(!path.exists());
    let dry = taken(TakeRequest { dry_run: true, ..make(&[new]) }).unwrap();
    assert!(dry.disks[0].disk.is_none() && !path.exists());
    assert!(refusal(make(&[new, new])).contains("is given twice"));
    assert!(!path.exists());
    let mut kept = taken(make(&[new])).unwrap();
    kept.keep();
    drop(kept);
    assert_eq!(fs::metadata(&path).unwrap().len(), DISK_BYTES_MIN + 4096);
}

#[test]
fn what_others_stored_is_refused_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let disk = image(dir.path(), "disk", DISK_BYTES_MIN);
    let mut bytes = vec![0u8; 4096];
    bytes[..6].copy_from_slice(b"LUKS\xBA\xBE");
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(&disk).unwrap(),
        &bytes,
        0,
    )
    .unwrap();
    let refused = refusal(request(&[&disk]));
    assert!(refused.contains("holds something already: LUKS"), "{refused}");
    assert!(refused.contains("-f takes it"), "{refused}");
    assert!(taken(TakeRequest { force: true, ..request(&[&disk]) }).is_ok());
}

#[test]
fn names_are_devices_and_paths_are_absolute() {
    for relative in ["images/a", "./a", ""] {
        assert!(refusal(request(&[relative])).contains("relative path"), "{relative}");
    }
    assert!(refusal(request(&["no-such-device"])).contains("/dev/disk/by-id"));
    let null = refusal(request(&["null"]));
    assert!(null.starts_with("/dev/null: is a character device"), "{null}");
}

#[test]
fn a_place_is_a_disk_or_a_directory_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let a = image(dir.path(), "a", DISK_BYTES_MIN);
    let small = image(dir.path(), "small", 4096);
    symlink(&a, dir.path().join("soft")).unwrap();
    fs::create_dir(dir.path().join("below")).unwrap();
    let named = |place: &str| places::named(&[PathBuf::from(place)]);
    assert_eq!(named(dir.path().to_str().unwrap()), [PathBuf::from(&a)]);
    // A disk that is named explicitly is opened, so that the answer can say what is wrong with it.
    assert_eq!(named(&small), [PathBuf::from(&small)]);
    assert_eq!(named("/no/such"), [PathBuf::from("/no/such")]);
}

#[test]
fn a_persistent_name_is_kept_while_it_leads_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| image(dir.path(), name, 4096));
    let (persistent, link) = (dir.path().join("disk"), dir.path().join("disk/by-id/ata-A"));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&a, &link).unwrap();
    let lasts = |name: &Path, found: &str| {
        is_lasting_name(name, Path::new(found), persistent.to_str().unwrap())
    };
    assert!(lasts(&link, &a));
    // Another disk has that name now, or none.
    assert!(!lasts(&link, &b));
    assert!(!lasts(&persistent.join("by-id/ata-B"), &b));
    // No persistent names.
    assert!(!lasts(Path::new(&a), &a));
    assert!(!lasts(&persistent.join("../a"), &a));
}

#[test]
fn a_new_image_has_no_faults_of_one_that_was_removed() {
    // Most file systems give it the old inode.
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let path = PathBuf::from(image(dir.path(), "a", DISK_BYTES_MIN));
        let identity = Identity::of(&path).unwrap();
        let faults = Faults::of(identity, &path);
        assert!(!faults.wanted().hang, "it is new");
        faults.change(aquifer_api::InjectRequest { hang: true, ..Default::default() });
        assert!(Faults::of(identity, &path).wanted().hang, "it stays");
        fs::remove_file(&path).unwrap();
        // Longer than one tick of the file system's clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
