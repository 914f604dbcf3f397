//! Bytes in the pieces in which they came.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Smaller pieces are joined: else each would take more memory than its bytes.
const PIECE_BYTES_MIN: usize = 1024;
/// So long may joined ones become.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// Bytes in pieces, which are not copied.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    all: VecDeque<Bytes>,
    /// Bytes in all of them.
    len: usize,
}

impl Pieces {
    /// Appends bytes.
    pub fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        let is_small = piece.len() < PIECE_BYTES_MIN;
        match self.all.pop_back_if(|last| is_small && last.len() < JOINED_BYTES_MAX) {
            Some(last) => {
                let last = last.try_into_mut();
                let mut joined = last.unwrap_or_else(|last| BytesMut::from(last.as_ref()));
                joined.extend_from_slice(&piece);
                self.all.push_back(joined.freeze());
            }
            None if piece.is_empty() => {}
            None => self.all.push_back(piece),
        }
    }

    /// Appends others.
    pub fn append(&mut self, others: Pieces) {
        others.all.into_iter().for_each(|piece| self.push(piece));
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(AsRef::as_ref)
    }

    /// All bytes. If there are several pieces they are copied together in `room`, which is used
    /// again when what it gave is dropped.
    pub(crate) fn joined(mut self, room: &mut BytesMut) -> Bytes {
        if self.all.len() <= 1 {
            return self.all.pop_front().unwrap_or_default();
        }
        room.reserve(self.len);
        self.all.iter().for_each(|piece| room.extend_from_slice(piece));
        room.split().freeze()
    }

    /// Takes bytes off the front: so many, or all if there are fewer.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Pieces {
        let mut taken = Pieces::default();
        while taken.len < bytes
            && let Some(mut piece) = self.all.pop_front()
        {
            let part = piece.split_to(piece.len().min(bytes - taken.len));
            taken.len += part.len();
            taken.all.push_back(part);
            if !piece.is_empty() {
                self.all.push_front(piece);
            }
        }
        self.len -= taken.len;
        taken
    }

    /// A copy of the first bytes: of so many, or all if there are fewer.
    pub(crate) fn front(&self, bytes: usize) -> Vec<u8> {
        let mut front = Vec::with_capacity(bytes.min(self.len));
        for piece in &self.all {
            let (part, _) = piece.split_at(piece.len().min(bytes - front.len()));
            front.extend_from_slice(part);
            if front.len() == bytes {
                break;
            }
        }
        front
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Pieces {
        let mut pieces = Pieces::default();
        pieces.push(bytes);
        pieces
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Pieces {
        Bytes::from(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lengths: &[usize]) -> (Pieces, Vec<u8>) {
        let bytes: Vec<u8> = (0..251).cycle().take(lengths.iter().sum()).collect();
        let all = Bytes::from(bytes.clone());
        let (mut pieces, mut rest) = (Pieces::default(), all);
        lengths.iter().for_each(|length| pieces.push(rest.split_to(*length)));
        (pieces, bytes)
    }

    #[test]
    fn bytes_are_the_same_in_whatever_pieces() {
        let lengths = [
            &[][..],
            &[0],
            &[10],
            &[4096, 4096],
            &[4095, 4097, 1, 0, 4095],
            &[1; 9000],
            &[1500; 40],
            &[20_000, 3, 3, 3, 70_000, 1, 1, 4090],
        ];
        let mut room = BytesMut::new();
        for lengths in lengths {
            let (whole, bytes) = pieces(lengths);
            assert_eq!((whole.len(), whole.is_empty()), (bytes.len(), bytes.is_empty()));
            assert_eq!(whole.clone().joined(&mut room), bytes);
            for at in [0, 1, 16, 4096, 5000, bytes.len(), bytes.len() + 1] {
                let (front, back) = bytes.split_at(at.min(bytes.len()));
                let mut behind = whole.clone();
                assert_eq!(behind.front(at), front);
                assert_eq!(behind.split_to(at).joined(&mut room), front);
                assert_eq!((behind.len(), behind.joined(&mut room).as_ref()), (back.len(), back));
            }
        }
    }

    #[test]
    fn small_pieces_are_joined() {
        let (whole, _) = pieces(&[1; 200_000]);
        assert!(whole.iter().count() < 10);
        let (whole, _) = pieces(&[1500; 40]);
        assert_eq!(whole.iter().count(), 40, "these are not copied");
    }
}
