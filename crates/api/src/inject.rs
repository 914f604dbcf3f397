//! Faults that tests put between the engine and a disk. Only debug builds have them.

use serde::{Deserialize, Serialize};

use crate::pool_done::PoolDone;
use crate::request::{On, Operation, request};

/// `POST /pools/{name}/inject`: changes the faults of a disk. Others that it has stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InjectRequest {
    /// The disk, as in a [`DiskRequest`](crate::DiskRequest). It may be away.
    pub disk: String,
    /// First, forget all faults. What hangs goes on.
    #[serde(default)]
    pub clear: bool,
    /// This part of the reads fails.
    #[serde(default)]
    pub read_errors: Option<Share>,
    /// This part of the writes fails.
    #[serde(default)]
    pub write_errors: Option<Share>,
    /// This part of the flushes fails.
    #[serde(default)]
    pub flush_errors: Option<Share>,
    /// This part of the discards fails.
    #[serde(default)]
    pub discard_errors: Option<Share>,
    /// This part of the reads returns a page with one wrong bit.
    #[serde(default)]
    pub rot: Option<Share>,
    /// Every operation takes this much longer.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// Operations wait until the faults are cleared, and are carried out then.
    #[serde(default)]
    pub hang: bool,
    /// The disk is gone.
    #[serde(default)]
    pub vanish: bool,
}

request!(Post "/pools/{name}/inject", Admin, On<InjectRequest> -> PoolDone);

impl Operation for On<InjectRequest> {
    fn words(&self) -> String {
        "inject".into()
    }
}

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// How many.
    pub part: u64,
    /// Of how many; at least as many, and not 0.
    pub of: u64,
}

impl Share {
    /// `1/100`.
    ///
    /// # Errors
    /// A text that is none.
    pub fn parse(text: &str) -> Result<Share, String> {
        let parts = text.split_once('/').map(|(part, of)| (part.parse(), of.parse()));
        match parts {
            Some((Ok(part), Ok(of))) if Share { part, of }.is_valid() => Ok(Share { part, of }),
            _ => Err(format!("{text:?} is no share, such as 1/100")),
        }
    }

    /// Whether it is at most all, of something.
    pub fn is_valid(self) -> bool {
        (1..=1 << 32).contains(&self.of) && self.part <= self.of
    }
}
