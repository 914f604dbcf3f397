//! Messages of DNS (RFC 1035 section 4, RFC 3596): a question for addresses, and its answer.
//!
//! Only the needs of a stub: one question, and from the answer the addresses at the end of the
//! chain of aliases that begins with the questioned name.
//!
//! Invariants:
//! - Decoding is total and bounded: any bytes give an answer or none. A name's pointers lead
//!   backwards only and are few, so that they end soon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The wanted record type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

/// Addresses, and how long they are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Empty, if there is no such name or it has no address of this kind.
    pub addresses: Vec<IpAddr>,
    /// The smallest TTL of all records on the path to them.
    pub ttl: Duration,
}

/// A server's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer.
    Answer(Answer),
    /// The answer did not fit into a datagram.
    Truncated,
    /// The server could or would not answer.
    Failed(String),
}

/// One question, on the wire.
#[derive(Clone, Debug)]
pub struct Question {
    kind: Kind,
    /// In lower case, with a dot behind each label.
    name: String,
    bytes: Vec<u8>,
}

impl Question {
    /// A question with a number that nobody can guess.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(name: &str, kind: Kind) -> Result<Self, getrandom::Error> {
        let mut id = [0; 2];
        getrandom::fill(&mut id)?;
        let mut bytes = id.to_vec();
        // Recursion desired; one question, nothing else.
        bytes.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut text = String::new();
        for label in name.split('.').filter(|label| !label.is_empty()) {
            let label = label.get(..63).unwrap_or(label);
            bytes.extend(u8::try_from(label.len()));
            bytes.extend(label.as_bytes());
            text.push_str(label);
            text.push('.');
        }
        bytes.push(0);
        bytes.extend(kind.wire().to_be_bytes());
        bytes.extend(CLASS_IN.to_be_bytes());
        text.make_ascii_lowercase();
        Ok(Question { kind, name: text, bytes })
    }

    /// The message to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The answer of `message` to this question; `None` if it answers another one.
    pub fn reply(&self, message: &[u8]) -> Option<Reply> {
        let mut from = Reader { message, at: 0 };
        let (id, flags) = (from.u16()?, from.u16()?);
        let asked = Reader { message: &self.bytes, at: 0 }.u16()?;
        if id != asked || flags & RESPONSE == 0 {
            return None;
        }
        let (questions, answers) = (from.u16()?, from.u16()?);
        let (authorities, _additional) = (from.u16()?, from.u16()?);
        let name = if questions == 1 { from.name()? } else { return None };
        if name != self.name || from.u16()? != self.kind.wire() || from.u16()? != CLASS_IN {
            return None;
        }
        if flags & TRUNCATED != 0 {
            return Some(Reply::Truncated);
        }
        match flags & RCODE {
            NO_ERROR | NO_SUCH_NAME => {}
            code => return Some(Reply::Failed(failure(code))),
        }
        let answer = self.answer(&mut from, answers, authorities);
        Some(
            answer.map_or_else(
                || Reply::Failed("an answer that makes no sense".into()),
                Reply::Answer,
            ),
        )
    }

    fn answer(&self, from: &mut Reader<'_>, answers: u16, authorities: u16) -> Option<Answer> {
        let mut records = Vec::new();
        for _ in 0..answers {
            records.push(from.record()?);
        }
        let (mut name, mut ttl) = (self.name.clone(), u32::MAX);
        for _ in 0..ALIASES_MAX {
            let alias = records.iter().find_map(|record| match &record.data {
                Data::Alias(to) if record.owner == name => Some((to.clone(), record.ttl)),
                _ => None,
            });
            let Some((to, holds)) = alias else { break };
            (name, ttl) = (to, ttl.min(holds));
        }
        let mut addresses = Vec::new();
        for record in &records {
            match record.data {
                Data::Address(address)
                    if record.owner == name && address.is_ipv4() == (self.kind == Kind::A) =>
                {
                    addresses.push(address);
                    ttl = ttl.min(record.ttl);
                }
                _ => {}
            }
        }
        if addresses.is_empty() {
            // The zone says how long "none" is valid (RFC 2308 section 5).
            for _ in 0..authorities {
                if let Data::Zone(none) = from.record()?.data {
                    ttl = ttl.min(none);
                }
            }
            ttl = if ttl == u32::MAX { 0 } else { ttl };
        }
        Some(Answer { addresses, ttl: Duration::from_secs(ttl.into()) })
    }
}

