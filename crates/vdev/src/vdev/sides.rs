//! Operations on every side of a mirror at once, and a side that does not answer.
//!
//! Patience begins once a side that holds everything has answered: before that, all may be slow
//! for one cause, and all wait. It lasts half a second, or ten times what the leaf itself usually
//! needs, if that is longer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aquifer_blockio::DiskError;
use aquifer_blockio::sabotage::{Rule, left_out};

use super::{Vdev, VdevLost};
use crate::io::{Begun, IoKind};
use crate::leaf::{Act, Io, Leaf, PATIENCE_MS};
use crate::ticks::Waiting;

/// One side's part of an act.
struct Side {
    leaf: Arc<Leaf>,
    begun: Option<Begun>,
    /// Until it has answered, or is waited for no more.
    io: Option<Io<()>>,
}

impl Side {
    fn new(leaf: &Arc<Leaf>, act: Act) -> Side {
        Side { leaf: leaf.clone(), begun: None, io: Some(leaf.begin(act)) }
    }
}

/// The wait for the sides that have not answered while others have.
#[derive(Default)]
struct Patience {
    /// A side that holds everything has answered.
    answered: bool,
    waiting: Option<Waiting>,
}

impl Patience {
    /// Waits for a leaf, and perhaps more; returns how long already. `None`: for as long as it
    /// takes, since no other has answered.
    fn waits(&mut self, leaf: &Leaf, context: &Context<'_>) -> Option<u64> {
        if !self.answered {
            return None;
        }
        match &self.waiting {
            Some(waiting) => waiting.renew(context),
            None => self.waiting = Some(Waiting::new(&leaf.ticks, context)),
        }
        self.waiting.as_ref().map(Waiting::waited_ms)
    }
}

impl Vdev {
    /// Does this on every leaf that is written to.
    pub(super) async fn on_each(&self, act: Act) -> Result<(), VdevLost> {
        let (kind, bytes, begun) = (act.kind(), act.bytes(), self.io.begin());
        let mut leaves = self.written();
        match (leaves.next(), leaves.next()) {
            (None, _) => {}
            (Some(only), None) => {
                let begun = only.io.begin();
                let done = only.carry_out(act).await;
                let _ = only.has_done(kind, bytes, begun, done);
            }
            (Some(one), Some(other)) => {
                let mut sides = Vec::with_capacity(self.leaves.len());
                let mut last = one;
                for next in [other].into_iter().chain(leaves) {
                    sides.push(Side::new(last, act.again()));
                    last = next;
                }
                sides.push(Side::new(last, act));
                wait_for_sides(sides, kind, bytes).await;
            }
        }
        self.io.end(kind, bytes, begun, self.check())
    }

    /// Does this on every leaf that is online, which takes several writes and flushes of `act`. A
    /// leaf that does not answer, while another has done it all, fails, and then `act` ends: its
    /// writes and flushes give up.
    pub async fn on_each_online<'a, F>(&'a self, act: impl Fn(&'a Arc<Leaf>) -> F)
    where
        F: Future<Output = Result<(), DiskError>> + Send + 'a,
    {
        type Work<F> = Option<Pin<Box<F>>>;
        let begin = |leaf| (leaf, Some(Box::pin(act(leaf))));
        let mut sides: Vec<(&Arc<Leaf>, Work<F>)> = self.online().map(begin).collect();
        let mut patience = Patience::default();
        poll_fn(|context| {
            for (leaf, work) in &mut sides {
                let Some(doing) = work else { continue };
                if let Poll::Ready(done) = doing.as_mut().poll(context) {
                    *work = None;
                    patience.answered |= done.is_ok() && leaf.is_settled();
                }
            }
            let mut waits = false;
            for (leaf, _) in sides.iter().filter(|(_, work)| work.is_some()) {
                waits = true;
                let waited_ms = patience.waits(leaf, context);
                has_run_out(leaf, &[IoKind::Write, IoKind::Flush], waited_ms);
            }
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

/// Waits until every side has answered or failed.
async fn wait_for_sides(mut sides: Vec<Side>, kind: IoKind, bytes: u64) {
    let mut patience = Patience::default();
    poll_fn(move |context| {
        let mut waits = false;
        for side in &mut sides {
            let Some(io) = &mut side.io else { continue };
            let begun = *side.begun.get_or_insert_with(|| side.leaf.io.begin());
            let Poll::Ready(done) = io.as_mut().poll(context) else {
                waits = true;
                continue;
            };
            side.io = None;
            let done = side.leaf.has_done(kind, bytes, begun, done);
            patience.answered |= done.is_ok() && side.leaf.is_settled();
        }
        if waits {
            waits = look_at_late_sides(&mut sides, kind, &mut patience, context);
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// Leaves the sides that have not answered for too long. Whether there are others.
fn look_at_late_sides(
    sides: &mut [Side],
    kind: IoKind,
    patience: &mut Patience,
    context: &Context<'_>,
) -> bool {
    let mut waits = false;
    for side in sides {
        if side.io.is_none() {
            continue;
        }
        let waited_ms = patience.waits(&side.leaf, context);
        if has_run_out(&side.leaf, &[kind], waited_ms)
            && let Some(io) = side.io.take()
        {
            side.leaf.leave(io);
        } else {
            waits = true;
        }
    }
    waits
}

/// Whether this leaf is waited for no more. It has failed then.
fn has_run_out(leaf: &Arc<Leaf>, kinds: &[IoKind], waited_ms: Option<u64>) -> bool {
    if leaf.hangs() {
        return true;
    }
    let too_long = |ms: &u64| leaf.is_too_long(*ms, kinds, PATIENCE_MS);
    let Some(waited_ms) = waited_ms.filter(too_long) else { return false };
    left_out(Rule::LateSideFails) || leaf.fail_by_hang(waited_ms)
}
