//! The health that a disk knows of itself, by `smartctl`.
//!
//! Invariants:
//! - `smartctl` may hang with its disk, even beyond a kill. Nobody waits for it for longer than a
//!   limit, and none is started for a disk while an earlier one still runs.
//! - Its output is judged by total functions: whatever it prints is health, or no health.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use aquifer_api::{SmartInfo, time};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Why a disk's health is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SmartError {
    /// There is no such program.
    #[error("{} is not installed (package smartmontools)", .0.display())]
    NotInstalled(PathBuf),
    /// It is asked again later.
    #[error("{} did not answer for {patience:?}", program.display())]
    Late { program: PathBuf, patience: Duration },
    /// It said something else, or nothing.
    #[error("{} says no health: {why}", program.display())]
    NoHealth { program: PathBuf, why: String },
}

/// Asks `smartctl`.
#[derive(Debug)]
pub(crate) struct Smart {
    program: PathBuf,
    patience: Duration,
    /// Programs that a kill did not end, by device.
    stuck: Mutex<HashMap<String, Child>>,
}

impl Smart {
    pub fn new(program: PathBuf) -> Smart {
        Smart { program, patience: PATIENCE, stuck: Mutex::default() }
    }

    /// The health of a device.
    pub async fn ask(&self, device: &str) -> Result<SmartInfo, SmartError> {
        if self.is_stuck(device) {
            return Err(self.late());
        }
        let mut child = self.start(device).map_err(|error| self.not_started(&error))?;
        let mut said = Vec::new();
        let stdout = child.stdout.take();
        let read = async {
            if let Some(stdout) = stdout {
                // An error of a pipe leaves a part, which is no JSON.
                let _ = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut said).await;
            }
        };
        let in_time = timeout(self.patience, read).await.is_ok();
        self.end(device, child).await;
        match in_time {
            true => health(&said).map_err(|why| self.no_health(why)),
            false => Err(self.late()),
        }
    }

    fn start(&self, device: &str) -> std::io::Result<Child> {
        // A disk that sleeps is not woken for this.
        let words = ["--json=c", "-i", "-H", "-A", "-n", "standby", device];
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0).kill_on_drop(true).spawn()
    }

    fn not_started(&self, error: &std::io::Error) -> SmartError {
        match error.kind() {
            ErrorKind::NotFound => SmartError::NotInstalled(self.program.clone()),
            _ => self.no_health(error.to_string()),
        }
    }

    fn late(&self) -> SmartError {
        SmartError::Late { program: self.program.clone(), patience: self.patience }
    }

    fn no_health(&self, why: String) -> SmartError {
        SmartError::NoHealth { program: self.program.clone(), why }
    }

    /// Ends the program, and whatever it has started. One that does not end is remembered.
    async fn end(&self, device: &str, mut child: Child) {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        if timeout(END_PATIENCE, child.wait()).await.is_err() {
            self.stuck.lock().insert(device.into(), child);
        }
    }

    fn is_stuck(&self, device: &str) -> bool {
        let mut stuck = self.stuck.lock();
        stuck.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        stuck.contains_key(device)
    }
}

/// The health in the output of `smartctl --json`, or its reason.
fn health(said: &[u8]) -> Result<SmartInfo, String> {
    let said: Value = serde_json::from_slice(said).map_err(|_| "it printed no JSON".to_string())?;
    let at = |pointer: &str| said.pointer(pointer);
    let count = |pointer: &str| at(pointer).and_then(Value::as_u64);
    let Some(passed) = at("/smart_status/passed").and_then(Value::as_bool) else {
        let why = at("/smartctl/messages/0/string").and_then(Value::as_str);
        return Err(why.unwrap_or("it has none").chars().take(WHY_CHARS_MAX).collect());
    };
    let table = at("/ata_smart_attributes/table").and_then(Value::as_array);
    let attribute = |id: u64| {
        let mut rows = table?.iter();
        let row = rows.find(|row| row.get("id").and_then(Value::as_u64) == Some(id))?;
        row.pointer("/raw/value").and_then(Value::as_u64)
    };
    let nvme = |field: &str| count(&format!("/nvme_smart_health_information_log/{field}"));
    Ok(SmartInfo {
        passed,
        temperature_c: at("/temperature/current").and_then(Value::as_i64),
        power_on_hours: count("/power_on_time/hours"),
        reallocated_sectors: attribute(5).or_else(|| count("/scsi_grown_defect_list")),
        pending_sectors: attribute(197),
        uncorrectable_sectors: attribute(198),
        media_errors: nvme("media_errors"),
        used_percent: nvme("percentage_used")
            .or_else(|| count("/scsi_percentage_used_endurance_indicator")),
        asked_ns: time::now_s().saturating_mul(1_000_000_000),
    })
}

/// Longest wait for an answer, and for the end of the program after a kill.
const PATIENCE: Duration = Duration::from_secs(10);
const END_PATIENCE: Duration = Duration::from_secs(1);
/// An answer has some 20 KiB.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
const WHY_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests;
