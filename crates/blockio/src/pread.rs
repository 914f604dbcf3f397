//! The engine without io_uring: one blocking system call per operation, on tokio's blocking pool.
//!
//! Invariants:
//! - An accepted request runs to its end even if its future is dropped.
//! - Outside of any tokio runtime the call is made at once, on the calling thread: tools that only
//!   inspect need no runtime.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::ReadWriteFlags;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::request::{Kind, RETRIES_MAX, Request, is_transient};
use crate::{Page, SECTOR_BYTES};

/// A request that this engine has taken.
pub(crate) enum PreadOperation {
    Pool(JoinHandle<io::Result<Vec<Page>>>),
    /// Done on the calling thread.
    Done(io::Result<Vec<Page>>),
    /// Polled to its end.
    Taken,
}

/// Starts `request`.
pub(crate) fn start(request: Request) -> PreadOperation {
    match Handle::try_current() {
        Ok(runtime) => PreadOperation::Pool(runtime.spawn_blocking(move || run(request))),
        Err(_) => PreadOperation::Done(run(request)),
    }
}

impl Future for PreadOperation {
    type Output = io::Result<Vec<Page>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut *self {
            PreadOperation::Pool(handle) => match Pin::new(handle).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(result)) => result,
                // The runtime shuts down, so the request never ran (`run` does not panic).
                Poll::Ready(Err(_)) => Err(io::ErrorKind::Interrupted.into()),
            },
            PreadOperation::Done(result) => std::mem::replace(result, Ok(Vec::new())),
            PreadOperation::Taken => return Poll::Pending,
        };
        *self = PreadOperation::Taken;
        Poll::Ready(result)
    }
}

/// Carries out `request`, blocking the thread.
pub(crate) fn run(mut request: Request) -> io::Result<Vec<Page>> {
    let result = match &mut request.kind {
        Kind::Read(_) | Kind::Write { .. } => transfer(&mut request),
        Kind::Flush => rustix::fs::fdatasync(&*request.backing).map_err(io::Error::from),
        Kind::Discard { bytes } => {
            let result = request.backing.discard_blocking(request.start, *bytes);
            request.backing.discarded(result)
        }
    };
    request.finish(result)
}

/// Moves all pages, however the kernel cuts the transfer.
fn transfer(request: &mut Request) -> io::Result<()> {
    let total = request.transfer_bytes();
    let mut done = 0;
    let mut retries = 0;
    while done < total {
        match transfer_once(request, done) {
            Ok(0) => return Err(request.stuck()),
            Ok(bytes) => {
                done += bytes;
                retries = 0;
            }
            Err(error) if is_transient(&error) && retries < RETRIES_MAX => retries += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One system call for the rest after `done` bytes.
fn transfer_once(request: &mut Request, done: usize) -> io::Result<usize> {
    let (first, within) = (done / SECTOR_BYTES, done % SECTOR_BYTES);
    let offset = request.start + done as u64;
    let skip = |index: usize| if index == 0 { within } else { 0 };
    let backing = &*request.backing;
    match &mut request.kind {
        Kind::Read(pages) => {
            let rest = pages.iter_mut().skip(first).enumerate();
            let mut slices: Vec<IoSliceMut<'_>> = rest
                .filter_map(|(index, page)| page.get_mut(skip(index)..))
                .map(IoSliceMut::new)
                .collect();
            let flags = ReadWriteFlags::empty();
            Ok(rustix::io::preadv2(backing, &mut slices, offset, flags)?)
        }
        Kind::Write { pages, durable } => {
            let rest = pages.iter().skip(first).enumerate();
            let slices: Vec<IoSlice<'_>> = rest
                .filter_map(|(index, page)| page.get(skip(index)..))
                .map(IoSlice::new)
                .collect();
            let flags = match durable {
                true => ReadWriteFlags::DSYNC,
                false => ReadWriteFlags::empty(),
            };
            Ok(rustix::io::pwritev2(backing, &slices, offset, flags)?)
        }
        Kind::Flush | Kind::Discard { .. } => Ok(0),
    }
}
