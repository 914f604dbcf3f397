//! Aged pools: full to a percentage, and what is free lies scattered.
//!
//! A file fills the pool to that percentage. Then as many random pages of 4 KiB are written over as
//! it has. Each takes a place that was free, and frees one between others. At 80 % that is four
//! times what is free, at 90 % nine times: nothing is left of the free space as it was.

use super::Bench;
use super::files::Beside;
use crate::load::Life;
use crate::pattern::PAGE_BYTES;
use crate::{Error, Result, workload};

impl Bench {
    /// Fills the pool to `percent` and ages it. The file stays until the end of the run.
    pub(super) fn age(&mut self, percent: u8) -> Result<Beside> {
        let root = self.target.mount()?;
        let space = self.target.connect()?.space(root)?;
        let used = space.total_bytes.saturating_sub(space.free_bytes);
        let wanted = space.total_bytes / 100 * u64::from(percent);
        let bytes = wanted.saturating_sub(used) >> 20 << 20;
        if bytes == 0 {
            return Err(Error::Malformed(format!("the pool is {percent} % full without it")));
        }
        eprintln!(
            "a file of {} MiB fills the pool to {percent} % and is written over",
            bytes >> 20
        );
        let mut ballast = self.make("ballast.img", bytes, bytes)?;
        let pages = u32::try_from(bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX);
        self.on(&mut ballast, |bench| {
            bench.target.pass(&workload::wear(), 1, Life::Calls(pages), &mut |_| Ok(()))?;
            bench.target.compare()
        })?;
        self.settle()?;
        self.until_freed()?;
        let space = self.target.connect()?.space(root)?;
        let free = space.free_bytes as f64 * 100.0 / space.total_bytes as f64;
        let of = ((100.0 - free) / f64::from(percent), "what was asked for");
        self.figures.add("the pool is full to", (100.0 - free, "%"), of);
        Ok(ballast)
    }
}
