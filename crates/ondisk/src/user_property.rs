//! Properties that users make up: names with a colon, and any text as value.
//!
//! ```text
//! item of a dataset, class 25, number = name's number << 8 | piece
//!   the pieces in their order are the record; each but the last one is 1200 bytes long
//! record: version u16  flags u16 (0)  name string  value string (u16 length each)
//! ```
//! A name's number is the upper 48 bits of its xxh3-64. A dataset has no two names of one number.
//! Such properties are for people and their programs: one that cannot be read keeps no pool out of
//! service.

use std::collections::BTreeMap;

use crate::codec::{FormatError, checksum64};
use crate::dataset::{ITEM_VALUE_BYTES_MAX, ItemKey, begin, open_with_flags};
use crate::item_class::ItemClass;
use crate::types::DatasetId;

/// Longest name, bytes.
pub const USER_NAME_BYTES_MAX: usize = 256;
/// Longest value, bytes.
pub const USER_VALUE_BYTES_MAX: usize = 8192;
/// Such properties of one dataset at most.
pub const USER_PROPERTIES_MAX: usize = 128;
/// Bytes of their names and values, all together, at most.
pub const USER_BYTES_MAX: usize = 65536;
/// Items of one such property at most.
pub const USER_PIECES_MAX: u64 =
    (8 + USER_NAME_BYTES_MAX + USER_VALUE_BYTES_MAX).div_ceil(ITEM_VALUE_BYTES_MAX) as u64;
const _: () = assert!(USER_PIECES_MAX == 8 && USER_PIECES_MAX <= 1 << PIECE_BITS);

const PIECE_BITS: u32 = 8;
const WHAT: &str = "user property";

/// A property that a user made up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserProperty {
    /// Its name: see [`check_user_name`].
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Fails if a name is not allowed, with the reason.
pub fn check_user_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.:".contains(c);
    if !name.contains(':') {
        return Err("has no colon; a property of your own has one, such as com.example:backup");
    }
    if name.len() > USER_NAME_BYTES_MAX {
        return Err("is longer than 256 bytes");
    }
    if name.starts_with('-') {
        return Err("begins with a dash");
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        return Err("has capital letters; small ones are allowed");
    }
    if !name.chars().all(is_allowed) {
        return Err("has a character other than a-z, 0-9 and -_.:");
    }
    Ok(())
}

/// The number of a name.
pub fn user_name_number(name: &str) -> u64 {
    checksum64(name.as_bytes()) >> 16
}

/// The keys that a property of this name may have.
pub fn user_property_keys(dataset: DatasetId, name: &str) -> impl Iterator<Item = ItemKey> {
    let first = user_name_number(name) << PIECE_BITS;
    (0..USER_PIECES_MAX)
        .map(move |piece| ItemKey::new(dataset, ItemClass::UserProperty, first | piece))
}

impl UserProperty {
    /// The whole record.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.string(self.name.as_bytes());
        w.string(self.value.as_bytes());
        w.into_bytes()
    }

    /// How many items one has.
    pub fn items(name_bytes: usize, value_bytes: usize) -> u64 {
        (8 + name_bytes + value_bytes).div_ceil(ITEM_VALUE_BYTES_MAX) as u64
    }

    /// The values of its items, in order.
    pub fn pieces(&self) -> Vec<Vec<u8>> {
        self.encode().chunks(ITEM_VALUE_BYTES_MAX).map(<[u8]>::to_vec).collect()
    }

    /// Reads a whole record.
    pub fn decode(bytes: &[u8]) -> Result<UserProperty, FormatError> {
        let (mut r, flags) = open_with_flags(bytes, WHAT)?;
        if flags != 0 {
            return Err(FormatError::invalid("user property: flags", flags));
        }
        let (name, value) = (r.text(USER_NAME_BYTES_MAX)?, r.text(USER_VALUE_BYTES_MAX)?);
        if check_user_name(&name).is_err() {
            return Err(FormatError::invalid("user property: name", name.len() as u64));
        }
        match r.rest() {
            [] => Ok(UserProperty { name, value }),
            rest => Err(FormatError::invalid("user property: bytes behind it", rest.len() as u64)),
        }
    }
}

/// The pieces of a dataset's properties, as they are read.
#[derive(Debug, Default)]
pub struct UserPieces {
    by_number: BTreeMap<u64, BTreeMap<u64, Vec<u8>>>,
}

impl UserPieces {
    /// Takes the item of this number.
    pub fn take(&mut self, number: u64, value: &[u8]) {
        let (name, piece) = (number >> PIECE_BITS, number & ((1 << PIECE_BITS) - 1));
        self.by_number.entry(name).or_default().insert(piece, value.to_vec());
    }

    /// The properties, each by the number of its name.
    pub fn properties(&self) -> impl Iterator<Item = (u64, Result<UserProperty, FormatError>)> {
        self.by_number.iter().map(|(number, pieces)| (*number, joined(*number, pieces)))
    }
}

fn joined(number: u64, pieces: &BTreeMap<u64, Vec<u8>>) -> Result<UserProperty, FormatError> {
    let mut bytes = Vec::new();
    for ((at, value), expected) in pieces.iter().zip(0..) {
        if *at != expected || *at >= USER_PIECES_MAX {
            return Err(FormatError::invalid("user property: piece", *at));
        }
        bytes.extend_from_slice(value);
    }
    let property = UserProperty::decode(&bytes)?;
    let is_it = user_name_number(&property.name) == number;
    match is_it && property.pieces().iter().eq(pieces.values()) {
        true => Ok(property),
        false => Err(FormatError::invalid("user property: pieces", pieces.len() as u64)),
    }
}

/// Fails if a dataset has more or longer properties than allowed, with the reason.
pub fn check_user_properties<'a>(
    all: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), &'static str> {
    let (mut count, mut bytes) = (0, 0);
    for (name, value) in all {
        count += 1;
        bytes += name.len() + value.len();
    }
    if count > USER_PROPERTIES_MAX {
        return Err("a dataset has at most 128 properties of users");
    }
    if bytes > USER_BYTES_MAX {
        return Err("names and values of a dataset's user properties have at most 65536 bytes");
    }
    Ok(())
}
