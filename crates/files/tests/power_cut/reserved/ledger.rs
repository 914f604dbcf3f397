//! The known limits: quotas, reservations, and the bytes that datasets take. The bytes have a lower
//! bound (surely there) and an upper one (at most there).

use std::collections::BTreeMap;

/// Datasets; the third lies below the second.
pub const NAMES: [&str; 4] = ["tank/a", "tank/b", "tank/b/c", "tank/d"];

/// A dataset and those above it.
fn line(of: usize) -> &'static [usize] {
    match of {
        2 => &[2, 1],
        0 => &[0],
        1 => &[1],
        _ => &[3],
    }
}

/// A dataset and those below it.
fn below(of: usize) -> &'static [usize] {
    match of {
        1 => &[1, 2],
        0 => &[0],
        2 => &[2],
        _ => &[3],
    }
}

/// Bytes of a reservation that are not promised: the tree blocks that changes set aside at worst.
const SLACK_BYTES: u64 = 1 << 20;

/// A limit of a dataset, in bytes.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Every value that it had or was being set to in this life; the last one counts.
    values: Vec<u64>,
    /// The last value is being set: the one before may still be in force.
    changes: bool,
}

impl Limit {
    /// A limit of this value.
    fn new(value: u64) -> Limit {
        Limit { values: vec![value], changes: false }
    }

    /// Setting it begins.
    pub fn begin(&mut self, value: u64) {
        assert!(!self.changes, "one after the other");
        self.values.push(value);
        self.changes = true;
    }

    /// Setting it has ended, with success or not.
    pub fn end(&mut self, is_set: bool) {
        if !is_set {
            let before = self.values[self.values.len() - 2];
            self.values.push(before);
        }
        self.changes = false;
    }

    fn mark(&self) -> usize {
        self.values.len() - 1 - usize::from(self.changes)
    }

    fn most_since(&self, mark: usize) -> u64 {
        self.values[mark..].iter().copied().max().unwrap_or_default()
    }

    fn least_since(&self, mark: usize) -> u64 {
        self.values[mark..].iter().copied().min().unwrap_or_default()
    }

    /// The value found after a restart.
    fn found(&mut self, value: u64) -> Result<(), String> {
        let may_be = &self.values[self.mark()..];
        if !may_be.contains(&value) {
            return Err(format!("{value}, and was set to {may_be:?}"));
        }
        *self = Limit::new(value);
        Ok(())
    }
}

/// The known state of a page of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Stays after a power cut.
    Stable,
    /// A power cut may take it.
    Unstable,
    /// A power cut took it.
    Hole,
}

/// A dataset.
#[derive(Debug, Clone)]
pub struct Account {
    pub quota: Limit,
    pub reservation: Limit,
    /// The files, by their numbers.
    pub files: BTreeMap<u64, Vec<Page>>,
    /// The file that is being removed; a power cut may bring it back.
    pub going: Option<(u64, Vec<Page>)>,
    /// Bytes of unanswered writes.
    under_way: u64,
    /// Bytes of all writes begun in this life.
    begun: u64,
    /// Bytes of all files removed in this life.
    removed: u64,
    /// Bytes of removed files that may not be free yet.
    garbage: u64,
}

fn bytes_of(pages: &[Page]) -> u64 {
    pages.iter().filter(|page| **page != Page::Hole).count() as u64 * 4096
}

impl Account {
    fn new() -> Account {
        Account {
            quota: Limit::new(u64::MAX),
            reservation: Limit::new(0),
            files: BTreeMap::new(),
            going: None,
            under_way: 0,
            begun: 0,
            removed: 0,
            garbage: 0,
        }
    }

    /// Bytes that are surely there.
    pub fn live(&self) -> u64 {
        self.files.values().map(|pages| bytes_of(pages)).sum()
    }

    fn at_most(&self) -> u64 {
        self.live() + self.under_way + self.garbage
    }
}

/// The state when a write began.
#[derive(Debug, Clone)]
pub struct Asked {
    of: usize,
    bytes: u64,
    /// For each dataset.
    then: Vec<Then>,
}

#[derive(Debug, Clone)]
struct Then {
    quota: usize,
    reservation: usize,
    live: u64,
    at_most: u64,
    begun: u64,
    removed: u64,
}

/// The answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Written,
    OverQuota,
    NoSpace,
}

/// The events of a seed.
#[derive(Debug, Default, Clone, Copy)]
pub struct Met {
    pub calls: u64,
    /// Limits that were set, and those that were refused.
    pub set: u64,
    pub refused: u64,
    pub over_quota: u64,
    pub no_space: u64,
    /// Writes that had room only because of a reservation.
    pub kept: u64,
}

