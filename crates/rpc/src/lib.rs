//! ONC RPC without a socket and without a clock: bytes in, bytes out.
//!
//! The path of a call: [`record`] cuts the byte stream into records in place. [`message`] reads the
//! call header. The program's own crate decodes the arguments with [`xdr::Decoder`] and encodes the
//! results into an [`xdr::EncodeBuf`], which carries payload pages by reference and is sent with
//! one vectored write. [`portmap`] is a whole small program served that way.
//!
//! Invariants:
//! - Decoding is total: any bytes give a value or an error, never a panic, and no allocation is
//!   larger than a small multiple of the received bytes.
//! - No decoded value owns a copy of the record: names, payloads and handles are borrowed from it
//!   or small and fixed in size.

pub mod auth;
pub mod limits;
pub mod message;
pub mod portmap;
pub mod record;
pub mod tls;
pub mod xdr;
