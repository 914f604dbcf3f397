//! A runtime, its thread, and the connections that live there.
//!
//! Invariants:
//! - A worker outlives its connections. It ends on request, and then drops all that is still under
//!   way on it. The engine may have spawned tasks of its own on this runtime, so it must not end
//!   before the pool is out of service.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use aquifer_nfs::Why;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::connection::{Common, Connection, Phase, Readers};
use crate::crew::Crew;
use crate::limits::HANDOVER_MAX;
use crate::peers::Seat;
use crate::precedence::yield_to_clients;

/// Work for a worker's thread: makes a future there.
pub(crate) type Service = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

enum Job {
    Connection(StdStream, SocketAddr, Slot),
    /// A connection that another worker gave back.
    Known(Box<Connection>, Slot),
    Service(Service),
    End,
}

/// A runtime on a thread of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
    thread: Option<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
}

/// Hands connections to workers.
#[derive(Clone, Debug)]
pub(crate) struct Handover {
    jobs: mpsc::Sender<Job>,
    connections: Arc<AtomicUsize>,
}

/// The purpose of a worker.
#[derive(Clone, Debug)]
pub(crate) enum Duty {
    /// It serves clients.
    Clients(usize),
    /// The lobby, which yields to all others. It accepts connections and keeps those of strangers.
    /// A connection that becomes a client's goes to one of these.
    Lobby(Vec<Handover>),
}

impl Duty {
    fn thread_name(&self) -> String {
        match self {
            Duty::Clients(number) => format!("nfs-{number}"),
            Duty::Lobby(_) => "nfs-lobby".into(),
        }
    }
}

/// A connection's place in the counts: of its worker, and of all.
struct Slot {
    common: Arc<Common>,
    worker: Arc<AtomicUsize>,
    ended: Arc<Notify>,
    seat: Arc<Seat>,
}

impl Slot {
    fn new(
        common: &Arc<Common>,
        worker: &Arc<AtomicUsize>,
        ended: &Arc<Notify>,
        seat: Arc<Seat>,
    ) -> Self {
        worker.fetch_add(1, Ordering::Relaxed);
        common.stats.connections.fetch_add(1, Ordering::Relaxed);
        let (common, worker, ended) = (Arc::clone(common), Arc::clone(worker), Arc::clone(ended));
        Slot { common, worker, ended, seat }
    }

    /// It belongs to another worker from now on.
    fn hand_over(&mut self, worker: &Arc<AtomicUsize>) {
        worker.fetch_add(1, Ordering::Relaxed);
        std::mem::replace(&mut self.worker, Arc::clone(worker)).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.worker.fetch_sub(1, Ordering::Relaxed);
        self.common.peers.leave(&self.seat);
        self.common.stats.connections.fetch_sub(1, Ordering::Relaxed);
        self.ended.notify_waiters();
    }
}

impl Worker {
    /// Starts a runtime on a thread of its own. All workers share the count `fragmented`.
    ///
    /// # Errors
    /// Errors of the system if there can be no more threads.
    pub(crate) fn start(
        duty: Duty,
        (runtime, crew): (Runtime, Crew),
        common: &Arc<Common>,
        phase: &watch::Receiver<Phase>,
        fragmented: &Arc<AtomicUsize>,
    ) -> io::Result<Self> {
        let (jobs, incoming) = mpsc::channel(HANDOVER_MAX);
        let connections = match duty {
            Duty::Clients(_) => Arc::default(),
            Duty::Lobby(_) => Arc::clone(&common.stats.in_lobby),
        };
        let (common, phase, fragmented) = (Arc::clone(common), phase.clone(), fragmented.clone());
        let thread = std::thread::Builder::new().name(duty.thread_name());
        let thread = thread.spawn(move || {
            let is_lobby = matches!(duty, Duty::Lobby(_));
            if is_lobby {
                yield_to_clients();
            }
            let meter = common.nfs.traffic().meter();
            let readers = Arc::new(Readers::new(fragmented, meter, crew, is_lobby));
            let place = Place { duty, common, readers, phase };
            runtime.block_on(place.work(incoming));
        })?;
        Ok(Worker { jobs, thread: Some(thread), connections })
    }

    pub(crate) fn handover(&self) -> Handover {
        Handover { jobs: self.jobs.clone(), connections: Arc::clone(&self.connections) }
    }

    /// Runs a service on this worker until the worker ends.
    pub(crate) async fn spawn(&self, service: Service) {
        // Only a worker that panicked takes no jobs, and the log has that.
        let _ = self.jobs.send(Job::Service(service)).await;
    }

