//! A bundle is received: one stream after the other, each into its dataset and in its own txg.
//!
//! Invariants:
//! - A stream goes only where the head of the bundle says: it is of that dataset, and has those
//!   snapshots.
//! - What came before an error stays. Sent again, a stream whose snapshot is there, or a later one
//!   of its row, is passed over.
//! - A bundle that ends before its last stream is an error.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use aquifer_ondisk::Guid;
use aquifer_stream::{Begin, Bundle, BundleHead, Pieces, StreamError};

use super::{Copied, ReceiveError, ReceiveOptions, Received, Receiver, Way};
use crate::core::Files;

/// Facts that a bundle states about a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// The full name of the snapshot where it was sent.
    sent: String,
    to: Guid,
    from: Option<Guid>,
    /// The dataset above comes in this bundle.
    above_comes: bool,
    /// The dataset had this one when its row began: the same, or one that is later in the row.
    had: Option<(Guid, String)>,
    /// The stream before it is of the same dataset, and was not passed over.
    is_behind: bool,
}

/// Takes the bytes of a stream, a row of them, or a bundle.
#[derive(Debug)]
pub struct TreeReceiver {
    /// It keeps no pool in service.
    files: Weak<Files>,
    /// The full name of the dataset, or the first one.
    name: String,
    options: ReceiveOptions,
    copied: Copied,
    stage: Stage,
}

/// The full name of the first dataset, and how it is received.
type To<'a> = (&'a str, ReceiveOptions, &'a Copied);

#[derive(Debug)]
enum Stage {
    /// Too little came to know what it is.
    Head(Vec<u8>),
    /// No bundle.
    One(Box<Receiver>),
    Many(Box<Many>),
}

/// A bundle that comes.
#[derive(Debug)]
struct Many {
    head: BundleHead,
    /// Those whose stream has ended.
    done: Vec<Received>,
    /// The last stream of the row that comes whose snapshot the dataset had when the row began.
    had: Option<(usize, String)>,
    /// The next one; `None`: all came.
    receiver: Option<Receiver>,
}

/// How far a bundle came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleProgress {
    /// The full name of the dataset whose stream comes.
    pub name: String,
    /// Streams that came.
    pub came: usize,
    /// All.
    pub of: usize,
    /// Of a dataset several may come.
    pub has_rows: bool,
}

impl TreeReceiver {
    /// For a dataset of this full name, and those below it.
    pub fn new(files: &Arc<Files>, name: String, options: ReceiveOptions) -> TreeReceiver {
        let stage = Stage::Head(Vec::new());
        TreeReceiver {
            files: Arc::downgrade(files),
            name,
            options,
            copied: Copied::default(),
            stage,
        }
    }

    /// For copies of this one.
    #[must_use]
    pub fn of_copy(self, copied: Copied) -> TreeReceiver {
        TreeReceiver { copied, ..self }
    }

    /// Whether the one that brings a single stream fed that copy before it came.
    pub fn has_fed_before(&self) -> bool {
        match &self.stage {
            Stage::One(receiver) => receiver.has_fed_before(),
            Stage::Head(_) | Stage::Many(_) => false,
        }
    }

