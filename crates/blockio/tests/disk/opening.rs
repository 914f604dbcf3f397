//! Opening: refusals, locks, sizes, the fall-back without O_DIRECT.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use aquifer_blockio::{
    BackingKind, Disk, DiskError, Engine, FileDisk, OpenError, OpenOptions, create_image,
};

use crate::support::{LoopDevice, Medium, expect, media, page, pages, runtime};

fn open(path: &Path) -> Result<FileDisk, OpenError> {
    FileDisk::open(path, OpenOptions::exclusive())
}

#[test]
fn an_image_is_made_once_sparse_and_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    create_image(&path, 1 << 20).unwrap();
    let made = fs::metadata(&path).unwrap();
    assert_eq!(made.len(), 4 << 30);
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&made), 0);
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    let disk = open(&path).unwrap();
    assert_eq!((disk.sectors(), disk.kind()), (1 << 20, BackingKind::Image));
    assert_eq!(disk.name(), path.to_str().unwrap());
    assert!(matches!(create_image(&path, 1), Err(OpenError::Exists { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 30, "the old one was touched");
}

#[test]
fn images_of_senseless_sizes_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    assert!(matches!(create_image(&path, 0), Err(OpenError::TooSmall { .. })));
    for sectors in [u64::MAX, 1 << 51, (1 << 51) - 1] {
        let refused = create_image(&path, sectors);
        assert!(matches!(refused, Err(OpenError::TooLarge { .. })), "{refused:?}");
        assert!(!path.exists());
    }
    let nowhere = create_image(&folder.path().join("no/such/folder.img"), 1);
    assert!(matches!(nowhere, Err(OpenError::NotFound { .. })));
}

#[test]
fn what_is_no_disk_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = open(&folder.path().join("missing")).unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }));
    assert!(missing.to_string().contains("check the name"), "{missing}");
    let wrong = |path: &Path, expected: &str| match open(path) {
        Err(OpenError::WrongType { what, .. }) => assert_eq!(what, expected),
        other => panic!("{other:?}"),
    };
    wrong(folder.path(), "directory");
    wrong(Path::new("/dev/null"), "character device");
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    wrong(&folder.path().join("socket"), "socket");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    wrong(&pipe, "pipe");
}

#[test]
fn sizes_are_whole_sectors_and_at_least_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.img");
    for bytes in [0, 1, 4095] {
        File::create(&path).unwrap().set_len(bytes).unwrap();
        match open(&path) {
            Err(OpenError::TooSmall { bytes: found, .. }) => assert_eq!(found, bytes),
            other => panic!("{other:?}"),
        }
    }
    for (bytes, sectors) in [(4096, 1), (4097, 1), (8191, 1), (8192, 2)] {
        File::create(&path).unwrap().set_len(bytes).unwrap();
        assert_eq!(open(&path).unwrap().sectors(), sectors);
    }
    // The last bytes belong to no sector, but are searched for foreign content too.
    let mut content = vec![0; 8192 + 512];
    content[8192..8200].copy_from_slice(b"conectix");
    fs::write(&path, content).unwrap();
    let disk = open(&path).unwrap();
    assert_eq!(disk.foreign_content().unwrap()[0].what, "VHD virtual disk");
    assert_eq!(disk.sectors(), 2);
}

#[test]
fn only_one_may_have_it_and_anybody_may_look() {
    for medium in media(64) {
        let first = open(&medium.path).unwrap();
        let second = open(&medium.path).unwrap_err();
        assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
        let look = FileDisk::open(&medium.path, OpenOptions::inspect()).unwrap();
        runtime().block_on(first.write(0, vec![page(0, 1)])).unwrap();
        runtime().block_on(expect(&look, 0, 1, 1));
        drop(first);
        let again = open(&medium.path).unwrap();
        drop((again, look));
    }
}

