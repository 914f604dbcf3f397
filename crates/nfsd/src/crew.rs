//! The threads of a server, and how they help each other.
//!
//! A connection lives on one thread. If its client has several large READs under way, that thread
//! alone would gather the pages of one reply while nobody sends, and send it while nobody gathers.
//! So large READs beyond the first run on an idle thread, if there is one. The connection's own
//! thread sends their replies.
//!
//! A thread is idle while it serves no connection and carries out nothing for others. So each helps
//! one connection at a time. A call that comes to it meanwhile waits for one READ at most.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

/// One thread's view of the others.
#[derive(Debug)]
pub(crate) struct Crew {
    load: Load,
    others: Vec<Mate>,
}

/// How many things a thread does at the moment.
type Load = Arc<AtomicUsize>;

#[derive(Clone, Debug)]
struct Mate {
    runtime: Handle,
    load: Load,
}

/// A thread is busy as long as this exists.
#[derive(Debug)]
pub(crate) struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crew {
    /// A runtime that has no others.
    ///
    /// # Errors
    /// As [`Crew::of`].
    pub(crate) fn alone() -> io::Result<(Runtime, Crew)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok((runtime, Crew { load: Load::default(), others: Vec::new() }))
    }

    /// That many runtimes, each for a thread of its own, and each one's view of the others.
    ///
    /// # Errors
    /// Errors of the system if there can be no runtime.
    pub(crate) fn of(threads: usize) -> io::Result<Vec<(Runtime, Crew)>> {
        let build = |_| Builder::new_current_thread().enable_all().build();
        let runtimes: Vec<Runtime> = (0..threads).map(build).collect::<Result<_, _>>()?;
        let mate =
            |runtime: &Runtime| Mate { runtime: runtime.handle().clone(), load: Load::default() };
        let mates: Vec<Mate> = runtimes.iter().map(mate).collect();
        let crew = |(number, runtime)| {
            // Each looks at the next one first.
            let mut others = mates.clone();
            others.rotate_left(number);
            let load = others.remove(0).load;
            (runtime, Crew { load, others })
        };
        Ok(runtimes.into_iter().enumerate().map(crew).collect())
    }

    /// This thread serves a connection now.
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        self.load.fetch_add(1, Ordering::Relaxed);
        AtWork(&self.load)
    }

    /// Whether there is a thread that is idle.
    pub(crate) fn has_idle(&self) -> bool {
        self.others.iter().any(|mate| mate.load.load(Ordering::Relaxed) == 0)
    }

    /// Carries `work` out on an idle thread; gives it back if there is none. The future is ready
    /// when the work is done; never, if that thread ends before.
    pub(crate) fn hand_over<W>(
        &self,
        work: W,
    ) -> Result<impl Future<Output = W::Output> + use<W>, W>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        let begin =
            |load: &Load| load.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let Some(mate) = self.others.iter().find(|mate| begin(&mate.load)) else {
            return Err(work);
        };
        let load = Arc::clone(&mate.load);
        let task = mate.runtime.spawn(async move {
            let _at_work = AtWork(&load);
            work.await
        });
        Ok(async move {
            match task.await {
                Ok(done) => done,
                Err(_) => pending().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the second of three threads' runtime while the first hands over to it.
    #[test]
    fn work_goes_to_the_next_thread_that_is_idle() {
        let mut crews = Crew::of(3).unwrap().into_iter();
        let [(first, own), (second, next), (_third, last)] =
            [(); 3].map(|()| crews.next().unwrap());
        let (_own, at_work, _last) = (own.at_work(), next.at_work(), last.at_work());
        let Err(work) = own.hand_over(async { std::thread::current().id() }) else {
            panic!("all are busy")
        };
        assert!(!own.has_idle());
        // It is busy itself, which only matters to the others.
        drop(at_work);
        assert!(own.has_idle() && last.has_idle() && !next.has_idle());
        let Ok(handed_over) = own.hand_over(work) else { panic!("one is idle") };
        assert!(!own.has_idle(), "one thing at a time");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || second.block_on(stopped));
        assert_eq!(first.block_on(handed_over), thread.thread().id());
        assert!(own.has_idle());
        stop.send(()).unwrap();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn one_thread_has_nobody() {
        let (_runtime, crew) = Crew::of(1).unwrap().remove(0);
        assert!(!crew.has_idle() && crew.hand_over(async {}).is_err());
    }
}
