//! Every limit of this crate, with its source.

/// Most payload bytes in one call or reply: `rtmax` and `wtmax` may offer this much.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Room for everything in a record that is not payload: a call header with the largest credential
/// and verifier takes 24 + 2 * (8 + 400) bytes, WRITE's other arguments 88, and an NFSv4 compound
/// around the payload some hundreds.
pub const RECORD_HEADER_BYTES_MAX: usize = 4096;

/// Longest record that is accepted by default.
pub const RECORD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + RECORD_HEADER_BYTES_MAX;

/// Most empty fragments in one record. They are legal (RFC 5531 section 11) but nobody sends them.
/// Without a limit a peer could keep a record open for ever at no cost to itself.
pub const EMPTY_FRAGMENTS_MAX: u32 = 16;

/// Default size of a connection's receive buffer: large reads, many records in each.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Longest body of a credential or verifier, in bytes (RFC 5531 section 8.2).
pub const AUTH_BODY_BYTES_MAX: usize = 400;

/// Longest machine name in AUTH_SYS, in bytes (RFC 5531 appendix A).
pub const AUTH_SYS_MACHINE_NAME_BYTES_MAX: usize = 255;

/// Most supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const AUTH_SYS_GIDS_MAX: usize = 16;

const _: () = assert!(
    RECORD_HEADER_BYTES_MAX > 24 + 2 * (8 + AUTH_BODY_BYTES_MAX) + 88 + 1024,
    "the headers of one record fit the room that is set aside for them"
);

/// Longest text in a message of rpcbind: RFC 1833 gives none, and the longest netid, address or
/// owner has some 50 bytes.
pub const RPCB_STRING_BYTES_MAX: usize = 255;
