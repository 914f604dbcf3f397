//! XDR (RFC 4506): a total decoder over received bytes, an encoder that carries pages.
//!
//! Invariants:
//! - [`Decoder`] never reads outside its slice and never panics; every failure names the offset.
//! - [`EncodeBuf`] always holds whole XDR units. Its length is a multiple of four, except for the
//!   moment between a payload and its padding inside one call.
//! - A type's `Encode` and `Decode` are inverse to each other, by round trip tests.

mod buf;
mod decode;
mod encode;
mod table;

#[cfg(test)]
mod tests;

pub use buf::{EncodeBuf, Hole, Mark, PagePiece, Segments};
pub use decode::{Decode, Decoder, Span, XdrError};
pub use encode::Encode;

/// Bytes of one XDR unit: everything is padded to a multiple of it (RFC 4506 section 3).
pub const UNIT_BYTES: usize = 4;

/// How many zero bytes follow `len` bytes of opaque data.
pub const fn padding(len: usize) -> usize {
    (UNIT_BYTES - len % UNIT_BYTES) % UNIT_BYTES
}

/// Bytes that opaque data of `len` bytes takes on the wire, with its length word and padding.
/// `len` must be a length of bytes in memory, so that the sum cannot overflow.
pub const fn opaque_bytes(len: usize) -> usize {
    UNIT_BYTES + len + padding(len)
}
