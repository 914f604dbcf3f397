//! The decoder: a cursor over received bytes.

use std::ops::{Deref, Range};

use super::padding;

/// An error in received bytes. Offsets count from the start of the decoder's input, which for a
/// call is the start of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The input ends inside an item.
    #[error("input ends {missing} bytes short of the item at byte {offset}")]
    Truncated {
        /// Where the item begins.
        offset: usize,
        /// How many more bytes it takes.
        missing: usize,
    },
    /// A variable-length item claims to be longer than its definition allows.
    #[error("item at byte {offset} has length {len}, at most {limit} allowed")]
    TooLong {
        /// Where the item's length word is.
        offset: usize,
        /// The length that it claims, in elements.
        len: usize,
        /// The length that is allowed.
        limit: usize,
    },
    /// A value that its type does not have: a bool of 2, an unknown enum value.
    #[error("{value} at byte {offset} is no value of {what}")]
    BadValue {
        /// Where the value is.
        offset: usize,
        /// The type, or the field whose rule is broken.
        what: &'static str,
        /// The value.
        value: u32,
    },
}

/// A type that can be read from XDR. Its borrows are from the input.
pub trait Decode<'a>: Sized {
    /// Reads one value and moves the decoder behind it.
    ///
    /// # Errors
    /// [`XdrError`] as the type's definition says; the decoder's place is then unspecified.
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError>;
}

/// A run of bytes in the input, with its place: enough to keep the range and drop the borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Offset of the first byte in the decoder's input.
    pub offset: usize,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Span<'_> {
    /// The range of the bytes in the decoder's input.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes.len()
    }
}

impl Deref for Span<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A cursor over received bytes.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Decoder { rest: input, total: input.len() }
    }

    /// Offset of the next byte to be read.
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// An `unsigned int` (RFC 4506 section 4.2).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// An `int` (RFC 4506 section 4.1).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.array().map(i32::from_be_bytes)
    }

    /// An `unsigned hyper` (RFC 4506 section 4.5).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A `hyper` (RFC 4506 section 4.5).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A `bool` (RFC 4506 section 4.4): only 0 and 1 are values of it.
    ///
    /// # Errors
    /// [`XdrError::Truncated`], [`XdrError::BadValue`].
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        let offset = self.position();
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::BadValue { offset, what: "bool", value }),
        }
    }

    /// `opaque x[N]` (RFC 4506 section 4.9).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let bytes = self.array()?;
        self.skip_padding(N);
        Ok(bytes)
    }

    /// `opaque x<limit>` (RFC 4506 section 4.10), borrowed from the input.
    ///
    /// # Errors
    /// [`XdrError::Truncated`], [`XdrError::TooLong`].
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8], XdrError> {
        self.span(limit).map(|span| span.bytes)
    }

    /// `string x<limit>` (RFC 4506 section 4.11) as bytes: NFS names need not be UTF-8.
    ///
    /// # Errors
    /// [`XdrError::Truncated`], [`XdrError::TooLong`].
    pub fn string(&mut self, limit: usize) -> Result<&'a [u8], XdrError> {
        self.opaque(limit)
    }

    /// Like [`Decoder::opaque`], with the place of the bytes.
    ///
    /// # Errors
    /// [`XdrError::Truncated`], [`XdrError::TooLong`].
    pub fn span(&mut self, limit: usize) -> Result<Span<'a>, XdrError> {
        let len = self.length(limit)?;
        let offset = self.position();
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.truncated(len))?;
        self.rest = rest;
        self.skip_padding(len);
        Ok(Span { offset, bytes })
    }

    /// The length word of a variable-length item, in elements.
    ///
    /// # Errors
    /// [`XdrError::Truncated`], [`XdrError::TooLong`].
    pub fn length(&mut self, limit: usize) -> Result<usize, XdrError> {
        let offset = self.position();
        let len = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if len > limit {
            return Err(XdrError::TooLong { offset, len, limit });
        }
        Ok(len)
    }

    /// A linked list of optional data (RFC 4506 section 4.19): TRUE and an element, until FALSE.
    /// Each element takes input, so the received bytes bound the list.
    ///
    /// # Errors
    /// Errors of the elements.
    pub fn list<T: Decode<'a>>(&mut self) -> Result<Vec<T>, XdrError> {
        let mut items = Vec::new();
        while self.bool()? {
            items.push(T::decode(self)?);
        }
        Ok(items)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(N))?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Lenient: ignores the padding's value, and accepts its absence at the input's end.
    fn skip_padding(&mut self, len: usize) {
        let skipped = padding(len).min(self.rest.len());
        self.rest = self.rest.split_at_checked(skipped).map_or(&[], |(_, rest)| rest);
    }

    fn truncated(&self, wanted: usize) -> XdrError {
        XdrError::Truncated { offset: self.position(), missing: wanted - self.rest.len() }
    }
}

impl<'a> Decode<'a> for () {
    fn decode(_: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl<'a> Decode<'a> for u32 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.u32()
    }
}

impl<'a> Decode<'a> for i32 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.i32()
    }
}

impl<'a> Decode<'a> for u64 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.u64()
    }
}

impl<'a> Decode<'a> for i64 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.i64()
    }
}

impl<'a> Decode<'a> for bool {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.bool()
    }
}

impl<'a, const N: usize> Decode<'a> for [u8; N] {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.opaque_fixed()
    }
}

/// Variable-length opaque or string without a limit of its own: the record's end is the limit.
impl<'a> Decode<'a> for &'a [u8] {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.opaque(usize::MAX)
    }
}

/// Like `&[u8]`, with the place of the bytes.
impl<'a> Decode<'a> for Span<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.span(usize::MAX)
    }
}

/// Optional data, and every `union switch (bool)` whose FALSE arm is void.
impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        if from.bool()? { T::decode(from).map(Some) } else { Ok(None) }
    }
}
