//! Listings in pages.
//!
//! A page begins behind a cursor, which is a place in the order of all listings: by the name of the
//! pool, that of the dataset, and then by what was taken first, snapshots of the dataset before
//! those of its files. What is taken or destroyed between two pages moves nothing else, so none is
//! listed twice or left out. A dataset that is renamed meanwhile may be.

use std::fmt;
use std::str::FromStr;

use aquifer_api::{ApiError, COUNTED_SNAPSHOTS_MAX, SnapshotQuery};
use aquifer_ondisk::Txg;
use aquifer_ondisk::file_snapshot::FileSnapshotId;

use super::SnapshotsOf;

/// The place of a snapshot in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pool: String,
    /// Its full name.
    dataset: String,
    snapshot: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    OfDataset(Txg),
    OfFile(FileSnapshotId),
}

impl Cursor {
    pub fn of(dataset: &str, txg: Txg) -> Cursor {
        Cursor::new(dataset, Which::OfDataset(txg))
    }

    pub fn of_file(dataset: &str, id: FileSnapshotId) -> Cursor {
        Cursor::new(dataset, Which::OfFile(id))
    }

    fn new(dataset: &str, snapshot: Which) -> Cursor {
        let pool = dataset.split('/').next().unwrap_or_default().into();
        Cursor { pool, dataset: dataset.into(), snapshot }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snapshot {
            Which::OfDataset(txg) => write!(f, "{}@{txg}", self.dataset),
            Which::OfFile(id) => write!(f, "{}:{}", self.dataset, id.0),
        }
    }
}

impl FromStr for Cursor {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Cursor, ApiError> {
        let bad = || ApiError::invalid(format!("after={text:?} is the cursor of no snapshot"));
        let at = text.rfind(['@', ':']).ok_or_else(bad)?;
        let (dataset, number) = text.split_at(at);
        let (kind, number) = number.split_at(1);
        let number = number.parse().map_err(|_| bad())?;
        Ok(match kind {
            "@" => Cursor::of(dataset, Txg(number)),
            _ => Cursor::of_file(dataset, FileSnapshotId(number)),
        })
    }
}

/// Page of a listing: the part of all snapshots for which a query asks.
#[derive(Debug)]
pub(super) struct Page {
    after: Option<Cursor>,
    /// More than so many are not wanted.
    room: usize,
    /// How many are in it.
    count: usize,
    /// Of more than these, nothing is counted.
    count_max: usize,
}

impl Page {
    /// # Errors
    /// A cursor that is none.
    pub fn of(query: &SnapshotQuery) -> Result<Page, ApiError> {
        let after = query.after.as_deref().map(Cursor::from_str).transpose()?;
        let count_max = if query.used { COUNTED_SNAPSHOTS_MAX } else { usize::MAX };
        Ok(Page { after, room: query.limit.unwrap_or(usize::MAX), count: 0, count_max })
    }

    /// Leaves of the next part of a listing what is in the page.
    pub fn cut(&mut self, mut listed: Vec<SnapshotsOf>) -> Vec<SnapshotsOf> {
        for of in &mut listed {
            if let Some(after) = &self.after {
                let mut place = Cursor::of(&of.name, Txg(0));
                let mut is_behind = |snapshot| {
                    place.snapshot = snapshot;
                    place > *after
                };
                of.snapshots.retain(|snapshot| is_behind(Which::OfDataset(snapshot.txg)));
                of.files.retain(|file| is_behind(Which::OfFile(file.id)));
            }
            of.snapshots.truncate(self.room);
            self.take(of.snapshots.len());
            of.files.truncate(self.room);
            self.take(of.files.len());
        }
        listed
    }

    fn take(&mut self, count: usize) {
        self.room = self.room.saturating_sub(count);
        self.count = self.count.saturating_add(count);
    }

    /// Whether what was cut may be counted.
    ///
    /// # Errors
    /// It is too much for one answer.
    pub fn check(&self) -> Result<(), ApiError> {
        if self.count <= self.count_max {
            return Ok(());
        }
        Err(ApiError::invalid(format!(
            "used=true of {} snapshots: ask for at most {} at a time, with limit= and after=",
            self.count, self.count_max
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_stands_where_the_listing_has_it() {
        let of = |text: &str| text.parse::<Cursor>().unwrap();
        let order = ["a@9", "a/b@1", "a/b:1", "a/b:x:70000", "a/c@3", "a-b@1", "a-b/c@1"];
        for text in order {
            assert_eq!(of(text).to_string(), text);
        }
        assert!(order.windows(2).all(|pair| of(pair[0]) < of(pair[1])));
        for bad in ["", "a", "a@", "a@x", "a@-1", "a@1x", "a:99999999999999999999999"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_so_many_are_counted_in_one_answer() {
        let page = |used| Page::of(&SnapshotQuery { used, ..SnapshotQuery::default() }).unwrap();
        let (mut listed, mut counted) = (page(false), page(true));
        listed.take(COUNTED_SNAPSHOTS_MAX + 1);
        counted.take(COUNTED_SNAPSHOTS_MAX);
        assert!(listed.check().is_ok() && counted.check().is_ok());
        counted.take(1);
        assert!(counted.check().unwrap_err().message.contains("limit="));
    }
}
