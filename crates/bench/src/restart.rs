//! How long clients wait when the server was killed: from its start to the first answer with data.
//!
//! Invariant: each round leaves [`BATCHES`] batches in the log, one stable write each, and the
//! disks are slow from the kill to the answer. What is read first is compared.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::load::Life;
use crate::target::Target;
use crate::{Error, Result, workload};

/// One server's restarts.
#[derive(Clone, Debug, Serialize)]
pub struct Restart {
    /// The target.
    pub name: String,
    /// Batches that the import found, for each round.
    pub batches: Vec<u64>,
    /// Milliseconds from the start to the first answer, for each round.
    pub answered_ms: Vec<f64>,
}

/// Measures targets in turn; only those that are Aquifer, and keep what they acknowledged.
///
/// # Errors
/// Those of the targets.
pub fn run(targets: &mut [Target], rounds: usize) -> Result<Vec<Restart>> {
    // With `sync=disabled` a kill takes what was acknowledged, as it must.
    let is_ours = |name: &str| name.starts_with("aquifer") && !name.ends_with("-nosync");
    let mut ours: Vec<&mut Target> =
        targets.iter_mut().filter(|target| is_ours(target.name())).collect();
    let new = |target: &&mut Target| Restart {
        name: target.name().into(),
        batches: Vec::new(),
        answered_ms: Vec::new(),
    };
    let mut all: Vec<Restart> = ours.iter().map(new).collect();
    for _ in 0..rounds {
        for (target, of) in ours.iter_mut().zip(&mut all) {
            let (batches, answered) = one(target)?;
            of.batches.push(batches);
            of.answered_ms.push(answered.as_secs_f64() * 1e3);
        }
    }
    Ok(all)
}

/// One kill and restart: batches in the log, and the time to the first answer.
fn one(target: &mut Target) -> Result<(u64, Duration)> {
    target.throttle(false)?;
    target.pass(&workload::depth1(), 1, Life::Calls(BATCHES), &mut |_| Ok(()))?;
    target.kill()?;
    target.throttle(true)?;
    let start = Instant::now();
    target.serve()?;
    let look = workload::reads_4k_1();
    loop {
        match target.pass(&look, 1, Life::Calls(1), &mut |_| Ok(())) {
            Ok(_) => break,
            Err(mismatch @ Error::Mismatch(_)) => return Err(mismatch),
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
    let answered = start.elapsed();
    target.throttle(false)?;
    target.compare()?;
    let said = target.log()?;
    let noted = said.rsplit_once(NOTE.0).and_then(|(_, rest)| rest.split_once(NOTE.1));
    let batches = noted.and_then(|(count, _)| count.parse().ok());
    let batches = batches.ok_or_else(|| Error::Malformed(format!("no batches: {said}")))?;
    Ok((batches, answered))
}

/// A description for people.
pub const WHAT: &str = "kill -9 with 2,000 batches in the log, on slow disks: until data is read";

const BATCHES: u32 = 2000;
const NOTE: (&str, &str) = ("intent log: ", " batches to replay");
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);
