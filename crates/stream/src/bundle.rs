//! A bundle: the head of several streams: of each dataset of a tree one, or a row of them.
//!
//! The streams behind it are as ever, each with its own numbers and checksums. The head says which
//! ones come, so a bundle that was cut between two streams is known to be.

use std::collections::BTreeMap;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::{FormatError, Guid, Reader, Writer};

use crate::error::StreamError;

/// First bytes of a bundle. No stream begins with them: its first byte is 1.
const MAGIC: [u8; 8] = *b"AQBUNDLE";
/// The form of a head with one stream of each dataset.
const VERSION_ONE_EACH: u32 = 1;
/// The form of one with several of a dataset. It is written only then.
const VERSION_ROWS: u32 = 2;
/// Magic, version and length of the list.
const FRONT_BYTES: usize = 16;
const SUM_BYTES: usize = 16;
/// Of the list: a reader keeps no more in memory.
const LIST_BYTES_MAX: usize = 4 << 20;
/// More datasets than a pool has.
const MEMBERS_MAX: usize = 65_536;
/// Names of datasets have components of 255 bytes.
const NAME_BYTES_MAX: usize = 16 << 10;
const WHAT: &str = "head of a bundle";

/// The streams of a tree, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The full name of the first dataset where it was sent.
    pub dataset: String,
    /// The name of the snapshot of each, behind the `@`; of a row, that of the last one.
    pub snapshot: String,
    /// The first dataset, and those below it: those above come first. Those of one dataset are a
    /// row: from each snapshot to the next one.
    pub members: Vec<BundleMember>,
}

/// One stream of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleMember {
    /// Rest of its dataset's name behind the name of the first dataset: empty, or `/a/b`.
    pub below: String,
    /// The snapshot that is sent.
    pub to: Guid,
    /// The one since which it has what changed; `None`: it has all.
    pub from: Option<Guid>,
}

/// The head of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleHead {
    /// The streams.
    pub bundle: Bundle,
    /// The names of snapshots, behind the `@`, by the place of their stream: of each that has
    /// another one of its row behind it.
    pub between: BTreeMap<usize, String>,
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

    /// The bytes of the head, of a bundle without rows.
    ///
    /// # Errors
    /// As [`BundleHead::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, StreamError> {
        BundleHead { bundle: self.clone(), between: BTreeMap::new() }.encode()
    }

    /// The full name of a dataset of it, if the first one is called so.
    pub fn name_below(first: &str, member: &BundleMember) -> String {
        format!("{first}{}", member.below)
    }

    /// Whether a stream is of the dataset of the one before it.
    pub fn is_behind(&self, at: usize) -> bool {
        let below = |at: usize| self.members.get(at).map(|of| &of.below);
        at.checked_sub(1).and_then(below).is_some_and(|before| below(at) == Some(before))
    }
}

impl BundleHead {
    /// The name of the snapshot that a stream has, behind the `@`.
    pub fn snapshot(&self, at: usize) -> &str {
        self.between.get(&at).unwrap_or(&self.bundle.snapshot)
    }

    /// The full name of a snapshot, where it was sent, since which one of the streams has what
    /// changed; `None`: no dataset has a row.
    pub fn row(&self) -> Option<String> {
        let (at, name) = self.between.first_key_value()?;
        let below = Bundle::name_below(&self.bundle.dataset, self.bundle.members.get(*at)?);
        Some(format!("{below}@{name}"))
    }