    /// Takes more bytes, as [`Receiver::push`].
    ///
    /// # Errors
    /// As there.
    pub async fn push(&mut self, bytes: impl Into<Pieces>) -> Result<(), ReceiveError> {
        let bytes = bytes.into();
        let files = self.files.upgrade().ok_or(ReceiveError::Left)?;
        let new_handles = self.options.new_handles;
        let head = match &mut self.stage {
            Stage::One(receiver) => return receiver.push(bytes).await,
            Stage::Many(many) => {
                return many.push(&files, (&self.name, self.options, &self.copied), bytes).await;
            }
            Stage::Head(head) => head,
        };
        bytes.iter().for_each(|piece| head.extend_from_slice(piece));
        match Bundle::is_one(head) {
            None => Ok(()),
            Some(false) => {
                let head = std::mem::take(head);
                let mut receiver = Receiver::new(&files, self.name.clone(), self.options)
                    .of_copy(self.copied.clone());
                let pushed = receiver.push(head).await;
                self.stage = Stage::One(Box::new(receiver));
                pushed
            }
            Some(true) if self.copied.expected.is_some() => {
                let why = "it is a bundle, and one stream was asked for";
                Err(ReceiveError::Contradicts(why.into()))
            }
            Some(true) => {
                let Some((says, head_bytes)) = BundleHead::decode(head)? else { return Ok(()) };
                if let Some(old) = says.row().filter(|_| new_handles) {
                    return Err(ReceiveError::NewHandles(old));
                }
                let rest = head.split_off(head_bytes);
                let mut many = Many { head: says, done: Vec::new(), had: None, receiver: None };
                many.next(&files, (&self.name, self.options, &self.copied));
                let pushed =
                    many.push(&files, (&self.name, self.options, &self.copied), rest.into()).await;
                self.stage = Stage::Many(Box::new(many));
                pushed
            }
        }
    }

    /// No more bytes come, as [`Receiver::finish`].
    ///
    /// # Errors
    /// As there; not all streams came.
    pub async fn finish(&mut self) -> Result<Vec<Received>, ReceiveError> {
        match &mut self.stage {
            Stage::Head(head) if head.is_empty() => Err(StreamError::NotAStream.into()),
            Stage::Head(_) => Err(StreamError::Truncated { records: 0 }.into()),
            Stage::One(receiver) => Ok(vec![receiver.finish().await?]),
            Stage::Many(many) => match &mut many.receiver {
                None => Ok(std::mem::take(&mut many.done)),
                Some(receiver) if !receiver.has_begun() => {
                    Err(ReceiveError::Cut(receiver.name().into()))
                }
                // It has not ended, or the next one would be here.
                Some(receiver) => receiver.finish().await.map(|done| vec![done]),
            },
        }
    }

    /// The stream that comes breaks off, as [`Receiver::leave`].
    ///
    /// # Errors
    /// As there.
    pub async fn leave(&mut self, why: Option<&ReceiveError>) -> Result<bool, ReceiveError> {
        match &mut self.stage {
            Stage::Head(_) => Ok(false),
            Stage::One(receiver) => receiver.leave(why).await,
            Stage::Many(many) => match &mut many.receiver {
                Some(receiver) => receiver.leave(why).await,
                None => Ok(false),
            },
        }
    }

    /// The full name of the dataset whose stream comes.
    pub fn name(&self) -> &str {
        match &self.stage {
            Stage::Many(many) => many.receiver.as_ref().map_or(&self.name, |of| of.name()),
            _ => &self.name,
        }
    }

    /// How far a bundle came; `None`: it is none, or only checked.
    pub fn progress(&self) -> Option<BundleProgress> {
        let Stage::Many(many) = &self.stage else { return None };
        let (came, of) = (many.done.len(), many.head.bundle.members.len());
        let has_rows = !many.head.between.is_empty();
        let is_made = !self.options.dry && came < of;
        is_made.then(|| BundleProgress { name: self.name().into(), came, of, has_rows })
    }
}

impl Many {
    async fn push(
        &mut self,
        files: &Arc<Files>,
        to: To<'_>,
        mut bytes: Pieces,
    ) -> Result<(), ReceiveError> {
        loop {
            let Some(receiver) = &mut self.receiver else {
                let is_end = bytes.is_empty();
                return if is_end { Ok(()) } else { Err(StreamError::Trailing.into()) };
            };
            receiver.push(bytes).await?;
            let Some(behind) = receiver.take_behind() else { return Ok(()) };
            self.done.push(receiver.finish().await?);
            self.next(files, to);
            bytes = behind;
        }
    }