impl Kind {
    fn wire(self) -> u16 {
        match self {
            Kind::A => TYPE_A,
            Kind::Aaaa => TYPE_AAAA,
        }
    }
}

struct Record {
    owner: String,
    ttl: u32,
    data: Data,
}

enum Data {
    Address(IpAddr),
    Alias(String),
    /// How long "none" is valid.
    Zone(u32),
    Other,
}

struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    fn take(&mut self, bytes: usize) -> Option<&'m [u8]> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.message.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// A name in lower case, with a dot behind each label (RFC 1035 section 4.1.4).
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let (mut reader, mut pointers) = (Reader { message: self.message, at: self.at }, 0);
        let mut start = self.at;
        loop {
            let length = reader.u8()?;
            match length {
                0 => break,
                1..=63 => {
                    let label = reader.take(length.into())?;
                    name.push_str(&String::from_utf8_lossy(label).to_ascii_lowercase());
                    name.push('.');
                }
                192.. => {
                    let to = usize::from(u16::from_be_bytes([length & 63, reader.u8()?]));
                    if pointers == 0 {
                        self.at = reader.at;
                    }
                    pointers += 1;
                    if to >= start || pointers > POINTERS_MAX {
                        return None;
                    }
                    (start, reader.at) = (to, to);
                }
                _ => return None,
            }
            if name.len() > NAME_BYTES_MAX {
                return None;
            }
        }
        if pointers == 0 {
            self.at = reader.at;
        }
        Some(name)
    }

    fn record(&mut self) -> Option<Record> {
        let owner = self.name()?;
        let (kind, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        // RFC 2181 section 8: the highest bit makes it zero.
        let ttl = if ttl > i32::MAX.unsigned_abs() { 0 } else { ttl };
        let bytes = usize::from(self.u16()?);
        let mut data = Reader { message: self.message, at: self.at };
        let body = self.take(bytes)?;
        let data = match (class, kind) {
            (CLASS_IN, TYPE_A) => {
                Data::Address(Ipv4Addr::from(<[u8; 4]>::try_from(body).ok()?).into())
            }
            (CLASS_IN, TYPE_AAAA) => {
                Data::Address(Ipv6Addr::from(<[u8; 16]>::try_from(body).ok()?).into())
            }
            (CLASS_IN, TYPE_CNAME) => Data::Alias(data.name()?),
            (CLASS_IN, TYPE_SOA) => {
                data.name()?;
                data.name()?;
                data.take(16)?;
                Data::Zone(data.u32()?.min(ttl))
            }
            _ => Data::Other,
        };
        Some(Record { owner, ttl, data })
    }
}

fn failure(code: u16) -> String {
    match code {
        1 => "it does not understand the question".into(),
        2 => "it failed (SERVFAIL)".into(),
        5 => "it refuses (REFUSED)".into(),
        code => format!("it says error {code}"),
    }
}

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
const RESPONSE: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
const RCODE: u16 = 0x000f;
const NO_ERROR: u16 = 0;
const NO_SUCH_NAME: u16 = 3;

/// Most aliases on the way to an address: as BIND has it.
const ALIASES_MAX: usize = 16;
/// Most pointers on the path to the end of a name: one for each label that fits. Without this
/// limit, each record of a message could have its name at the end of thousands.
const POINTERS_MAX: usize = NAME_BYTES_MAX / 2;
/// RFC 1035 section 2.3.4.
const NAME_BYTES_MAX: usize = 255;
