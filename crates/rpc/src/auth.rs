//! Credentials and verifiers (RFC 5531 sections 8.2 and 9, AUTH_SYS in appendix A).
//!
//! Invariant: a credential that breaks a limit of its flavor is never half accepted; the caller
//! answers AUTH_BADCRED. A flavor that is unknown here is passed on as bytes, since the program
//! decides whether to accept it (AUTH_TLS and RPCSEC_GSS begin as such).

use crate::limits::{AUTH_BODY_BYTES_MAX, AUTH_SYS_GIDS_MAX, AUTH_SYS_MACHINE_NAME_BYTES_MAX};
use crate::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError, opaque_bytes};
use crate::xdr_table;

/// `auth_flavor` AUTH_NONE.
pub const AUTH_NONE: u32 = 0;
/// `auth_flavor` AUTH_SYS.
pub const AUTH_SYS: u32 = 1;
/// `auth_flavor` RPCSEC_GSS (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;
/// `auth_flavor` AUTH_TLS, the STARTTLS probe (RFC 9289 section 4.1).
pub const AUTH_TLS: u32 = 7;

xdr_table! {
    /// `enum auth_stat`: why a call was refused for its credential or verifier.
    enum AuthStat {
        /// AUTH_OK: success.
        Ok = 0,
        /// AUTH_BADCRED: bad credential (seal broken).
        BadCred = 1,
        /// AUTH_REJECTEDCRED: client must begin new session.
        RejectedCred = 2,
        /// AUTH_BADVERF: bad verifier (seal broken).
        BadVerf = 3,
        /// AUTH_REJECTEDVERF: verifier expired or replayed.
        RejectedVerf = 4,
        /// AUTH_TOOWEAK: rejected for security reasons.
        TooWeak = 5,
        /// AUTH_INVALIDRESP: bogus response verifier.
        InvalidResp = 6,
        /// AUTH_FAILED: reason unknown.
        Failed = 7,
        /// AUTH_KERB_GENERIC: kerberos generic error.
        KerbGeneric = 8,
        /// AUTH_TIMEEXPIRE: time of credential expired.
        TimeExpire = 9,
        /// AUTH_TKT_FILE: problem with ticket file.
        TktFile = 10,
        /// AUTH_DECODE: can't decode authenticator.
        Decode = 11,
        /// AUTH_NET_ADDR: wrong net address in ticket.
        NetAddr = 12,
        /// RPCSEC_GSS_CREDPROBLEM: no credentials for user.
        GssCredProblem = 13,
        /// RPCSEC_GSS_CTXPROBLEM: problem with context.
        GssCtxProblem = 14,
    }
}

/// `struct opaque_auth`: a flavor and at most 400 bytes that it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// `auth_flavor`; any number, since flavors are registered with IANA one by one.
    pub flavor: u32,
    /// The bytes that the flavor defines.
    pub body: &'a [u8],
}

impl OpaqueAuth<'_> {
    /// AUTH_NONE with an empty body: our verifier in every reply except for RPCSEC_GSS and
    /// AUTH_TLS.
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: AUTH_NONE, body: &[] };
}

impl Encode for OpaqueAuth<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(self.flavor);
        to.opaque(self.body);
    }
}

impl<'a> Decode<'a> for OpaqueAuth<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(OpaqueAuth { flavor: from.u32()?, body: from.opaque(AUTH_BODY_BYTES_MAX)? })
    }
}

/// The caller's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE: anonymous.
    None,
    /// AUTH_SYS: a user of a machine, as the machine claims.
    Sys(AuthSys<'a>),
    /// Any other flavor, body unread.
    Other(OpaqueAuth<'a>),
}

impl<'a> Credential<'a> {
    /// Reads the body that the flavor defines. AUTH_NONE's body should be empty and is ignored.
    ///
    /// # Errors
    /// [`XdrError`] if AUTH_SYS's body breaks its definition: more than 16 groups, a machine name
    /// over 255 bytes, too short.
    pub fn parse(auth: OpaqueAuth<'a>) -> Result<Self, XdrError> {
        match auth.flavor {
            AUTH_NONE => Ok(Credential::None),
            AUTH_SYS => AuthSys::decode(&mut Decoder::new(auth.body)).map(Credential::Sys),
            _ => Ok(Credential::Other(auth)),
        }
    }
}

impl Encode for Credential<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            Credential::None => OpaqueAuth::NONE.encode(to),
            Credential::Sys(sys) => {
                to.u32(AUTH_SYS);
                let bytes = to.hole();
                let body = to.mark();
                sys.encode(to);
                let len = to.len_since(body);
                assert!(len <= AUTH_BODY_BYTES_MAX, "limits of AUTH_SYS add up to 340 bytes");
                to.fill(bytes, u32::try_from(len).unwrap_or(0));
            }
            Credential::Other(auth) => auth.encode(to),
        }
    }
}

/// `struct authsys_parms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// An arbitrary number that the caller's machine generated.
    pub stamp: u32,
    /// The caller's machine, at most 255 bytes.
    pub machine_name: &'a [u8],
    /// The caller's effective user.
    pub uid: u32,
    /// The caller's effective group.
    pub gid: u32,
    /// The caller's other groups.
    pub gids: Gids,
}

impl Encode for AuthSys<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(self.stamp);
        to.opaque(self.machine_name);
        to.u32(self.uid);
        to.u32(self.gid);
        to.u32(u32::from(self.gids.len));
        for gid in self.gids.iter() {
            to.u32(gid);
        }
    }
}

impl<'a> Decode<'a> for AuthSys<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(AuthSys {
            stamp: from.u32()?,
            machine_name: from.string(AUTH_SYS_MACHINE_NAME_BYTES_MAX)?,
            uid: from.u32()?,
            gid: from.u32()?,
            gids: Gids::decode(from)?,
        })
    }
}

/// At most 16 supplementary groups, held in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gids {
    len: u8,
    /// Zero from `len` on, so that equality by field is equality of the groups.
    ids: [u32; AUTH_SYS_GIDS_MAX],
}

impl Gids {
    /// These groups; `None` if there are more than 16.
    pub fn new(gids: &[u32]) -> Option<Self> {
        let mut ids = [0; AUTH_SYS_GIDS_MAX];
        ids.get_mut(..gids.len())?.copy_from_slice(gids);
        Some(Gids { len: u8::try_from(gids.len()).ok()?, ids })
    }

    /// The groups, in the caller's order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied().take(usize::from(self.len))
    }

    /// Whether `gid` is one of them.
    pub fn contains(&self, gid: u32) -> bool {
        self.iter().any(|id| id == gid)
    }
}

impl<'a> Decode<'a> for Gids {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let len = from.length(AUTH_SYS_GIDS_MAX)?;
        let mut gids = Gids { len: u8::try_from(len).unwrap_or(0), ..Gids::default() };
        for id in gids.ids.iter_mut().take(len) {
            *id = from.u32()?;
        }
        Ok(gids)
    }
}

const _: () = assert!(
    4 + opaque_bytes(AUTH_SYS_MACHINE_NAME_BYTES_MAX) + 4 + 4 + 4 + 4 * AUTH_SYS_GIDS_MAX == 340,
    "the longest AUTH_SYS body, 340 bytes, fits a credential"
);
const _: () = assert!(AUTH_SYS_GIDS_MAX <= 0xff, "the number of groups fits 8 bits");
