//! Grants on their way: locks held for a waiter that does not know yet.
//!
//! Invariants:
//! - A grant is settled by the first of these: the client's answer, the client's own call about it
//!   (LOCK, UNLOCK, CANCEL), the client's end, the file's end.
//! - Work on the grants of one file does not look at those of others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use aquifer_files::FileHandle;

use super::file::Waiter;
use super::{Owner, Range};

/// A lock held for a waiter that does not know yet.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub file: FileHandle,
    pub waiter: Waiter,
}

#[derive(Debug, Default)]
pub(super) struct Grants {
    all: BTreeMap<u64, Grant>,
    of_file: HashMap<FileHandle, BTreeSet<u64>>,
    last: u64,
    /// Grants since the last `take_new`, with the hosts to tell.
    new: Vec<(IpAddr, u64)>,
}

impl Grants {
    pub fn add(&mut self, grant: Grant) {
        self.last += 1;
        self.new.push((grant.waiter.owner.client.address, self.last));
        self.of_file.entry(grant.file).or_default().insert(self.last);
        self.all.insert(self.last, grant);
    }

    pub fn get(&self, grant: u64) -> Option<&Grant> {
        self.all.get(&grant)
    }

    pub fn remove(&mut self, grant: u64) -> Option<Grant> {
        let removed = self.all.remove(&grant)?;
        if let Some(of_file) = self.of_file.get_mut(&removed.file) {
            of_file.remove(&grant);
            if of_file.is_empty() {
                self.of_file.remove(&removed.file);
            }
        }
        Some(removed)
    }

    /// Ends the grants of these owners.
    pub fn end_of_owners(&mut self, is_gone: impl Fn(&Owner) -> bool) {
        let gone = self.all.iter().filter(|(_, grant)| is_gone(&grant.waiter.owner));
        let gone: Vec<u64> = gone.map(|(grant, _)| *grant).collect();
        for grant in gone {
            self.remove(grant);
        }
    }

    pub fn end_of_file(&mut self, file: FileHandle) {
        for grant in self.of_file.remove(&file).unwrap_or_default() {
            self.all.remove(&grant);
        }
    }

    /// The owner has called about this range, so it need not be told of grants in it.
    pub fn settle(&mut self, file: FileHandle, owner: &Owner, range: &Range) {
        let settled: Vec<u64> = self
            .of_file(file)
            .filter(|(_, waiter)| *waiter.owner == *owner && waiter.range.overlaps(range))
            .map(|(grant, _)| grant)
            .collect();
        for grant in settled {
            self.remove(grant);
        }
    }

    /// The grants of a file.
    pub fn of_file(&self, file: FileHandle) -> impl Iterator<Item = (u64, &Waiter)> {
        let of_file = self.of_file.get(&file).into_iter().flatten();
        of_file.filter_map(|grant| Some((*grant, &self.all.get(grant)?.waiter)))
    }

    /// The owners that do not know yet, each with the file.
    pub fn owners(&self) -> HashSet<(FileHandle, &Owner)> {
        self.all.values().map(|grant| (grant.file, &*grant.waiter.owner)).collect()
    }

    /// Marks all grants as new.
    pub fn renew(&mut self) {
        let host = |grant: &Grant| grant.waiter.owner.client.address;
        self.new = self.all.iter().map(|(number, grant)| (host(grant), *number)).collect();
    }

    /// The grants since the last call, in their order.
    pub fn take_new(&mut self) -> Vec<(IpAddr, u64)> {
        std::mem::take(&mut self.new)
    }
}
