//! Record marking: the reader, compared with a model that sees the whole stream at once.

use aquifer_rpc::limits::EMPTY_FRAGMENTS_MAX;
use aquifer_rpc::record::{RecordError, RecordReader};
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, fair};

/// A stream, the way it arrives, and the limit of a record.
struct Case {
    stream: Vec<u8>,
    /// Lengths of the reads, repeated.
    reads: Vec<usize>,
    record_bytes_max: usize,
    /// Detaches records whose last fragment is still arriving.
    detach: bool,
}

/// Tries one input.
pub fn run(input: &[u8]) {
    if let Ok(case) = Case::read(&mut Unstructured::new(input)) {
        let expected = model(&case.stream, case.record_bytes_max);
        let whole = [case.stream.len().max(1)];
        for reads in [&whole[..], &case.reads] {
            let received = fair("reads", case.stream.len(), &LIMIT, || receive(&case, reads));
            assert_eq!(received, expected, "in reads of {reads:?}");
        }
    }
}

impl Case {
    fn read(from: &mut Unstructured<'_>) -> Result<Case> {
        let record_bytes_max = *from.choose(&[0, 1, 4, 100, 1000, 70_000])?;
        let detach = from.arbitrary()?;
        let count = from.int_in_range(1..=6)?;
        let lengths = [1, 2, 3, 4, 5, 7, 64, 1000, 4096, 70_000];
        let reads = (0..count).map(|_| from.choose(&lengths).copied()).collect::<Result<_>>()?;
        let mut stream = Vec::new();
        while !from.is_empty() && stream.len() < STREAM_BYTES_MAX {
            fragment(from, &mut stream)?;
        }
        Ok(Case { stream, reads, record_bytes_max, detach })
    }
}

/// Appends a fragment, or something that is nearly one.
fn fragment(from: &mut Unstructured<'_>, stream: &mut Vec<u8>) -> Result<()> {
    let kind: u8 = from.arbitrary()?;
    let last = u32::from(kind & 1) << 31;
    let length = match kind >> 1 & 7 {
        0 => 0,
        1 => u32::from(from.arbitrary::<u8>()?),
        2 => u32::from(from.arbitrary::<u16>()?),
        3 => {
            // Too few bytes for a mark.
            let count = from.int_in_range(0..=16)?;
            stream.extend_from_slice(from.bytes(count)?);
            return Ok(());
        }
        4 => from.arbitrary::<u32>()? & !(1 << 31),
        _ => u32::from(kind >> 4),
    };
    stream.extend_from_slice(&(last | length).to_be_bytes());
    let bytes = usize::try_from(length).unwrap().min(PAYLOAD_BYTES_MAX);
    // Numbered bytes show a mix-up; they need not come from the input.
    let start = stream.len();
    stream.extend((start..start + bytes).map(|at| u8::try_from(at % 251).unwrap()));
    Ok(())
}

type Received = (Vec<Vec<u8>>, Option<RecordError>);

/// RFC 5531 section 11, applied to a whole stream.
fn model(stream: &[u8], limit: usize) -> Received {
    let (mut records, mut record, mut empty) = (Vec::new(), Vec::new(), 0);
    let mut rest = stream;
    while let Some((mark, behind)) = rest.split_first_chunk() {
        let mark = u32::from_be_bytes(*mark);
        let (last, length) = (mark >> 31 == 1, usize::try_from(mark & 0x7fff_ffff).unwrap());
        if record.len() + length > limit {
            let bytes = record.len() + length;
            return (records, Some(RecordError::TooLong { bytes, limit }));
        }
        empty += u32::from(length == 0 && !last);
        if empty > EMPTY_FRAGMENTS_MAX {
            return (records, Some(RecordError::EmptyFragments { limit: EMPTY_FRAGMENTS_MAX }));
        }
        let Some((fragment, behind)) = behind.split_at_checked(length) else { break };
        record.extend_from_slice(fragment);
        rest = behind;
        if last {
            records.push(std::mem::take(&mut record));
            empty = 0;
        }
    }
    (records, None)
}

/// The reader's result for the stream, which arrives in reads of these lengths.
fn receive(case: &Case, reads: &[usize]) -> Received {
    let mut reader = RecordReader::new(case.record_bytes_max, BUFFER_BYTES);
    let held_max = BUFFER_BYTES.max(case.record_bytes_max + READ_AHEAD_BYTES + 8);
    let (mut records, mut rest) = (Vec::new(), &case.stream[..]);
    let mut lengths = reads.iter().cycle();
    loop {
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.next_record(), Err(error), "an error stays");
                    return (records, Some(error));
                }
            }
        }
        if case.detach && reader.partial().is_some_and(|partial| partial.last) {
            let mut record = reader.partial().unwrap().head.to_vec();
            let missing = reader.detach().unwrap();
            let Some((tail, behind)) = rest.split_at_checked(missing) else {
                return (records, None);
            };
            record.extend_from_slice(tail);
            records.push(record);
            rest = behind;
        }
        if rest.is_empty() {
            return (records, None);
        }
        let space = reader.space();
        let bytes = space.len().min(rest.len()).min(*lengths.next().unwrap());
        assert!(bytes > 0, "there is always space");
        space[..bytes].copy_from_slice(&rest[..bytes]);
        reader.filled(bytes);
        rest = &rest[bytes..];
        assert!(reader.held_bytes() <= held_max, "{} bytes held", reader.held_bytes());
    }
}

const STREAM_BYTES_MAX: usize = 200_000;
const PAYLOAD_BYTES_MAX: usize = 66_000;
/// The reader's smallest buffer, and its read-ahead beyond the missing bytes: see its constants.
const BUFFER_BYTES: usize = 128 * 1024;
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// For the buffer and the received bytes: reads may be of one byte each.
const LIMIT: Limit = Limit { peak: 400_000, peak_per_byte: 48, steps: 20_000, steps_per_byte: 100 };
