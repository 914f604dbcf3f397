//! Results of acts on pools.

use std::fmt;

use aquifer_meter::time;
use serde::{Deserialize, Serialize};

/// The result of an act on a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolDone {
    /// Name.
    pub name: String,
    /// Notes for people.
    pub notes: Vec<String>,
    /// The log that an import dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_log: Option<DroppedLog>,
}

impl PoolDone {
    /// The result of an act that lost nothing.
    pub fn new(name: &str, notes: Vec<String>) -> PoolDone {
        PoolDone { name: name.into(), notes, dropped_log: None }
    }
}

/// The possible losses of an import that dropped the log, or its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DroppedLog {
    /// Changes that were acknowledged in this txg or a later one.
    pub from_txg: u64,
    /// When the previous txg was written: Unix time in nanoseconds. Changes of this one may have
    /// been acknowledged some seconds earlier.
    #[serde(default)]
    pub since_ns: u64,
    /// A rewind also dropped txgs that were on disk.
    #[serde(default)]
    pub rewound: bool,
    /// The affected datasets: all that could be written to, except those with `sync=disabled`;
    /// after a rewind all.
    pub datasets: Vec<String>,
}

impl DroppedLog {
    /// The possible losses of this one and an earlier one together.
    pub fn with(mut self, before: DroppedLog) -> DroppedLog {
        if before.from_txg < self.from_txg {
            (self.from_txg, self.since_ns) = (before.from_txg, before.since_ns);
        }
        self.rewound |= before.rewound;
        self.datasets.extend(before.datasets);
        self.datasets.sort();
        self.datasets.dedup();
        self
    }
}

impl fmt::Display for DroppedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DroppedLog { from_txg, since_ns, rewound, datasets } = self;
        let (since, datasets) = (time::text(*since_ns), datasets.join(", "));
        let (what, verb) = match rewound {
            true => ("an import went back", "are"),
            false => ("an import did without the log", "may be"),
        };
        write!(
            f,
            "{what}: changes acknowledged since txg {from_txg}, written at about {since}, {verb} \
             missing in {datasets}"
        )
    }
}
