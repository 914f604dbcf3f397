//! Lines of a log that a fault or a caller would repeat: of each kind, some in a while.

use std::collections::BTreeMap;
use std::time::Duration;

/// After the first line of a kind, more than [`Seldom`] allows come no earlier than this.
pub const SELDOM_EVERY: Duration = Duration::from_secs(60);
/// Kinds that are known at a time: so many lines in [`SELDOM_EVERY`] at most, times what each has.
pub const SELDOM_KINDS_MAX: usize = 256;

/// Which lines were told lately. A fault that shows at each sector of a disk, or at each page of a
/// file, is told once a minute; the acts of one caller some times. The next line then says how many
/// were left out.
#[derive(Debug, Clone)]
pub struct Seldom<K> {
    told: BTreeMap<K, Told>,
    lines: u64,
}

#[derive(Debug, Clone)]
struct Told {
    /// Of the first line.
    at: Duration,
    lines: u64,
    left_out: u64,
}

impl<K> Default for Seldom<K> {
    /// One line of each kind.
    fn default() -> Self {
        Seldom::of(1)
    }
}

impl<K> Seldom<K> {
    /// So many lines of each kind in [`SELDOM_EVERY`].
    #[must_use]
    pub fn of(lines: u64) -> Self {
        Seldom { told: BTreeMap::new(), lines }
    }
}

impl<K: Ord> Seldom<K> {
    /// Whether a line of this kind is to be told at `now`. If so, returns how many of the kind were
    /// left out since the last one.
    pub fn tells(&mut self, kind: K, now: Duration) -> Option<u64> {
        let is_due = |told: &Told| now.saturating_sub(told.at) >= SELDOM_EVERY;
        if let Some(told) = self.told.get_mut(&kind) {
            if is_due(told) {
                (told.at, told.lines) = (now, 0);
            }
            if told.lines >= self.lines {
                told.left_out += 1;
                return None;
            }
            told.lines += 1;
            return Some(std::mem::take(&mut told.left_out));
        }
        if self.told.len() >= SELDOM_KINDS_MAX {
            self.told.retain(|_, told| !is_due(told));
        }
        if self.told.len() >= SELDOM_KINDS_MAX {
            return None;
        }
        self.told.insert(kind, Told { at: now, lines: 1, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_once_a_minute_and_says_what_it_left_out() {
        let mut seldom = Seldom::default();
        let at = Duration::from_secs;
        assert_eq!(seldom.tells("a", at(5)), Some(0));
        let again =
            (0..1000).filter(|ms| seldom.tells("a", at(5) + Duration::from_millis(*ms)).is_some());
        assert_eq!(again.count(), 0);
        assert_eq!(seldom.tells("b", at(6)), Some(0), "another kind is not held back");
        assert_eq!(seldom.tells("a", at(64)), None);
        assert_eq!(seldom.tells("a", at(65)), Some(1001));
        assert_eq!(seldom.tells("a", at(200)), Some(0));
    }

    #[test]
    fn a_kind_may_have_more_lines() {
        let mut seldom = Seldom::of(3);
        let at = Duration::from_secs;
        let told: Vec<_> = (0..5).map(|second| seldom.tells((), at(second))).collect();
        assert_eq!(told, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(seldom.tells((), at(59)), None);
        let told: Vec<_> = (60..65).map(|second| seldom.tells((), at(second))).collect();
        assert_eq!(told, [Some(3), Some(0), Some(0), None, None]);
    }

    #[test]
    fn many_kinds_are_bounded_and_let_others_in_later() {
        let mut seldom = Seldom::default();
        let at = Duration::from_secs;
        let told = (0..10_000).filter(|kind| seldom.tells(*kind, at(1)).is_some()).count();
        assert_eq!(told, SELDOM_KINDS_MAX);
        assert_eq!(seldom.tells(20_000, at(60)), None);
        assert_eq!(seldom.tells(20_000, at(61)), Some(0));
    }
}
