//! Token: what a sender must know to go on with a stream that broke off.
//!
//! `1-TO-FROM-OBJECT-WITHIN-NAME-SUM`: guids, place and sum in hexadecimal, the name as its bytes
//! in hexadecimal. FROM is 0 if all is sent; WITHIN is `n` if nothing of the object came.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::resume::{SENT_BYTES_MAX, StreamPlace};
use aquifer_ondisk::{Guid, ObjectId};

const VERSION: &str = "1";

/// Where a stream goes on, and which one it is. It gives no right to anything: a sender looks the
/// snapshots up, and a receiver compares the place with what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The guid of the snapshot that is sent.
    pub to: Guid,
    /// That of the one since which the stream has what changed; `None`: it has all.
    pub from: Option<Guid>,
    /// Where it goes on.
    pub place: StreamPlace,
    /// The full name of the snapshot when the stream began; perhaps empty.
    pub snapshot: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        write!(f, "{text}-{:08x}", sum(&text))
    }
}

impl Token {
    /// All but the sum.
    fn text(&self) -> String {
        let (from, place) = (self.from.map_or(0, |from| from.0), self.place);
        let mut text = format!("{VERSION}-{:x}-{from:x}-{:x}-", self.to.0, place.object.0);
        // Writing to a string does not fail.
        let _ = match place.within {
            Some(within) => write!(text, "{within:x}-"),
            None => write!(text, "n-"),
        };
        self.snapshot.bytes().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        text
    }
}

/// It finds what was cut off or mistyped.
fn sum(text: &str) -> u32 {
    let [a, b, c, d, ..] = checksum128(text.as_bytes()).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "that is no resume token: copy all of what `aquifer get receive_resume_token DATASET` says at \
     the receiver"
)]
pub struct BadToken;

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Token, BadToken> {
        let text = text.trim();
        let parse = || {
            let (front, last) = text.rsplit_once('-')?;
            let mut parts = front.split('-');
            let mut next = || parts.next();
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            if next()? != VERSION || u32::from_str_radix(last, 16).ok()? != sum(front) {
                return None;
            }
            let (to, from) = (number(next()?)?, number(next()?)?);
            let object = ObjectId(number(next()?)?);
            let within = match next()? {
                "n" => None,
                within => Some(number(within)?),
            };
            let snapshot = unhex(next()?)?;
            let is_whole = next().is_none() && to != 0;
            is_whole.then_some(Token {
                to: Guid(to),
                from: Some(Guid(from)).filter(|from| from.0 != 0),
                place: StreamPlace { object, within },
                snapshot,
            })
        };
        parse().ok_or(BadToken)
    }
}

fn unhex(text: &str) -> Option<String> {
    if text.len() > 2 * SENT_BYTES_MAX || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(from: Option<u64>, within: Option<u64>, snapshot: &str) -> Token {
        Token {
            to: Guid(0x1234),
            from: from.map(Guid),
            place: StreamPlace { object: ObjectId(17), within },
            snapshot: snapshot.into(),
        }
    }

    #[test]
    fn tokens_are_read_back() {
        for token in [
            token(None, None, ""),
            token(Some(7), Some(0), "tank/vms@a-b c"),
            token(Some(u64::MAX), Some(u64::MAX), "t\u{e4}nk@1"),
        ] {
            assert_eq!(token.to_string().parse().as_ref(), Ok(&token));
            assert_eq!(format!(" {token}\n").parse().as_ref(), Ok(&token));
        }
    }

    #[test]
    fn what_was_cut_off_or_changed_is_no_token() {
        let text = token(Some(7), Some(4096), "tank/vms@a").to_string();
        for end in 0..text.len() {
            assert_eq!(text[..end].parse::<Token>(), Err(BadToken), "{end}");
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'5' { b'6' } else { b'5' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(other.parse::<Token>(), Err(BadToken), "{other}");
        }
        for text in ["", "-", "1-2-3", "1-0-0-0-n--0", "1-1-0-0-n-zz-0", "\u{fffd}-\u{fffd}"] {
            assert_eq!(text.parse::<Token>(), Err(BadToken), "{text:?}");
        }
    }
}
