//! Events that cannot be caused from outside: transfers that the kernel cuts short, rings that
//! fail, a kernel that never answers or refuses.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::flight::{Flight, Step};
use super::ring::{self, Ring, Turn, UringOperation};
use crate::backing::{Backing, BackingKind};
use crate::request::{Kind, RETRIES_MAX, Request};
use crate::{Page, PageMut, SECTOR_BYTES};

fn backing(fd: impl Into<OwnedFd>) -> Arc<Backing> {
    let size = 1 << 30;
    Arc::new(Backing::new(fd.into(), "test".into(), BackingKind::Image, size, false, true))
}

fn null() -> Arc<Backing> {
    backing(std::fs::File::open("/dev/null").unwrap())
}

fn request(backing: &Arc<Backing>, kind: Kind) -> Request {
    Request { backing: Arc::clone(backing), start: 0, kind }
}

fn reading(count: usize) -> Kind {
    Kind::Read((0..count).map(|_| PageMut::zeroed()).collect())
}

fn writing(count: usize, durable: bool) -> Kind {
    let pages = vec![Page::with_prefix(&[7; SECTOR_BYTES]); count];
    Kind::Write { pages, durable }
}

/// Takes turns, as the driver would, until `operation` has ended.
fn drive(ring: &Ring, operation: &mut UringOperation) -> io::Result<Vec<Page>> {
    let mut cx = std::task::Context::from_waker(Waker::noop());
    for _ in 0..5000 {
        ring.turn(Waker::noop(), &mut Vec::new());
        if let Poll::Ready(result) = Future::poll(std::pin::Pin::new(&mut *operation), &mut cx) {
            return result;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never ended");
}

#[test]
fn answers_of_the_kernel_are_understood() {
    let again = |flight: &mut Flight, answer| matches!(flight.complete(answer), Step::Again);
    // Cut short, within a page too, then the rest.
    let mut flight = Flight::new(request(&null(), reading(3)));
    assert!(again(&mut flight, 4096));
    assert!(again(&mut flight, 1000));
    assert!(again(&mut flight, -libc::EINTR));
    assert!(!again(&mut flight, 3 * 4096 - 5096));
    assert!(matches!(flight.outcome, Some(Ok(()))));
    // No further byte.
    let mut flight = Flight::new(request(&null(), reading(1)));
    assert!(!again(&mut flight, 0));
    let end = flight.outcome.unwrap().unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    // A transient error that never ends is an error, and progress restarts the count.
    let mut flight = Flight::new(request(&null(), writing(2, false)));
    for _ in 0..2 {
        for _ in 0..RETRIES_MAX {
            assert!(again(&mut flight, -libc::EAGAIN));
        }
        let _ = again(&mut flight, 1);
    }
    for _ in 0..RETRIES_MAX {
        assert!(again(&mut flight, -libc::ECANCELED));
    }
    assert!(!again(&mut flight, -libc::ECANCELED));
    let end = flight.outcome.unwrap().unwrap_err();
    assert_eq!(end.raw_os_error(), Some(libc::ECANCELED));
}

#[test]
fn a_failed_flush_spoils_all_later_ones_even_if_nobody_waits() {
    for (kind, answer, spoils) in [
        (Kind::Flush, -libc::EIO, true),
        (writing(1, true), -libc::EIO, true),
        (writing(1, true), -libc::ENOSPC, false),
        (writing(1, false), -libc::EIO, false),
        (reading(1), -libc::EIO, false),
        (Kind::Flush, 0, false),
    ] {
        let backing = null();
        let mut flight = Flight::new(request(&backing, kind));
        flight.abandoned = true;
        assert!(matches!(flight.complete(answer), Step::Landed));
        assert_eq!(backing.trusted().is_err(), spoils);
    }
}

#[test]
fn a_discard_that_is_not_supported_succeeds_and_is_not_asked_again() {
    let backing = null();
    let mut flight = Flight::new(request(&backing, Kind::Discard { bytes: 4096 }));
    assert!(matches!(flight.complete(-libc::EOPNOTSUPP), Step::Landed));
    assert!(matches!(flight.outcome, Some(Ok(()))));
    assert!(!backing.discards());
    let mut flight = Flight::new(request(&backing, Kind::Discard { bytes: 4096 }));
    assert!(matches!(flight.complete(-libc::EIO), Step::Landed));
    assert!(matches!(flight.outcome, Some(Err(_))));
}

/// A pipe answers a read with whatever is in it.
#[test]
fn a_read_that_comes_in_pieces_is_put_together() {
    let (reader, mut writer) = io::pipe().unwrap();
    let ring = Arc::new(Ring::new().unwrap());
    let backing = backing(reader);
    let Ok(mut operation) = Arc::clone(&ring).start(request(&backing, reading(3))) else {
        panic!("refused");
    };
    let content: Vec<u8> = (0..=250).cycle().take(3 * SECTOR_BYTES).collect();
    let expected = content.clone();
    let sender = std::thread::spawn(move || {
        for piece in content.chunks(1234) {
            writer.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    let pages = drive(&ring, &mut operation).unwrap();
    sender.join().unwrap();
    assert!(crate::buf::bytes_of(&pages) == expected);
    ring.close(Duration::ZERO);
}

#[test]
fn a_kernel_that_never_answers_keeps_the_memory() {
    let (reader, mut writer) = io::pipe().unwrap();
    let ring = Arc::new(Ring::new().unwrap());
    let backing = backing(reader);
    let start = || Arc::clone(&ring).start(request(&backing, reading(1)));
    let (Ok(mut kept), Ok(dropped), Ok(other)) = (start(), start(), start()) else {
        panic!("refused");
    };
    drop(dropped);
    ring.close(Duration::from_millis(50));
    assert!(start().is_err(), "a closed ring takes nothing");
    let gone = drive(&ring, &mut kept).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::EINTR));
    drop((kept, other));
    // The test's own, the one that was leaked, and nothing else.
    assert_eq!(Arc::strong_count(&ring), 2);
    // The kernel may still write there: the flights have not been freed.
    writer.write_all(&[1; 3 * SECTOR_BYTES]).unwrap();
    assert_eq!(Arc::strong_count(&backing), 4);
}

#[test]
fn a_failed_ring_answers_everything_and_takes_nothing() {
    let ring = Arc::new(Ring::new().unwrap());
    let backing = null();
    let start = || Arc::clone(&ring).start(request(&backing, writing(1, false)));
    let (Ok(mut kept), Ok(dropped)) = (start(), start()) else {
        panic!("refused");
    };
    drop(dropped);
    ring.fail_for_test(libc::EBADF);
    let failed = drive(&ring, &mut kept).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EBADF));
    assert!(start().is_err());
    assert!(matches!(ring.turn(Waker::noop(), &mut Vec::new()), Turn::Finished));
    drop(kept);
    assert_eq!(Arc::strong_count(&backing), 1, "memory is left behind");
}

#[test]
fn a_retired_ring_ends_with_its_last_flight() {
    let (reader, mut writer) = io::pipe().unwrap();
    let ring = Arc::new(Ring::new().unwrap());
    let backing = backing(reader);
    let Ok(mut operation) = Arc::clone(&ring).start(request(&backing, reading(1))) else {
        panic!("refused");
    };
    ring.retire();
    assert!(matches!(ring.turn(Waker::noop(), &mut Vec::new()), Turn::Wait));
    writer.write_all(&[1; SECTOR_BYTES]).unwrap();
    assert_eq!(drive(&ring, &mut operation).unwrap().len(), 1);
    assert!(matches!(ring.turn(Waker::noop(), &mut Vec::new()), Turn::Finished));
}

/// On a thread where io_uring is forbidden (as container runtimes do), blocking calls serve.
#[test]
fn a_thread_without_a_ring_uses_blocking_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    crate::create_image(&path, 16).unwrap();
    let options = crate::OpenOptions::exclusive().with_engine(crate::Engine::Uring);
    let disk = crate::FileDisk::open(&path, options).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            forbid_io_uring();
            assert_eq!(ring::probe().unwrap_err().raw_os_error(), Some(libc::EPERM));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                use crate::Disk;
                disk.write(3, vec![Page::with_prefix(b"blocking")]).await.unwrap();
                disk.flush().await.unwrap();
                assert!(disk.read(3, 1).await.unwrap()[0].starts_with(b"blocking"));
            });
        });
    });
}

/// Makes `io_uring_setup` fail with EPERM on this thread, and on no other.
#[expect(unsafe_code, reason = "seccomp has no safe wrapper here")]
fn forbid_io_uring() {
    let statement =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut filter = [
        // The number of the system call is the first word of the data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter outlive the call that copies them.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(installed, "seccomp: {}", io::Error::last_os_error());
}
