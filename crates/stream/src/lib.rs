//! The stream of `aquifer send`: a snapshot, or what changed since an older one, as bytes; and a
//! bundle of several.
//!
//! Encoding and decoding only. [`docs/stream.md`] has every byte.
//!
//! Invariants:
//! - Decoding is total: wrong bytes give a [`StreamError`], whatever they are, and take no more
//!   memory than one record.
//! - A record comes out only after its checksum, which covers all records before it: one that was
//!   changed, left out, doubled or moved is found there.
//! - Records come out in the order that the format allows, each within its limits.
//!
//! [`docs/stream.md`]: ../../../docs/stream.md

mod bundle;
mod decode;
mod encode;
mod error;
mod order;
mod pieces;
mod record;
mod token;

pub use bundle::{Bundle, BundleHead, BundleMember};
pub use decode::Decoder;
pub use encode::{Chain, Encoder};
pub use error::StreamError;
pub use pieces::Pieces;
pub use record::{
    Begin, Counts, DATA_PAGES_MAX, ENTRIES_MAX, End, HOLE_PAGES_MAX, KEYS_MAX, PAGE_BYTES,
    PROPERTIES_MAX, Point, RECORD_BYTES_MAX, Record, STREAM_VERSION,
};
pub use token::{BadToken, Token};
