//! Coalescing of WRITEs: small ones of one caller to one file, equally stable, that arrived at
//! once.
//!
//! A guest that keeps 32 writes outstanding sends the next 32 when it has its answers. One by one
//! they look up the same file 32 times, ask for room, and enter a txg. If they are stable, each
//! makes a record of the log. Together they do so once (`Files::write_batch`). A caller sees the
//! same as with 32 writes made one after the other in the same instant: each has its own answer.
//!
//! Invariant: any unusual case, from a refused credential to a full pool, is left to the normal
//! path. The calls are then carried out one by one, and each gets its own answer.

use aquifer_blockio::Page;
use aquifer_files::TOGETHER_PAGES_MAX;
use aquifer_rpc::auth::Credential;
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::record::{begin_record, end_record};
use aquifer_rpc::xdr::{Decoder, EncodeBuf};
use futures_util::future::join_all;

use crate::proto::v3::{Nfsstat3, Procedure3};
use crate::server::{Nfs, Origin, Unanswered, decode_write};
use crate::traffic::{self, Done};
use crate::v3;

/// A WRITE whose data was received into pages ([`crate::write_data`]).
#[derive(Clone, Copy, Debug)]
pub struct PagedWrite<'a> {
    /// Its record up to the data.
    pub head: &'a [u8],
    /// The data.
    pub pages: &'a [Page],
}

impl<'a> PagedWrite<'a> {
    /// Whether `next`, which arrived later, may be carried out together with this one. Comparing
    /// the first with each of the others is enough.
    pub fn may_take(&self, next: &PagedWrite<'_>) -> bool {
        matches!((self.common(), next.common()), (Some(one), Some(other)) if one == other)
    }

    /// The common part of writes that go together: their heads differ in the transaction id, the
    /// offset and the length, and in nothing else. `None` if this one cannot be coalesced.
    fn common(&self) -> Option<(&'a [u8], u32)> {
        let (head, own) = self.head.split_last_chunk::<OWN_BYTES>()?;
        let [.., s0, s1, s2, s3, _, _, _, _] = *own;
        let is_small = (1..=TOGETHER_PAGES_MAX).contains(&self.pages.len());
        is_small.then_some((head.get(XID_BYTES..)?, u32::from_be_bytes([s0, s1, s2, s3])))
    }
}

/// A reply with its mark, and what was done if it was a call of NFSv3; otherwise the reason for no
/// reply.
pub type Answered = (EncodeBuf, Result<Option<Done>, Unanswered>);

impl Nfs {
    /// Carries out calls from `origin`: together, or each by itself if that is not possible. The
    /// first must [take](PagedWrite::may_take) each of the others.
    pub async fn answer_together(
        &self,
        origin: &Origin,
        calls: &[PagedWrite<'_>],
    ) -> Vec<Answered> {
        if let Some(answered) = self.answer_batch(origin, calls).await {
            return answered;
        }
        let one = async |call: &PagedWrite<'_>| {
            let mut reply = EncodeBuf::with_capacity(REPLY_BYTES);
            let pages = Some(call.pages);
            let done = self.answer_with(origin.clone(), call.head, pages, &mut reply).await;
            (reply, done)
        };
        join_all(calls.iter().map(one)).await
    }

