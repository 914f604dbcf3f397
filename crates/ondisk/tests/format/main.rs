//! The format held fast: golden bytes, round trips of arbitrary values, hostile bytes.
//!
//! `AQUIFER_BLESS=1 cargo test -p aquifer-ondisk --test format golden` rewrites the files under
//! `golden/`. Bytes on users' disks must stay readable: a changed file is a new version of its
//! structure, and the old file stays beside it.

#[cfg(test)]
mod damages;
#[cfg(test)]
mod document;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod hex;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod keeping;
mod memory;
#[cfg(test)]
mod numbers;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod saving;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod strategy;
#[cfg(test)]
mod structures;
#[cfg(test)]
mod values;
