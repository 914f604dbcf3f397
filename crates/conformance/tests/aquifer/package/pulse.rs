//! A client with one durable write outstanding, that notes how long it waits.

use std::time::{Duration, Instant};

use aquifer_conformance::{Error, Result};
use aquifer_nfs::proto::v3::{
    Args3, NfsFh3, Read3Args, Read3Res, StableHow, Write3Args, Write3Head, Write3Res,
};
use aquifer_rig::wire::{Connection, decode, granted};
use aquifer_rpc::xdr::Span;

use crate::place::EXPORT;

const SLOTS: u64 = 64;
const SLOT_BYTES: usize = 4096;

/// Writes numbers, one after the other, each into its slot of a file.
#[derive(Debug, Default)]
pub struct Pulse {
    file: Option<NfsFh3>,
    /// Of these writes, the answer came.
    answered: u64,
    last: Option<Instant>,
    pause: Duration,
}

impl Pulse {
    /// Writes until the connection breaks.
    ///
    /// # Errors
    /// [`Error::Io`] when it does.
    pub fn live(&mut self, connection: &mut Connection) -> Result<()> {
        let file = self.file(connection)?;
        loop {
            // The first write is sent again if its answer did not come.
            let number = self.answered + 1;
            let bytes = content(number);
            let count = u32::try_from(bytes.len()).unwrap();
            let offset = number % SLOTS * SLOT_BYTES as u64;
            let head = Write3Head { file, offset, count, stable: StableHow::FileSync };
            let args = Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: &bytes } });
            let done =
                connection.call_nfs(&args, |from| granted("WRITE", decode::<Write3Res>(from)?))?;
            assert_eq!((done.count, done.committed), (count, StableHow::FileSync));
            let now = Instant::now();
            let waited = self.last.replace(now).map(|last| now - last);
            self.pause = self.pause.max(waited.unwrap_or_default());
            self.answered = number;
        }
    }

    fn file(&mut self, connection: &mut Connection) -> Result<NfsFh3> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let root = connection.mount(EXPORT)?;
        Ok(*self.file.insert(connection.create(root, "pulse")?))
    }

    /// Reads all slots: each has the last number that was answered for it, or the next one, whose
    /// answer did not come.
    pub fn verify(&self, connection: &mut Connection) -> Result<()> {
        let file = self.file.ok_or_else(|| Error::Malformed("nothing was written".into()))?;
        for number in self.answered.saturating_sub(SLOTS - 1).max(1)..=self.answered {
            let offset = number % SLOTS * SLOT_BYTES as u64;
            let args = Args3::Read(Read3Args { file, offset, count: SLOT_BYTES as u32 });
            let is_right = connection.call_nfs(&args, |from| {
                let read = granted("READ", decode::<Read3Res<'_>>(from)?)?;
                let is = |number| *read.data == *content(number);
                Ok(is(number) || number + SLOTS == self.answered + 1 && is(number + SLOTS))
            })?;
            if !is_right {
                return Err(Error::Mismatch(format!("LOST: write {number} of {}", self.answered)));
            }
        }
        Ok(())
    }

    /// The longest time between two answers.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// How many writes were answered.
    pub fn beats(&self) -> u64 {
        self.answered
    }
}

fn content(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(SLOT_BYTES / 8)
}