#[test]
fn a_disk_that_is_opened_again_stays_ours_alone() {
    for medium in media(64) {
        let first = open(&medium.path).unwrap();
        let second = first.open_again(&medium.path).unwrap();
        runtime().block_on(second.write(1, vec![page(1, 7)])).unwrap();
        // The claim is the first handle's, and lasts as long as any handle uses it.
        drop(first);
        assert!(matches!(open(&medium.path), Err(OpenError::InUse { .. })));
        let third = second.open_again(&medium.path).unwrap();
        drop(second);
        assert!(matches!(open(&medium.path), Err(OpenError::InUse { .. })));
        runtime().block_on(expect(&third, 1, 1, 7));
        drop(third);
        open(&medium.path).unwrap();
    }
    // Another disk gets a claim of its own, and is refused if another process has it.
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    create_image(&a, 16).unwrap();
    create_image(&b, 16).unwrap();
    let (first, other) = (open(&a).unwrap(), open(&b).unwrap());
    assert!(matches!(first.open_again(&b), Err(OpenError::InUse { .. })));
    drop(other);
    let taken = first.open_again(&b).unwrap();
    assert!(matches!(open(&b), Err(OpenError::InUse { .. })));
    drop((first, taken));
}

#[test]
fn a_lock_that_is_held_for_a_moment_is_waited_for() {
    for medium in media(64) {
        let first = open(&medium.path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(first);
            });
            open(&medium.path).unwrap();
        });
    }
}

#[test]
fn another_process_is_refused_too() {
    let medium = Medium::image(64);
    let _mine = open(&medium.path).unwrap();
    let Ok(status) = std::process::Command::new("flock")
        .args(["--nonblock", "--conflict-exit-code", "9"])
        .arg(&medium.path)
        .arg("true")
        .status()
    else {
        eprintln!("SKIPPED: flock cannot be run here");
        return;
    };
    assert_eq!(status.code(), Some(9));
}

#[test]
fn a_lock_lasts_as_long_as_an_operation_under_way() {
    let medium = Medium::image(64);
    let runtime = runtime();
    let disk = medium.open(Engine::Uring);
    runtime.block_on(async {
        let mut write = disk.write(0, pages(0, 64, 3));
        let waker = std::task::Waker::noop();
        let mut cx = std::task::Context::from_waker(waker);
        assert!(write.as_mut().poll(&mut cx).is_pending());
    });
    drop(disk);
    // The write is not submitted yet, and nobody waits for it: but it will run.
    assert!(matches!(open(&medium.path), Err(OpenError::InUse { .. })));
    drop(runtime);
    let disk = open(&medium.path).unwrap();
    self::runtime().block_on(expect(&disk, 0, 64, 3));
}