    /// Runs a service on this worker until the server stops.
    pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        phase: &watch::Receiver<Phase>,
        service: impl FnOnce() -> F + Send + 'static,
    ) {
        let mut phase = phase.clone();
        let until_stopped = || async move {
            tokio::select! {
                _ = phase.wait_for(|phase| *phase != Phase::Serve) => {}
                () = service() => {}
            }
        };
        self.spawn(Box::new(|| Box::pin(until_stopped()))).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The queue is full if the worker does not take its jobs: then it ends when it finds no
        // sender.
        let _ = self.jobs.try_send(Job::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a runtime of the server panicked");
        }
    }
}

impl Handover {
    /// Hands a connection over. Waits for a worker that is busy: the listening socket keeps others
    /// meanwhile. The connection is closed if the worker has ended.
    pub(crate) async fn give(
        &self,
        (stream, peer): (StdStream, SocketAddr),
        seat: Arc<Seat>,
        common: &Arc<Common>,
        ended: &Arc<Notify>,
    ) {
        let slot = Slot::new(common, &self.connections, ended, seat);
        if self.jobs.send(Job::Connection(stream, peer, slot)).await.is_err() {
            common.nfs.tell(peer.ip(), Why::NoWorker);
        }
    }

    /// Hands over a connection that the lobby has given back. It is closed as by [`Self::give`].
    async fn give_known(&self, connection: Connection, mut slot: Slot) {
        slot.hand_over(&self.connections);
        let (peer, common) = (connection.peer(), Arc::clone(&slot.common));
        if self.jobs.send(Job::Known(Box::new(connection), slot)).await.is_err() {
            common.nfs.tell(peer.ip(), Why::NoWorker);
        }
    }
}

/// The worker with the fewest connections.
pub(crate) fn fewest(workers: &[Handover]) -> Option<&Handover> {
    workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
}

/// The environment of a worker's connections.
struct Place {
    duty: Duty,
    common: Arc<Common>,
    readers: Arc<Readers>,
    phase: watch::Receiver<Phase>,
}

impl Place {
    async fn work(self, mut jobs: mpsc::Receiver<Job>) {
        let mut connections = JoinSet::new();
        while let Some(job) = next_job(&mut jobs, &mut connections).await {
            let (connection, peer, slot) = match job {
                Job::Connection(stream, peer, slot) => {
                    let stream = TcpStream::from_std(stream);
                    let (common, readers) = (&self.common, &self.readers);
                    let new = |stream| Connection::new(stream, peer, common, readers, &slot.seat);
                    (stream.map(new), peer, slot)
                }
                Job::Known(connection, slot) => {
                    let peer = connection.peer();
                    (connection.settle(&self.readers), peer, slot)
                }
                Job::Service(service) => {
                    tokio::task::spawn(service());
                    continue;
                }
                Job::End => return,
            };
            match connection {
                Ok(connection) => self.serve(connection, slot, &mut connections),
                Err(error) => tracing::warn!(client = %peer, %error, "connection lost"),
            }
        }
    }

    fn serve(&self, connection: Connection, slot: Slot, connections: &mut JoinSet<()>) {
        let (phase, duty) = (self.phase.clone(), self.duty.clone());
        connections.spawn(async move {
            let known = connection.run(phase).await;
            if let (Some(known), Duty::Lobby(workers)) = (known, &duty)
                && let Some(worker) = fewest(workers)
            {
                worker.give_known(known, slot).await;
            }
        });
    }
}

/// The next job. Ended connections are dropped first, all of them: each holds memory as long as it
/// is in the set.
async fn next_job<J>(jobs: &mut mpsc::Receiver<J>, connections: &mut JoinSet<()>) -> Option<J> {
    loop {
        // The pattern must match every end. A branch that did not match is switched off until the
        // next job, and the other ends pile up.
        tokio::select! {
            biased;
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection panicked");
                }
            }
            job = jobs.recv() => return job,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn connections_that_ended_leave_nothing_behind() {
        let (sender, mut jobs) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        for _ in 0..1000 {
            connections.spawn(async {});
        }
        connections.spawn(async { std::panic::resume_unwind(Box::new("a bug")) });
        connections.spawn(std::future::pending());
        // No job comes while they end.
        let ended = tokio::time::timeout(Duration::from_millis(100), async {
            next_job(&mut jobs, &mut connections).await
        });
        assert!(ended.await.is_err(), "no job, and it waits");
        assert_eq!(connections.len(), 1, "the one that lives");
        sender.send(7).await.unwrap();
        assert_eq!(next_job(&mut jobs, &mut connections).await, Some(7));
        drop(sender);
        assert_eq!(next_job(&mut jobs, &mut connections).await, None);
    }
}
