//! The form of a tree that the engine does not write yet, but that owns sectors when it does.

use aquifer_ondisk::FormatError;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::{Reader, Writer};
use aquifer_ondisk::dead::DeadEntry;
use aquifer_ondisk::tree_node::Form;
use aquifer_ondisk::types::{Place, Txg};

/// A dataset's dead entries. Its inner nodes will carry sums, but the format does not define them
/// yet: they are read as those of any tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadTree;

/// Group, newest covering snapshot, birth, address.
pub(crate) type DeadKey = (u64, Txg, Txg, Place);

impl Form for DeadTree {
    const KIND: BlockKind = BlockKind::Dead;
    type Key = DeadKey;
    type Entry = DeadEntry;
    const KEY_BYTES: usize = 32;
    const KEY_MIN: DeadKey = (0, Txg(0), Txg(0), Place::NULL);
    const ENTRY_BYTES_MIN: usize = DeadEntry::BYTES;

    fn key(entry: &DeadEntry) -> DeadKey {
        (entry.group, entry.hi, entry.birth, entry.address)
    }
    fn entry_bytes(_: &DeadEntry) -> usize {
        DeadEntry::BYTES
    }
    fn encode_key((group, hi, birth, address): DeadKey, w: &mut Writer) {
        [group, hi.0, birth.0, address.0].into_iter().for_each(|word| w.u64(word));
    }
    fn decode_key(r: &mut Reader<'_>) -> Result<DeadKey, FormatError> {
        Ok((r.u64()?, Txg(r.u64()?), Txg(r.u64()?), Place(r.u64()?)))
    }
    fn encode_entry(entry: &DeadEntry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<DeadEntry, FormatError> {
        DeadEntry::decode(r)
    }
}