/// All datasets.
#[derive(Debug)]
pub struct Ledger {
    pub accounts: Vec<Account>,
    pub next_file: u64,
    pub met: Met,
    /// A client was refused for want of space, and nothing was removed since.
    full: bool,
}

impl Ledger {
    pub fn new() -> Ledger {
        let accounts = NAMES.iter().map(|_| Account::new()).collect();
        Ledger { accounts, next_file: 0, met: Met::default(), full: false }
    }

    /// A write begins.
    pub fn ask(&mut self, of: usize, bytes: u64) -> Asked {
        self.met.calls += 1;
        let then = |account: &Account| Then {
            quota: account.quota.mark(),
            reservation: account.reservation.mark(),
            live: account.live(),
            at_most: account.at_most(),
            begun: account.begun,
            removed: account.removed,
        };
        let then = self.accounts.iter().map(then).collect();
        self.accounts[of].under_way += bytes;
        self.accounts[of].begun += bytes;
        Asked { of, bytes, then }
    }

    /// The write is answered.
    ///
    /// # Errors
    /// The answer breaks a limit.
    pub fn answer(&mut self, asked: &Asked, answer: Answer) -> Result<(), String> {
        self.accounts[asked.of].under_way -= asked.bytes;
        match answer {
            Answer::Written => {
                self.met.kept += u64::from(self.full && self.is_reserved(asked));
                self.within_quotas(asked)
            }
            Answer::OverQuota => {
                self.met.over_quota += 1;
                let quotas = line(asked.of)
                    .iter()
                    .map(|at| self.accounts[*at].quota.least_since(asked.then[*at].quota));
                if quotas.min() < Some(u64::MAX) { Ok(()) } else { Err("there is no quota".into()) }
            }
            Answer::NoSpace => {
                self.met.no_space += 1;
                self.full = true;
                if self.is_reserved(asked) {
                    return Err(format!("no space for {} reserved bytes", asked.bytes));
                }
                Ok(())
            }
        }
    }

    /// Fails if a quota in force did not allow a write.
    fn within_quotas(&self, asked: &Asked) -> Result<(), String> {
        for at in line(asked.of) {
            let quota = self.accounts[*at].quota.most_since(asked.then[*at].quota);
            let there: u64 = below(*at)
                .iter()
                .map(|of| {
                    let (then, now) = (&asked.then[*of], &self.accounts[*of]);
                    then.live.saturating_sub(now.removed - then.removed)
                })
                .sum();
            if there + asked.bytes > quota {
                let (name, bytes) = (NAMES[*at], asked.bytes);
                return Err(format!("{bytes} above {there} in {name} of quota {quota}"));
            }
        }
        Ok(())
    }

    /// Whether some reservation, in force all the time, covers a write.
    fn is_reserved(&self, asked: &Asked) -> bool {
        line(asked.of).iter().any(|at| {
            let least =
                |of: usize| self.accounts[of].reservation.least_since(asked.then[of].reservation);
            let taken: u64 = below(*at)
                .iter()
                .map(|of| {
                    let (then, now) = (&asked.then[*of], &self.accounts[*of]);
                    // The write's own bytes are among them.
                    then.at_most + now.begun - then.begun
                })
                .sum();
            // The part of it that its children reserve for themselves alone.
            let inner = below(*at).iter().filter(|of| !line(asked.of).contains(of));
            let inner: u64 = inner
                .map(|of| self.accounts[*of].reservation.most_since(asked.then[*of].reservation))
                .sum();
            taken + inner + SLACK_BYTES <= least(*at)
        })
    }

    /// A file is being removed.
    pub fn remove(&mut self, of: usize, file: u64) {
        self.met.calls += 1;
        self.full = false;
        let account = &mut self.accounts[of];
        let pages = account.files.remove(&file).unwrap();
        account.removed += bytes_of(&pages);
        account.garbage += bytes_of(&pages);
        account.going = Some((file, pages));
    }

    /// The machine was started again.
    pub fn begin_life(&mut self) {
        for account in &mut self.accounts {
            (account.under_way, account.begun, account.removed) = (0, 0, 0);
        }
    }

    /// A dataset's limits after a restart.
    ///
    /// # Errors
    /// They differ from those that were set.
    pub fn found(&mut self, of: usize, quota: u64, reservation: u64) -> Result<(), String> {
        let account = &mut self.accounts[of];
        let wrong = |what: &str, why: String| format!("{} of {}: {why}", what, NAMES[of]);
        account.quota.found(quota).map_err(|why| wrong("quota", why))?;
        account.reservation.found(reservation).map_err(|why| wrong("reservation", why))
    }

    /// All removed files are free by now, except for this many bytes.
    pub fn is_tidy(&mut self, of: usize, garbage: u64) {
        self.accounts[of].garbage = garbage;
    }
}
