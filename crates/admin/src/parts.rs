//! Parts of the daemon that may be off while the others work: an address of NFS, the API on TCP, a
//! file of the state directory.
//!
//! A part that cannot work is a problem of the server as long as that is so: status, alerts, page
//! and doctor show it. It is tried again ([`Parts::until`]), so that it works as soon as what is in
//! the way has gone.
//!
//! Invariant: no part keeps another from starting.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_api::Problem;
use parking_lot::Mutex;
use tokio::time::sleep;

/// Problems of the parts that are off, by part.
#[derive(Debug, Default)]
pub struct Parts(Mutex<BTreeMap<String, Problem>>);

impl Parts {
    /// A part works, or does not.
    pub fn note(&self, part: &str, problem: Option<Problem>) {
        let mut off = self.0.lock();
        match problem {
            Some(problem) => {
                let before = off.insert(part.into(), problem.clone());
                if before.is_none_or(|before| before.status != problem.status) {
                    let (code, status) = (&problem.code, &problem.status);
                    tracing::error!(class = "part.off", part, code, status, "a part is off");
                }
            }
            None => {
                if off.remove(part).is_some() {
                    tracing::info!(class = "part.works", part, "a part works again");
                }
            }
        }
    }

    /// Tries until a part works, and returns what it works with.
    pub async fn until<T>(&self, part: &str, mut attempt: impl FnMut() -> Result<T, Problem>) -> T {
        loop {
            match attempt() {
                Ok(works) => {
                    self.note(part, None);
                    return works;
                }
                Err(problem) => self.note(part, Some(problem)),
            }
            sleep(RETRY).await;
        }
    }

    /// Everything that is off.
    pub fn problems(&self) -> Vec<Problem> {
        self.0.lock().values().cloned().collect()
    }
}

/// Between two tries.
pub const RETRY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use aquifer_api::{Severity, codes};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_is_a_problem_until_it_works() {
        let parts = Parts::default();
        let mut left = 3;
        let works = parts.until("api", || {
            left -= 1;
            let problem = || {
                let status = format!("{left} to go");
                Problem::new(codes::API_NOT_SERVED, Severity::Error, status, None)
            };
            if left == 0 { Ok(7) } else { Err(problem()) }
        });
        tokio::pin!(works);
        assert!(futures_util::poll!(&mut works).is_pending());
        assert_eq!(parts.problems()[0].status, "2 to go.");
        assert_eq!(works.await, 7);
        assert_eq!(parts.problems(), []);
    }
}