    /// The next stream, if there is one more.
    fn next(&mut self, files: &Arc<Files>, (first, options, copied): To<'_>) {
        let at = self.done.len();
        let Bundle { dataset, members, .. } = &self.head.bundle;
        let Some(of) = members.get(at) else {
            self.receiver = None;
            return;
        };
        let name = Bundle::name_below(first, of);
        let is_row = self.head.bundle.is_behind(at);
        if !is_row {
            self.had = self.had_of_row(files, &name);
        }
        let had = self.had.as_ref().filter(|(last, _)| at <= *last);
        let had = had.and_then(|(last, name)| Some((members.get(*last)?.to, name.clone())));
        let sent = format!("{}@{}", Bundle::name_below(dataset, of), self.head.snapshot(at));
        let above = of.below.rsplit_once('/').map(|(above, _)| above);
        let is_member = |above| members.binary_search_by(|of| of.below.as_str().cmp(above));
        let above_comes = above.is_some_and(|above| is_member(above).is_ok());
        let is_behind = is_row && self.done.last().is_some_and(|before| !before.was_there);
        let member = Member { sent, to: of.to, from: of.from, above_comes, had, is_behind };
        self.receiver = Some(Receiver {
            member: Some(member),
            ..Receiver::new(files, name, options).of_copy(copied.clone())
        });
    }

    /// Of the row that begins: the last stream whose snapshot the dataset has, and how that one is
    /// called there.
    fn had_of_row(&self, files: &Files, name: &str) -> Option<(usize, String)> {
        let dataset = files.datasets.by_name(name)?;
        let listed = dataset.snapshots(files.pool.committed_txg());
        let names = listed.iter().map(|of| (of.record.guid, &of.record.name));
        let names = names.collect::<BTreeMap<_, _>>();
        let begins = self.done.len();
        let behind = self.head.bundle.members.get(begins..)?;
        let below = &behind.first()?.below;
        let row = behind.iter().zip(begins..).take_while(|(of, _)| of.below == *below);
        row.filter_map(|(of, at)| Some((at, (*names.get(&of.to)?).clone()))).last()
    }
}

impl Receiver {
    /// Whether the first record came.
    fn has_begun(&self) -> bool {
        !self.about.sent.is_empty()
    }

    /// Of a stream of a bundle that has ended: what came behind it.
    fn take_behind(&mut self) -> Option<Pieces> {
        self.decoder.has_ended().then(|| std::mem::take(&mut self.behind))
    }

    /// Whether the dataset has the snapshot of this stream of a bundle already, or a later one of
    /// its row.
    ///
    /// # Errors
    /// It is another stream than the head of the bundle says. It is only to be checked, and goes
    /// behind one that was.
    pub(super) fn is_passed_over(
        &mut self,
        files: &Files,
        begin: &Begin,
    ) -> Result<bool, ReceiveError> {
        let Some(member) = &self.member else { return Ok(false) };
        let sent = format!("{}@{}", begin.dataset, begin.to.name);
        let from = begin.from.as_ref().map(|from| from.guid);
        let is_it = (&sent, begin.to.guid, from) == (&member.sent, member.to, member.from);
        if !is_it || begin.start.is_some() {
            let why = format!("that of {sent:?} comes where the head says {:?}", member.sent);
            return Err(ReceiveError::Contradicts(why));
        }
        let Member { to, had, is_behind, .. } = member;
        // One in service is no copy.
        let copy = files.datasets.by_name(&self.name).filter(|dataset| dataset.is_standby());
        let listed = copy.map(|copy| copy.snapshots(files.pool.committed_txg()));
        let has = |guid| listed.iter().flatten().any(|of| of.record.guid == guid);
        let later = had.as_ref().filter(|(guid, _)| !has(*to) && has(*guid));
        if later.is_some() || has(*to) {
            (self.way, self.about.was_there) = (Way::Nowhere, true);
            self.about.later = later.map(|(_, name)| format!("{}@{name}", self.name));
            return Ok(true);
        }
        match self.options.dry && *is_behind {
            true => Err(ReceiveError::DryRow),
            false => Ok(false),
        }
    }

    /// Whether the dataset above is not there, and comes in the same bundle.
    pub(super) fn waits_for_above(&self, files: &Files) -> bool {
        let above = self.name.rsplit_once('/').map_or("", |(above, _)| above);
        let comes = self.member.as_ref().is_some_and(|member| member.above_comes);
        comes && files.datasets.by_name(above).is_none()
    }
}
