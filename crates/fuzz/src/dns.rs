//! Answers of DNS: believed only if they answer the question, and then only what they contain.

use std::net::IpAddr;

use aquifer_nfsd::dns::{Answer, Kind, Question, Reply};
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, fair};

/// Tries one input: as a message, and as the source of a message.
pub fn run(input: &[u8]) {
    let Some(([kind, name], message)) = input.split_first_chunk() else { return };
    let kind = if kind & 1 == 0 { Kind::A } else { Kind::Aaaa };
    let name = NAMES[usize::from(*name) % NAMES.len()];
    let question = Question::new(name, kind).unwrap();
    let mut raw = message.to_vec();
    // The id, which nobody can guess, is set here; the fuzzer must find the rest.
    if let Some(id) = raw.get_mut(..2) {
        id.copy_from_slice(&question.bytes()[..2]);
    }
    answer(&question, kind, name, &raw);
    if let Ok(made) = nearly_right(&mut Unstructured::new(message), &question) {
        answer(&question, kind, name, &made);
    }
}

fn answer(question: &Question, kind: Kind, name: &str, message: &[u8]) {
    let Some(reply) = fair("an answer", message.len(), &LIMIT, || question.reply(message)) else {
        return;
    };
    if let Reply::Answer(Answer { addresses, ttl }) = &reply {
        assert!(ttl.as_secs() <= i32::MAX.unsigned_abs().into(), "{ttl:?}");
        for address in addresses {
            assert_eq!(address.is_ipv4(), kind == Kind::A, "{address}");
            let said = match address {
                IpAddr::V4(address) => holds(message, &address.octets()),
                IpAddr::V6(address) => holds(message, &address.octets()),
            };
            assert!(said, "{address} is made up");
        }
    }
    // It answered this question, so it must answer no other.
    let mut other = message.to_vec();
    other[0] ^= 1;
    assert_eq!(question.reply(&other), None, "another number");
    let mut asks = message.to_vec();
    asks[2] &= 0x7f;
    assert_eq!(question.reply(&asks), None, "a question");
    let other_kind = if kind == Kind::A { Kind::Aaaa } else { Kind::A };
    for (name, kind) in [(name, other_kind), ("another.example", kind), ("b", kind)] {
        let unlike = Question::new(name, kind).unwrap();
        let mut message = message.to_vec();
        message[..2].copy_from_slice(&unlike.bytes()[..2]);
        assert_eq!(unlike.reply(&message), None, "{name} {kind:?} was not asked for");
    }
}

fn holds(message: &[u8], bytes: &[u8]) -> bool {
    message.windows(bytes.len()).any(|some| some == bytes)
}

/// An answer to this question: aliases and addresses, with names that point anywhere.
fn nearly_right(from: &mut Unstructured<'_>, question: &Question) -> Result<Vec<u8>> {
    let mut message = question.bytes().to_vec();
    let flags = *from.choose(&[0x8180u16, 0x8180, 0x8180, 0x8183, 0x8182, 0x8380, 0x0100])?;
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    let (mut counts, owner) = ([0u16; 2], [0xc0, 12]);
    let mut names = vec![12u16];
    while !from.is_empty() && message.len() < MESSAGE_BYTES_MAX {
        let at = u16::try_from(message.len()).unwrap();
        match from.int_in_range(0..=3)? {
            0 => message.extend(owner),
            1 => message.extend((0xc000 | from.choose(&names)?).to_be_bytes()),
            2 => message.extend((0xc000 | from.int_in_range(0..=at)?).to_be_bytes()),
            _ => name(from, &mut message)?,
        }
        let (kind, bytes) = *from.choose(&[(1u16, 4u16), (28, 16), (5, 0), (6, 0), (16, 9)])?;
        message.extend(kind.to_be_bytes());
        message.extend([0, if from.ratio(1, 32)? { 3 } else { 1 }]);
        message.extend(from.choose(&[0u32, 1, 300, 1 << 31, u32::MAX])?.to_be_bytes());
        let length_at = message.len();
        message.extend([0, 0]);
        let data_at = u16::try_from(message.len()).unwrap();
        match kind {
            5 => name(from, &mut message)?,
            6 => {
                name(from, &mut message)?;
                name(from, &mut message)?;
                message.extend([0; 20]);
            }
            16 if from.arbitrary()? => {
                // Pointers that lead to pointers: the last one has the longest path.
                for _ in 0..from.int_in_range(1..=1000)? {
                    let before = message.len() - 2;
                    message.extend((0xc000 | u16::try_from(before).unwrap()).to_be_bytes());
                }
                names.push(u16::try_from(message.len() - 2).unwrap());
            }
            _ => message.extend((0..bytes).map(|_| from.arbitrary::<u8>().unwrap_or(7))),
        }
        names.push(data_at);
        let long = message.len() - length_at - 2;
        let said =
            if from.ratio(1, 32)? { from.arbitrary()? } else { u16::try_from(long).unwrap() };
        message[length_at..length_at + 2].copy_from_slice(&said.to_be_bytes());
        counts[usize::from(kind == 6)] += 1;
    }
    message[6..8].copy_from_slice(&counts[0].to_be_bytes());
    message[8..10].copy_from_slice(&counts[1].to_be_bytes());
    Ok(message)
}

fn name(from: &mut Unstructured<'_>, to: &mut Vec<u8>) -> Result<()> {
    for _ in 0..from.int_in_range(0..=3)? {
        let label = *from.choose(&[&b"a"[..], b"hv1", b"EXAMPLE", b"\xff", &[b'l'; 63]])?;
        to.push(u8::try_from(label.len()).unwrap());
        to.extend(label);
    }
    let at = u16::try_from(to.len()).unwrap();
    match from.int_in_range(0..=3)? {
        0 => to.push(0),
        1 => to.extend([0xc0, 12]),
        _ => to.extend((0xc000 | from.int_in_range(0..=at)?).to_be_bytes()),
    }
    Ok(())
}

const NAMES: [&str; 4] = ["hv1.example", "a", "A.Very.Long.Name.Of.A.Host.Example.", ""];
const MESSAGE_BYTES_MAX: usize = 4000;
const LIMIT: Limit = Limit { peak: 16_384, peak_per_byte: 128, steps: 5000, steps_per_byte: 150 };
