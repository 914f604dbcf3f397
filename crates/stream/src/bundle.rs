//! A bundle: the head of several streams, one of each dataset of a tree.
//!
//! The streams behind it are as ever, each with its own numbers and checksums. The head says which
//! ones come, so a bundle that was cut between two streams is known to be.

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::{FormatError, Guid, Reader, Writer};

use crate::error::StreamError;

/// What a bundle begins with. No stream does: its first byte is 1.
const MAGIC: [u8; 8] = *b"AQBUNDLE";
/// The newest form of the head.
const VERSION: u32 = 1;
/// Magic, version and length of the list.
const FRONT_BYTES: usize = 16;
const SUM_BYTES: usize = 16;
/// Of the list: a reader keeps no more in memory.
const LIST_BYTES_MAX: usize = 4 << 20;
/// More than a pool has.
const MEMBERS_MAX: usize = 65_536;
/// Names of datasets have components of 255 bytes.
const NAME_BYTES_MAX: usize = 16 << 10;

/// The streams of a tree, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The full name of the first dataset where it was sent.
    pub dataset: String,
    /// The name of the snapshot of each, behind the `@`.
    pub snapshot: String,
    /// The first dataset, and those below it: those above come first.
    pub members: Vec<BundleMember>,
}

/// One stream of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleMember {
    /// What is behind the name of the first dataset: empty, or `/a/b`.
    pub below: String,
    /// The snapshot that is sent.
    pub to: Guid,
    /// The one since which it has what changed; `None`: it has all.
    pub from: Option<Guid>,
}

impl Bundle {
    /// Whether bytes begin a bundle; `None`: there are too few to know.
    pub fn is_one(bytes: &[u8]) -> Option<bool> {
        match bytes.first_chunk::<8>() {
            Some(magic) => Some(*magic == MAGIC),
            None if MAGIC.starts_with(bytes) => None,
            None => Some(false),
        }
    }

    /// The bytes of the head.
    ///
    /// # Errors
    /// The list is too long, or in another order.
    pub fn encode(&self) -> Result<Vec<u8>, StreamError> {
        if self.members.len() > MEMBERS_MAX {
            return Err(StreamError::TooMany);
        }
        self.check()?;
        let names = [&self.dataset, &self.snapshot].into_iter();
        let mut names = names.chain(self.members.iter().map(|of| &of.below));
        if names.any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(StreamError::TooMany);
        }
        let mut list = Writer::new();
        list.string(self.dataset.as_bytes());
        list.string(self.snapshot.as_bytes());
        list.count(self.members.len());
        for BundleMember { below, to, from } in &self.members {
            list.string(below.as_bytes());
            list.u64(to.0);
            list.u64(from.map_or(0, |from| from.0));
        }
        let list = list.into_bytes();
        if list.len() > LIST_BYTES_MAX {
            return Err(StreamError::TooMany);
        }
        let mut head = Writer::with_capacity(FRONT_BYTES + list.len() + SUM_BYTES);
        head.put(&MAGIC);
        head.u32(VERSION);
        head.count(list.len());
        head.put(&list);
        let sum = checksum128(head.as_bytes());
        head.u128(sum);
        Ok(head.into_bytes())
    }

    /// The head at the front of these bytes, and how many it has; `None`: it is not there as a
    /// whole.
    ///
    /// # Errors
    /// It is none, is damaged, or is that of a newer release.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Bundle, usize)>, StreamError> {
        match Bundle::is_one(bytes) {
            None => return Ok(None),
            Some(false) => return Err(StreamError::NotAStream),
            Some(true) => {}
        }
        let invalid = |error: FormatError| StreamError::Bundle(error.to_string());
        let Some(front) = bytes.first_chunk::<FRONT_BYTES>() else { return Ok(None) };
        let mut reader = Reader::new(front, "head of a bundle");
        reader.magic(MAGIC).map_err(invalid)?;
        let version = reader.u32().map_err(invalid)?;
        if version > VERSION {
            return Err(StreamError::Newer(version));
        }
        let list_bytes = reader.u32().map_err(invalid)?;
        let list_bytes = usize::try_from(list_bytes).unwrap_or(usize::MAX);
        if version == 0 || list_bytes > LIST_BYTES_MAX {
            return Err(StreamError::Bundle("its version or length".into()));
        }
        let summed = FRONT_BYTES + list_bytes;
        let Some((head, behind)) = bytes.split_at_checked(summed) else { return Ok(None) };
        let Some((stored, _)) = behind.split_first_chunk::<SUM_BYTES>() else { return Ok(None) };
        if checksum128(head) != u128::from_le_bytes(*stored) {
            return Err(StreamError::Bundle("its checksum; it was changed on its way".into()));
        }
        let list = head.get(FRONT_BYTES..).unwrap_or_default();
        let bundle = Bundle::read_list(list).map_err(invalid)?;
        bundle.check()?;
        Ok(Some((bundle, summed + SUM_BYTES)))
    }

    fn read_list(list: &[u8]) -> Result<Bundle, FormatError> {
        let mut reader = Reader::new(list, "head of a bundle");
        let dataset = reader.text(NAME_BYTES_MAX)?;
        let snapshot = reader.text(NAME_BYTES_MAX)?;
        let count = reader.u32()?;
        let mut members = Vec::new();
        for _ in 0..count {
            let below = reader.text(NAME_BYTES_MAX)?;
            let (to, from) = (Guid(reader.u64()?), Guid(reader.u64()?));
            members.push(BundleMember { below, to, from: Some(from).filter(|from| from.0 != 0) });
        }
        match reader.rest().len() {
            0 => Ok(Bundle { dataset, snapshot, members }),
            more => Err(FormatError::invalid("length of the list of a bundle", more as u64)),
        }
    }

    /// The first dataset comes first, and each name once: in their order, one above comes before
    /// those below it.
    fn check(&self) -> Result<(), StreamError> {
        let bad = |why: &str| Err(StreamError::Bundle(why.into()));
        if self.dataset.is_empty() || self.snapshot.is_empty() {
            return bad("a name is empty");
        }
        if self.members.first().is_none_or(|first| !first.below.is_empty()) {
            return bad("its first dataset is not the first");
        }
        if self.members.len() > MEMBERS_MAX || self.members.iter().any(|of| of.to.0 == 0) {
            return bad("its number of datasets, or a guid");
        }
        let mut pairs = self.members.iter().zip(self.members.iter().skip(1));
        match pairs.all(|(a, b)| a.below < b.below && b.below.starts_with('/')) {
            true => Ok(()),
            false => bad("the order of its datasets"),
        }
    }

    /// The full name of a dataset of it, if the first one is called so.
    pub fn name_below(first: &str, member: &BundleMember) -> String {
        format!("{first}{}", member.below)
    }
}