#[test]
fn a_mounted_device_is_refused() {
    let image = Medium::image(4096);
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .arg(&image.path)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: mkfs.ext4 cannot be run here");
        return;
    }
    let Some(device) = LoopDevice::attach(&image.path) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let device = device.path();
    let tested = with_mount(Some(device), "ext4", folder.path(), "", || {
        match open(device) {
            Err(OpenError::InUse { by, .. }) => assert!(by.contains("mounted")),
            other => panic!("{other:?}"),
        }
        // Inspection is allowed, and says what it is.
        let look = FileDisk::open(device, OpenOptions::inspect()).unwrap();
        assert_eq!(look.foreign_content().unwrap()[0].what, "ext4 file system");
    });
    if !tested {
        return;
    }
    // The kernel unmounts some time after the thread has ended.
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(refused) = open(device) {
        assert!(Instant::now() < deadline, "still refused: {refused}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sectors_of_512_and_4096_bytes_are_taken_and_larger_ones_refused() {
    for (bytes, taken) in [("512", true), ("4096", true), ("8192", false)] {
        let image = Medium::image(1024);
        let Some(device) = LoopDevice::attach_with(&image.path, &["--sector-size", bytes]) else {
            continue;
        };
        match open(device.path()) {
            Ok(disk) => {
                assert!(taken);
                assert_eq!((disk.sectors(), disk.kind()), (1024, BackingKind::Block));
            }
            Err(OpenError::SectorTooLarge { bytes, .. }) => assert!(!taken && bytes == 8192),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_write_protected_device_is_refused() {
    let image = Medium::image(64);
    let Some(device) = LoopDevice::attach_with(&image.path, &["--read-only"]) else {
        return;
    };
    let refused = open(device.path()).unwrap_err();
    assert!(matches!(refused, OpenError::ReadOnly { .. }), "{refused:?}");
    FileDisk::open(device.path(), OpenOptions::inspect()).unwrap();
}

#[test]
fn a_file_system_without_direct_io_is_used_without() {
    let folder = tempfile::tempdir().unwrap();
    with_mount(None, "ramfs", folder.path(), "", || {
        let path = folder.path().join("disk.img");
        create_image(&path, 256).unwrap();
        for engine in [Engine::Uring, Engine::Pread] {
            let options = OpenOptions::exclusive().with_engine(engine);
            let disk = FileDisk::open(&path, options).unwrap();
            assert!(!disk.is_direct());
            runtime().block_on(async {
                disk.write(0, pages(0, 256, 1)).await.unwrap();
                disk.flush().await.unwrap();
                disk.write_durable(3, pages(3, 9, 1)).await.unwrap();
                expect(&disk, 0, 256, 1).await;
                // ramfs cannot punch holes either: a success all the same.
                disk.discard(0, 10).await.unwrap();
                expect(&disk, 10, 246, 1).await;
            });
        }
    });
}

#[test]
fn a_full_file_system_is_an_error_and_flushes_go_on() {
    // A file system for each: the ring may hold a removed file's blocks a moment longer.
    for engine in [Engine::Uring, Engine::Pread] {
        let folder = tempfile::tempdir().unwrap();
        with_mount(None, "tmpfs", folder.path(), "size=1m", || {
            let path = folder.path().join("disk.img");
            create_image(&path, 4096).unwrap();
            let options = OpenOptions::exclusive().with_engine(engine);
            let disk = FileDisk::open(&path, options).unwrap();
            runtime().block_on(async {
                disk.write(0, pages(0, 100, 1)).await.unwrap();
                // More than fits: the kernel cuts it short, then refuses.
                for refused in [
                    disk.write(100, pages(100, 300, 1)).await,
                    disk.write_durable(1000, pages(1000, 300, 1)).await,
                ] {
                    let full = ErrorKind::StorageFull;
                    let is_full =
                        matches!(refused, Err(DiskError::Io { kind, .. }) if kind == full);
                    assert!(is_full, "{refused:?}");
                }
                disk.flush().await.unwrap();
                expect(&disk, 0, 100, 1).await;
            });
        });
    }
}

/// Runs `test` in a thread with a mount namespace of its own, in which `kind` is mounted on
/// `folder`: the mount goes with the thread. `false`, with a message, where that is not permitted.
#[expect(unsafe_code, reason = "unshare and mount have no safe wrapper here")]
fn with_mount(
    device: Option<&Path>,
    kind: &str,
    folder: &Path,
    options: &str,
    test: impl FnOnce() + Send,
) -> bool {
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let source = device.map_or(CString::new(kind).unwrap(), text);
    let (folder, kind) = (text(folder), CString::new(kind).unwrap());
    let options = CString::new(options).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (none, root) = (std::ptr::null(), c"/".as_ptr());
            // SAFETY: every pointer is a C string that outlives the calls. CLONE_FS unshares what
            // the thread has in common with the others, so that only it sees the new namespace.
            let mounted = unsafe {
                libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) == 0
                    && libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                        == 0
                    && libc::mount(
                        source.as_ptr(),
                        folder.as_ptr(),
                        kind.as_ptr(),
                        0,
                        options.as_ptr().cast(),
                    ) == 0
            };
            if mounted {
                test();
            } else {
                let error = std::io::Error::last_os_error();
                eprintln!("SKIPPED: {kind:?} cannot be mounted here: {error}");
            }
            mounted
        });
        match thread.join() {
            Ok(mounted) => mounted,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
