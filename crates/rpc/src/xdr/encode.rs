//! The encoder: appends each type to an [`EncodeBuf`].

use super::{EncodeBuf, PagePiece, Span, UNIT_BYTES, padding};

/// A type that can be written as XDR.
pub trait Encode {
    /// Appends this value.
    fn encode(&self, to: &mut EncodeBuf);
}

impl EncodeBuf {
    /// Appends any value; reads well in chains of fields.
    pub fn put(&mut self, value: &impl Encode) {
        value.encode(self);
    }

    /// Appends an `unsigned int`.
    pub fn u32(&mut self, value: u32) {
        self.extend(&value.to_be_bytes());
    }

    /// Appends an `int`.
    pub fn i32(&mut self, value: i32) {
        self.extend(&value.to_be_bytes());
    }

    /// Appends an `unsigned hyper`.
    pub fn u64(&mut self, value: u64) {
        self.extend(&value.to_be_bytes());
    }

    /// Appends a `hyper`.
    pub fn i64(&mut self, value: i64) {
        self.extend(&value.to_be_bytes());
    }

    /// Appends a `bool`.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Appends fixed-length opaque data: the bytes and their padding.
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.extend(bytes);
        self.pad(bytes.len());
    }

    /// Appends variable-length opaque data, or a string.
    ///
    /// # Panics
    /// If `bytes` is 4 GiB or longer: no caller has that much.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(length_word(bytes.len()));
        self.opaque_fixed(bytes);
    }

    /// Appends variable-length opaque data made of pages, which are shared and not copied.
    /// Returns the number of payload bytes.
    ///
    /// # Panics
    /// If the pieces together are 4 GiB or longer.
    pub fn payload(&mut self, pieces: impl IntoIterator<Item = PagePiece>) -> u32 {
        let hole = self.hole();
        let before = self.len();
        let pieces = pieces.into_iter();
        self.reserve_pieces(pieces.size_hint().0);
        for piece in pieces {
            self.piece(piece);
        }
        let bytes = self.len() - before;
        let word = length_word(bytes);
        self.fill(hole, word);
        self.pad(bytes);
        word
    }

    /// Appends a linked list of optional data (RFC 4506 section 4.19).
    pub fn list<T: Encode>(&mut self, items: impl IntoIterator<Item = T>) {
        for item in items {
            self.bool(true);
            item.encode(self);
        }
        self.bool(false);
    }

    fn pad(&mut self, len: usize) {
        const ZEROS: [u8; UNIT_BYTES] = [0; UNIT_BYTES];
        let (zeros, _) = ZEROS.split_at(padding(len));
        self.extend(zeros);
    }
}

/// The length word for `len` elements in memory.
pub(super) fn length_word(len: usize) -> u32 {
    u32::try_from(len).expect("nothing that is encoded is 4 GiB long")
}

impl Encode for () {
    fn encode(&self, _: &mut EncodeBuf) {}
}

impl Encode for u32 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(*self);
    }
}

impl Encode for i32 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.i32(*self);
    }
}

impl Encode for u64 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u64(*self);
    }
}

impl Encode for i64 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.i64(*self);
    }
}

impl Encode for bool {
    fn encode(&self, to: &mut EncodeBuf) {
        to.bool(*self);
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque_fixed(self);
    }
}

impl Encode for &[u8] {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque(self);
    }
}

impl Encode for Span<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque(self.bytes);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            Some(value) => {
                to.bool(true);
                value.encode(to);
            }
            None => to.bool(false),
        }
    }
}

impl<T: Encode> Encode for &T {
    fn encode(&self, to: &mut EncodeBuf) {
        T::encode(self, to);
    }
}
