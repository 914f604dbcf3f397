//! The client's part for differences.

use super::{Answer, Client, escaped};
use crate::{ChangedNames, ChangedRanges, DiffQuery};

impl Client {
    /// A page of the names that differ.
    pub async fn changed_names(&self, query: &DiffQuery) -> Answer<ChangedNames> {
        self.get(&format!("/diff?{}", words(query))).await
    }

    /// A page of the ranges at which two versions of a file differ.
    pub async fn changed_ranges(&self, query: &DiffQuery) -> Answer<ChangedRanges> {
        self.get(&format!("/diff/ranges?{}", words(query))).await
    }
}

fn words(DiffQuery { from, to, after, limit }: &DiffQuery) -> String {
    let mut words = format!("from={}&to={}", escaped(from), escaped(to));
    if let Some(after) = after {
        words += &format!("&after={}", escaped(after));
    }
    if let Some(limit) = limit {
        words += &format!("&limit={limit}");
    }
    words
}
