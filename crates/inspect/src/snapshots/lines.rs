//! Lines of a dataset's head: what it began again as is kept.

use std::collections::BTreeMap;

use aquifer_ondisk::dead::DeadKind;
use aquifer_ondisk::head_line::HeadLineRecord;
use aquifer_ondisk::types::{DatasetId, ObjectId, Run, Txg};
use aquifer_ondisk::{BlockPointer, FormatError};

use super::files::Shower;
use super::pass::Coming;
use super::{Of, Pass, Snapshots, invalid};
use crate::scan::Scan;

/// The lines that a head began, each by the txg in which it did.
#[derive(Debug, Default, Clone)]
pub(crate) struct HeadLines(BTreeMap<Txg, HeadLineRecord>);

/// Topmost part of what the head has of the snapshot as which it began again.
#[derive(Debug)]
pub(crate) enum OfLine {
    /// A node, under one of this birth.
    Node { object: ObjectId, pointer: BlockPointer, above: Txg, floor: Txg, of: Of },
    /// An extent.
    Extent { run: Run, birth: Txg, of: Of },
}

impl HeadLines {
    /// An item of their class.
    pub fn take(&mut self, began: Txg, value: &[u8]) -> Result<(), FormatError> {
        self.0.insert(began, HeadLineRecord::decode(value)?);
        Ok(())
    }

    /// Returns the txg of the snapshot as which the head began again, 0 on its first line. The head
    /// has of that snapshot what was born up to there.
    pub fn floor(&self) -> Txg {
        let last = self.0.values().next_back().filter(|record| record.left.is_none());
        last.map_or(Txg(0), |record| record.to)
    }

    /// The snapshot as which the head began again on the line on which another one was taken. It is
    /// older, whatever the records say: so who follows lines comes to an end.
    pub(super) fn began_as(&self, snapshot: Txg) -> Option<Txg> {
        let line = self.0.range(..=snapshot).next_back().map(|(_, record)| record);
        let line = line.filter(|record| record.left.is_none_or(|left| snapshot < left));
        line.map(|of| of.to).filter(|to| *to < snapshot)
    }

    /// Whether a snapshot may be hidden: a line began with it, and may need it.
    pub fn need(&self, snapshot: Txg) -> bool {
        self.0.values().any(|record| record.to == snapshot)
    }
}

/// Lines follow one another, each began with a snapshot that is there, and something is on it.
pub(super) fn check(scan: &mut Scan<'_>, dataset: DatasetId, snapshots: &Snapshots) {
    let HeadLines(lines) = &snapshots.head_lines;
    let began_with = scan.inherits.map(|inherits| inherits.origin.1);
    let mut ended = Txg(0);
    for (began, HeadLineRecord { to, left }) in lines {
        let end = left.unwrap_or(Txg(u64::MAX));
        if to >= began || *began < ended || *began > scan.txg || end <= *began {
            invalid(scan, dataset, || {
                format!("a line began in {began} as {to}, and ended in {end}")
            });
        }
        if !snapshots.list.contains_key(to) && began_with != Some(*to) {
            invalid(scan, dataset, || {
                format!("the head began again as the snapshot of {to}, which is not there")
            });
        }
        let life = *began..end;
        let is_shown = snapshots.list.range(life.clone()).next().is_some()
            || snapshots.bookmarks.list.range(life.clone()).next().is_some()
            || snapshots.files.iter().any(|(txg, _)| life.contains(&txg));
        if left.is_some() && !is_shown {
            invalid(scan, dataset, || format!("nothing is on the line that began in {began}"));
        }
        ended = end;
    }
}

impl Pass {
    /// Finds what shows a block of this birth on the line of a snapshot: if the block is older than
    /// the line, the snapshot as which that began.
    pub(super) fn of_line(&self, shower: &Shower, birth: Txg) -> Option<Shower> {
        let to = self.lines.began_as(shower.txg).filter(|to| birth <= *to)?;
        let (bare, began_as) = (shower.bare, self.list.get_key_value(&to)?);
        Some(Shower { bare, ..Shower::of(began_as) })
    }

    /// Checks that the snapshot as which the head began again shows what the head has of it.
    pub(super) async fn line(&mut self, scan: &mut Scan<'_>, to: Txg, all: Vec<OfLine>) {
        // That it is not there was reported with the records.
        let Some(shower) = self.list.get_key_value(&to).map(Shower::of) else { return };
        for one in all {
            match one {
                OfLine::Node { object, pointer, above, floor, of } => {
                    let coming = Coming { pointer, object, above, floor, of };
                    self.snapshot(scan, &shower, Some(coming)).await;
                }
                OfLine::Extent { run, birth, of } => {
                    self.meet(scan, &shower, run, ((DeadKind::Extent, birth), of));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_began_with_something_older_whatever_its_record_says() {
        let mut lines = HeadLines::default();
        for (began, to) in [(5, 3), (7, 9)] {
            let record = HeadLineRecord { to: Txg(to), left: None };
            lines.take(Txg(began), &record.encode()).unwrap();
        }
        assert_eq!(
            [4, 6, 8, 9, 10].map(|txg| lines.began_as(Txg(txg))),
            [None, Some(Txg(3)), None, None, Some(Txg(9))]
        );
    }
}