    /// The bytes of the head.
    ///
    /// # Errors
    /// The list is too long, or in another order.
    pub fn encode(&self) -> Result<Vec<u8>, StreamError> {
        let Bundle { dataset, snapshot, members } = &self.bundle;
        if members.len() > MEMBERS_MAX {
            return Err(StreamError::TooMany);
        }
        self.check()?;
        let names = [dataset, snapshot].into_iter().chain(self.between.values());
        let mut names = names.chain(members.iter().map(|of| &of.below));
        if names.any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(StreamError::TooMany);
        }
        let mut list = Writer::new();
        list.string(dataset.as_bytes());
        list.string(snapshot.as_bytes());
        list.count(members.len());
        for (at, BundleMember { below, to, from }) in members.iter().enumerate() {
            list.string(below.as_bytes());
            if !self.between.is_empty() {
                list.string(self.snapshot(at).as_bytes());
            }
            list.u64(to.0);
            list.u64(from.map_or(0, |from| from.0));
        }
        let list = list.into_bytes();
        if list.len() > LIST_BYTES_MAX {
            return Err(StreamError::TooMany);
        }
        let has_rows = !self.between.is_empty();
        let mut head = Writer::with_capacity(FRONT_BYTES + list.len() + SUM_BYTES);
        head.put(&MAGIC);
        head.u32(if has_rows { VERSION_ROWS } else { VERSION_ONE_EACH });
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
    pub fn decode(bytes: &[u8]) -> Result<Option<(BundleHead, usize)>, StreamError> {
        match Bundle::is_one(bytes) {
            None => return Ok(None),
            Some(false) => return Err(StreamError::NotAStream),
            Some(true) => {}
        }
        let invalid = |error: FormatError| StreamError::Bundle(error.to_string());
        let Some(front) = bytes.first_chunk::<FRONT_BYTES>() else { return Ok(None) };
        let mut reader = Reader::new(front, WHAT);
        reader.magic(MAGIC).map_err(invalid)?;
        let version = reader.u32().map_err(invalid)?;
        if version > VERSION_ROWS {
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
        let has_rows = version == VERSION_ROWS;
        let head = BundleHead::read_list(list, has_rows).map_err(invalid)?;
        head.check()?;
        // Else it would have two forms.
        if has_rows && head.between.is_empty() {
            return Err(StreamError::Bundle("its version, without a row".into()));
        }
        Ok(Some((head, summed + SUM_BYTES)))
    }

    fn read_list(list: &[u8], has_rows: bool) -> Result<BundleHead, FormatError> {
        let mut reader = Reader::new(list, WHAT);
        let dataset = reader.text(NAME_BYTES_MAX)?;
        let snapshot = reader.text(NAME_BYTES_MAX)?;
        let count = reader.u32()?;
        let (mut members, mut between) = (Vec::<BundleMember>::new(), BTreeMap::new());
        // Of the one before.
        let mut last: Option<String> = None;
        for _ in 0..count {
            let below = reader.text(NAME_BYTES_MAX)?;
            let name = if has_rows { Some(reader.text(NAME_BYTES_MAX)?) } else { None };
            let (to, from) = (Guid(reader.u64()?), Guid(reader.u64()?));
            let is_behind = members.last().is_some_and(|before| before.below == below);
            match std::mem::replace(&mut last, name) {
                Some(name) if is_behind => drop(between.insert(members.len() - 1, name)),
                last => ends_a_row(last, &snapshot)?,
            }
            members.push(BundleMember { below, to, from: Some(from).filter(|from| from.0 != 0) });
        }
        ends_a_row(last, &snapshot)?;
        match reader.rest().len() {
            0 => Ok(BundleHead { bundle: Bundle { dataset, snapshot, members }, between }),
            more => Err(FormatError::invalid("length of the list of a bundle", more as u64)),
        }
    }

    /// The first dataset comes first, and each once, or in a row: in their order, one above comes
    /// before those below it. Each stream of a row begins where the one before it ended.
    fn check(&self) -> Result<(), StreamError> {
        let bad = |why: &str| Err(StreamError::Bundle(why.into()));
        let Bundle { dataset, snapshot, members } = &self.bundle;
        if [dataset, snapshot].into_iter().chain(self.between.values()).any(String::is_empty) {
            return bad("a name is empty");
        }
        if members.first().is_none_or(|first| !first.below.is_empty()) {
            return bad("its first dataset is not the first");
        }
        if members.len() > MEMBERS_MAX || members.iter().any(|of| of.to.0 == 0) {
            return bad("its number of datasets, or a guid");
        }
        let mut pairs = members.iter().zip(members.iter().skip(1)).enumerate();
        let is_right = pairs.all(|(at, (a, b))| match self.between.contains_key(&at) {
            true => a.below == b.below && b.from == Some(a.to) && b.to != a.to,
            false => a.below < b.below && b.below.starts_with('/'),
        });
        let last = self.between.last_key_value();
        match is_right && last.is_none_or(|(at, _)| at + 1 < members.len()) {
            true => Ok(()),
            false => bad("the order of its datasets"),
        }
    }
}

/// The last snapshot of a dataset has the name that the bundle says.
fn ends_a_row(name: Option<String>, snapshot: &str) -> Result<(), FormatError> {
    match name {
        Some(name) if name != snapshot => {
            Err(FormatError::invalid("bytes of the name of a last snapshot", name.len() as u64))
        }
        _ => Ok(()),
    }
}
