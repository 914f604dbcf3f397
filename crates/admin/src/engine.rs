//! A thread for each pool, on which the engine's own work runs.
//!
//! # Where the engine's tasks run, and why
//! - The thread has a current-thread runtime, so one io_uring. The pool is opened there, so the txg
//!   loop lives there (`World::spawn` stays on the caller's runtime), with every write of a sync.
//!   Merging trees and compressing a txg takes seconds of a core. On a thread of its own this work
//!   shares the cores with the NFS runtimes by the kernel's scheduler. It never blocks a request on
//!   the same runtime.
//! - The administrator's acts on datasets run there too. They wait for a txg, and must not be
//!   dropped half-way when the caller hangs up.
//! - Tasks that a request spawns stay on the NFS runtime that read it: batches of the log, early
//!   writes. A stable WRITE crosses no thread. A sync and a request meet only at the pool's locks.
//! - Each pool has its own thread: a pool whose disk hangs delays no other.
//!
//! Invariant: work handed to the thread runs to its end, unless the thread is stopped first.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use aquifer_pool::BoxFuture;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::events::THREAD_OF_POOL;

/// The thread of one pool.
#[derive(Debug)]
pub(crate) struct EngineThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The work panicked, or the thread was stopped.
#[derive(Debug, thiserror::Error)]
#[error("the engine's work did not come to its end: {0}")]
pub(crate) struct Unfinished(String);

impl Unfinished {
    /// Nobody waits for the pool's disks any more.
    pub fn of_left() -> Unfinished {
        Unfinished("the pool was exported by force".into())
    }
}

impl EngineThread {
    /// Starts a thread for the pool `name`.
    pub fn start(name: &str) -> io::Result<EngineThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let builder = std::thread::Builder::new().name(format!("{THREAD_OF_POOL}{name}"));
        let thread = builder.spawn(move || {
            // A dropped sender is an error, and ends the thread just as well.
            let _ = runtime.block_on(stopped);
            // Do not just drop it: that waits for blocking calls, and a disk may hang in one.
            runtime.shutdown_background();
        })?;
        Ok(EngineThread { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// The runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs `work` on the thread. It continues even if the caller goes away.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Unfinished> {
        let (done, result) = oneshot::channel();
        // Boxed into one type of task: otherwise the runtime is compiled again for each, a sixth of
        // this crate.
        let work: BoxFuture<'static, ()> = Box::pin(async move {
            // The caller may not wait any more.
            let _ = done.send(work.await);
        });
        self.handle.spawn(work).await.map_err(|error| Unfinished(error.to_string()))?;
        result.await.map_err(|error| Unfinished(error.to_string()))
    }

    /// Ends the thread; drops the tasks that still run there.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("a pool's thread ended by a panic");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_runtime(test: impl Future<Output = ()>) {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn work_runs_on_the_thread_of_the_pool() {
        on_runtime(async {
            let engine = EngineThread::start("tank").unwrap();
            let name = || std::thread::current().name().map(str::to_string);
            assert_eq!(engine.run(async move { name() }).await.unwrap(), Some("pool tank".into()));
            engine.stop().await;
        });
    }

    #[test]
    fn work_goes_on_when_the_caller_goes_away() {
        on_runtime(async {
            let engine = EngineThread::start("tank").unwrap();
            let (done, seen) = oneshot::channel();
            {
                let work = engine.run(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    done.send(()).unwrap();
                });
                let mut work = std::pin::pin!(work);
                // Started, and then dropped.
                assert!(futures_util::poll!(&mut work).is_pending());
            }
            seen.await.unwrap();
            engine.stop().await;
        });
    }

    #[test]
    fn a_panic_is_told_and_harms_nothing_else() {
        on_runtime(async {
            let engine = EngineThread::start("tank").unwrap();
            let error = engine.run(async { panic!("as it must") }).await.unwrap_err();
            assert!(error.to_string().contains("did not come to its end"));
            assert_eq!(engine.run(async { 7 }).await.unwrap(), 7);
            engine.stop().await;
        });
    }
}
