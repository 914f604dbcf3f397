//! The client's part for the load of the past.

use super::{Answer, Client, escaped};
use crate::{LoadQuery, LoadSeries, LoadSpan, LoadedDisk};

impl Client {
    /// The load of a pool, step by step.
    pub async fn load(&self, pool: &str, query: &LoadQuery) -> Answer<LoadSeries> {
        self.get(&format!("/pools/{}/load?{}", escaped(pool), words(query))).await
    }

    /// The VM disks that were busiest, the busiest first.
    pub async fn loaded_disks(&self, pool: &str, query: &LoadQuery) -> Answer<Vec<LoadedDisk>> {
        self.get(&format!("/pools/{}/load/disks?{}", escaped(pool), words(query))).await
    }
}

fn words(LoadQuery { span, of, from_s, to_s, step_s }: &LoadQuery) -> String {
    let span = match span {
        LoadSpan::Day => "day",
        LoadSpan::Month => "month",
    };
    let mut words = format!("span={span}");
    if let Some(of) = of {
        words += &format!("&of={}", escaped(of));
    }
    for (name, value) in [("from_s", from_s), ("to_s", to_s), ("step_s", step_s)] {
        if let Some(value) = value {
            words += &format!("&{name}={value}");
        }
    }
    words
}