    /// `None` if they must be carried out one by one; nothing was done then.
    async fn answer_batch(
        &self,
        origin: &Origin,
        calls: &[PagedWrite<'_>],
    ) -> Option<Vec<Answered>> {
        let first = calls.first()?;
        let mut from = Decoder::new(first.head);
        let call = Call::decode(&mut from).ok()?;
        if let Credential::Other(_) = call.credential {
            return None;
        }
        let (exports, locks, credential) = (self.exports(), self.locks(), call.credential);
        let request = v3::Request { exports, origin, locks, credential, call: None, pages: None };
        let arguments = from.position();
        let mut writes = Vec::with_capacity(calls.len());
        let mut replies = Vec::with_capacity(calls.len());
        for call in calls {
            let mut from = Decoder::new(call.head.get(arguments..)?);
            writes.push((decode_write(&mut from, call.pages)?, Some(call.pages)));
            let mut reply = EncodeBuf::with_capacity(REPLY_BYTES);
            let open = begin_record(&mut reply);
            let xid = Decoder::new(call.head).u32().unwrap_or_default();
            reply.put(&Reply::accepted(xid, Accepted::Success));
            replies.push((reply, open));
        }
        let mut to: Vec<&mut EncodeBuf> = replies.iter_mut().map(|(reply, _)| reply).collect();
        let status = v3::carry_out_writes(&request, &writes, &mut to).await.ok()?;
        let done = |((mut reply, open), (args, _)): ((EncodeBuf, _), &v3::Paged<'_>)| {
            end_record(&mut reply, open);
            let head = &args.head;
            let bytes = if status == Nfsstat3::Ok { head.count } else { 0 };
            let file = traffic::content_of(&head.file, status);
            (reply, Ok(Some(Done { procedure: Procedure3::Write, status, file, bytes })))
        };
        Some(replies.into_iter().zip(&writes).map(done).collect())
    }
}

/// The differing end of the head of a WRITE: offset, count, stability, length of the data.
const OWN_BYTES: usize = 20;

/// The differing beginning: the transaction id.
const XID_BYTES: usize = 4;

/// A WRITE's reply: mark 4, header 24, status 4, `wcc_data` 120, count, committed and verifier 16.
const REPLY_BYTES: usize = 168;

#[cfg(test)]
mod tests {
    use aquifer_rpc::auth::{AuthSys, Gids, OpaqueAuth};
    use aquifer_rpc::xdr::PagePiece;

    use super::*;
    use crate::proto::v3::{NfsFh3, PROGRAM, StableHow, VERSION, Write3Head};

    /// The head of a WRITE of `count` bytes, of a user, to a file.
    fn head(
        uid: u32,
        file: u8,
        stable: StableHow,
        (xid, offset, count): (u32, u64, u32),
    ) -> Vec<u8> {
        let gids = Gids::new(&[]).unwrap();
        let sys = AuthSys { stamp: 1, machine_name: b"test", uid, gid: 0, gids };
        let (credential, verifier) = (Credential::Sys(sys), OpaqueAuth::NONE);
        let procedure = Procedure3::Write.wire();
        let file = NfsFh3::new(&[file; 24]).unwrap();
        let mut to = EncodeBuf::new();
        to.put(&Call { xid, program: PROGRAM, version: VERSION, procedure, credential, verifier });
        let whole = Write3Head { file, offset, count, stable };
        let pages = (0..count / 4096).map(|_| PagePiece::whole(Page::zeroed()));
        whole.encode_with(&mut to, pages);
        let mut bytes = to.to_vec();
        bytes.truncate(bytes.len() - count as usize);
        bytes
    }

    #[test]
    fn those_go_together_that_differ_in_id_place_and_length_alone() {
        let pages = vec![Page::zeroed(); TOGETHER_PAGES_MAX + 1];
        let (data, file) = (StableHow::DataSync, StableHow::FileSync);
        let first = head(7, 1, file, (1, 0, 4096));
        let first = PagedWrite { head: &first, pages: &pages[..1] };
        let takes = |head: Vec<u8>, count: usize| {
            let next = PagedWrite { head: &head, pages: &pages[..count] };
            assert_eq!(first.may_take(&next), next.may_take(&first));
            first.may_take(&next)
        };
        assert!(first.may_take(&first));
        assert!(takes(head(7, 1, file, (2, 1 << 40, 8192)), 2));
        assert!(takes(head(7, 1, file, (3, 4096, 16_384)), TOGETHER_PAGES_MAX));
        assert!(!takes(head(7, 1, file, (3, 4096, 20_480)), TOGETHER_PAGES_MAX + 1), "too large");
        assert!(!takes(head(8, 1, file, (2, 4096, 4096)), 1), "another user");
        assert!(!takes(head(7, 2, file, (2, 4096, 4096)), 1), "another file");
        assert!(!takes(head(7, 1, data, (2, 4096, 4096)), 1), "less stable");
        let unstable = head(7, 1, StableHow::Unstable, (2, 4096, 4096));
        let unstable = PagedWrite { head: &unstable, pages: &pages[..1] };
        assert!(unstable.may_take(&unstable) && !first.may_take(&unstable));
        let nothing = PagedWrite { head: &[0; 19], pages: &pages[..1] };
        assert!(!nothing.may_take(&nothing));
    }
}
