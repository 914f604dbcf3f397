//! One connection: requests in, replies out, until both sides have finished.
//!
//! A connection is one task with one state. Each time it is woken it repeats these steps in turn
//! until nothing moves: begin received requests, take the replies of finished ones, send, and
//! receive more; see [`Connection::poll`].
//!
//! Invariants:
//! - A connection receives nothing while received requests wait to begin. If a client sends faster
//!   than it is served, or does not read its replies, TCP slows it down.
//! - A connection switches to TLS between two calls: no clear text passes for TLS data.
//! - The end of a connection, whatever its reason, waits for the requests that are under way. Their
//!   replies are sent if the connection still can.

mod end;
mod holds;
mod receive;
mod requests;
mod send;
mod slow;
mod stream;
mod tls;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aquifer_nfs::{Nfs, Origin, Security, Unanswered, Why};
use rustls::pki_types::UnixTime;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::limits::{
    BEGUN_PER_TURN_MAX, LINGER, Limits, RECEIVED_PER_TURN_MAX, REPLIES_PER_WRITE_MAX, TICK,
};
use crate::peers::{Peers, Seat};
use crate::stats::{Stats, add};
use crate::tls::Keys;

pub(crate) use end::End;
pub(crate) use receive::Readers;
use receive::{ReceiveError, Receiver};
pub(crate) use requests::Budgets;
use requests::{Begun, Done, Outcome, Requests};
use send::Sender;
use stream::Stream;
use tls::TlsStream;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Common {
    pub nfs: Arc<Nfs>,
    pub limits: Limits,
    pub budgets: Budgets,
    pub stats: Stats,
    pub peers: Peers,
    /// The keys for TLS; `None`: no TLS.
    pub tls: Option<Arc<Keys>>,
}

/// The phase of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Serve.
    Serve,
    /// Finish running requests, send their replies, and close.
    Drain,
    /// Close. Running requests still run to their end.
    Close,
}

/// One client's connection.
pub(crate) struct Connection {
    /// `None` when it is lost.
    stream: Option<Stream>,
    peer: SocketAddr,
    common: Arc<Common>,
    readers: Arc<Readers>,
    receiver: Receiver,
    requests: Requests,
    sender: Sender,
    /// The reason why it receives nothing more.
    end: Option<End>,
    tls: Upgrade,
    tick: Option<Pin<Box<Sleep>>>,
    seat: Arc<Seat>,
    begun: u64,
    waited: u64,
}

/// The progress of a connection's switch to TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upgrade {
    /// In clear text.
    No,
    /// The client has asked; the answer is under way.
    Asked,
    /// The handshake has begun.
    Shakes,
    /// Over TLS.
    Done,
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is over.
    Over,
    /// It belongs to a client: it leaves the lobby.
    In,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        common: &Arc<Common>,
        readers: &Arc<Readers>,
        seat: &Arc<Seat>,
    ) -> Self {
        let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
        let origin = Origin { peer, local, is_datagram: false, security: Security::Clear };
        Connection {
            stream: Some(Stream::Clear(stream)),
            peer,
            common: Arc::clone(common),
            readers: Arc::clone(readers),
            receiver: Receiver::default(),
            requests: Requests::new(common, &readers.meter, origin),
            sender: Sender::default(),
            end: None,
            tls: Upgrade::No,
            tick: None,
            seat: Arc::clone(seat),
            begun: 0,
            waited: 0,
        }
    }

    /// The address of the client.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This connection on the present runtime, after another one has given it up.
    ///
    /// # Errors
    /// Errors of the system; the connection is lost then.
    pub(crate) fn settle(mut self, readers: &Arc<Readers>) -> io::Result<Self> {
        self.stream = self.stream.map(Stream::settle).transpose()?;
        self.requests.set_meter(&readers.meter);
        self.readers = Arc::clone(readers);
        self.tick = None;
        Ok(self)
    }

    /// Serves until the connection is over. The lobby gives it back when an export takes its calls,
    /// with nothing under way.
    pub(crate) async fn run(mut self, mut phase: watch::Receiver<Phase>) -> Option<Self> {
        let readers = Arc::clone(&self.readers);
        let poll = |connection: &mut Self, cx: &mut Context<'_>| {
            let _at_work = readers.crew.at_work();
            connection.poll(cx)
        };
        let mut judgements = self.common.tls.as_ref().map(|keys| keys.judgements());
        loop {
            let now = tokio::select! {
                biased;
                changed = phase.changed() => match changed {
                    Ok(()) => *phase.borrow_and_update(),
                    Err(_) => break,
                },
                () = changed(&mut judgements) => {
                    self.judge();
                    continue;
                }
                way = poll_fn(|cx| poll(&mut self, cx)) => match way {
                    Way::Over => break,
                    Way::In => return Some(self),
                },
            };
            self.enter(now);
        }
        if let (Some(stream), Some(End::Stopped | End::NotRpc(_))) = (&mut self.stream, &self.end) {
            // However it ends, nobody waits for more.
            let _ = timeout(LINGER, linger(stream)).await;
        }
        match &self.end {
            Some(
                end @ (End::NotRpc(_)
                | End::NoTls(_)
                | End::Distrusted(_)
                | End::Slow(_)
                | End::Panicked),
            ) => {
                self.common.nfs.tell(self.peer.ip(), Why::Ended(end.to_string()));
            }
            Some(end) => tracing::debug!(
                class = "client.disconnected", client = %self.peer, %end, "connection ended"
            ),
            None => {}
        }
        None
    }

    fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::Serve => {}
            Phase::Drain => {
                self.end.get_or_insert(End::Stopped);
                self.requests.end_holds();
                self.requests.drop_received();
            }
            Phase::Close => self.lose(End::Stopped),
        }
    }

    /// Does all that is possible now, up to the end of a turn. Ready when the connection is over,
    /// or moves to another worker.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Way> {
        if self.seat.is_evicted(cx) && self.end.is_none() {
            self.end = Some(End::Evicted);
            self.requests.end_holds();
            self.receiver.discard(&mut self.requests);
        }
        let turn_begun = self.begun;
        let turn_received = self.receiver.received_bytes;
        loop {
            self.begin(cx, turn_begun + BEGUN_PER_TURN_MAX);
            // After the beginning: a waiting request must be polled before it can wake the task.
            let finished = self.finish_all(cx);
            let flushed = self.flush(cx);
            self.go_over();
            let received = self.receiver.received_bytes - turn_received;
            if self.begun - turn_begun >= BEGUN_PER_TURN_MAX || received >= RECEIVED_PER_TURN_MAX {
                // The other connections' turn.
                cx.waker().wake_by_ref();
                break;
            }
            // Finished or sent replies may have made room for requests that could not begin.
            let again = (finished || flushed) && self.requests.has_received();
            if !again && !self.receive(cx) {
                break;
            }
        }
        self.poll_tick(cx);
        let moved = self.begun > 0 || self.receiver.received_bytes > 0;
        self.tell_counters();
        let idle = self.requests.is_empty() && self.sender.is_empty();
        match idle {
            true if moved => self.seat.is_idle(),
            true => {}
            false => self.seat.is_busy(),
        }
        match idle {
            true if self.end.is_some() => Poll::Ready(Way::Over),
            true if self.may_go_in() => {
                self.common.peers.know(&self.seat, self.peer.ip());
                Poll::Ready(Way::In)
            }
            _ => Poll::Pending,
        }
    }

    /// Whether an idle connection should leave the lobby: an export takes its calls, perhaps
    /// because it has proven something, or because the exports have changed.
    fn may_go_in(&self) -> bool {
        self.readers.is_lobby
            && matches!(self.tls, Upgrade::No | Upgrade::Done)
            && self.receiver.is_between_records()
            && self.common.nfs.exports().may_call(self.requests.origin())
    }

    /// Begins received requests, until `until` have begun.
    fn begin(&mut self, cx: &mut Context<'_>, until: u64) {
        while self.begun < until {
            if self.asks_for_tls() {
                return;
            }
            let is_full = self.sender.next_bytes() >= REPLIES_PER_WRITE_MAX;
            let most = usize::try_from(until - self.begun).unwrap_or(usize::MAX);
            let begun = match self.requests.begin_next(cx, &self.readers.crew, (is_full, most)) {
                Begun::Nothing | Begun::Limited => return,
                Begun::Ended(requests) => {
                    while let Some(done) = self.requests.pop_ended() {
                        self.finish(done);
                    }
                    requests
                }
                Begun::Waits(requests) => {
                    self.waited += requests as u64;
                    requests
                }
            };
            self.begun += begun as u64;
        }
    }

    /// Whether the client wants to switch to TLS, as the next request may say: then nothing begins
    /// until the switch.
    fn asks_for_tls(&mut self) -> bool {
        if self.tls == Upgrade::No
            && self.common.tls.as_ref().is_some_and(|keys| keys.config().is_some())
            && let Some(reply) = self.requests.take_probe()
        {
            self.sender.push(reply);
            self.begun += 1;
            self.tls = Upgrade::Asked;
        }
        self.tls == Upgrade::Asked
    }

    /// Switches to TLS, once the client has the answer.
    fn go_over(&mut self) {
        if self.tls != Upgrade::Asked || !self.sender.is_empty() {
            return;
        }
        if !self.requests.is_empty() || !self.receiver.is_between_records() {
            self.requests.drop_received();
            return self.break_off("calls beside the one that asks for TLS".into());
        }
        let config = self.common.tls.as_ref().and_then(|keys| keys.config());
        let (Some(Stream::Clear(tcp)), Some(config)) = (self.stream.take(), config) else {
            return;
        };
        match TlsStream::new(tcp, config) {
            Ok(tls) => {
                self.stream = Some(Stream::Tls(Box::new(tls)));
                self.tls = Upgrade::Shakes;
            }
            Err(error) => self.lose(End::NoTls(error)),
        }
    }

    /// Uses the client's proven identity for all its calls from now on.
    fn learn(&mut self) {
        let Some(security) = self.stream.as_ref().and_then(Stream::security) else { return };
        tracing::debug!(class = "client.tls", client = %self.peer, ?security, "over TLS");
        self.requests.set_security(security);
        self.tls = Upgrade::Done;
        // The files may have changed since the handshake began.
        self.judge();
        if self.common.nfs.exports().may_call(self.requests.origin()) {
            self.common.peers.know(&self.seat, self.peer.ip());
        }
    }

    /// Ends it if its client would not be let in any more. What it has begun is finished.
    fn judge(&mut self) {
        let (Some(Stream::Tls(tls)), Some(keys)) = (&self.stream, &self.common.tls) else { return };
        if let Err(error) = keys.judge(tls.chain(), UnixTime::now())
            && self.end.is_none()
        {
            self.end = Some(End::Distrusted(error));
            self.requests.end_holds();
            self.requests.drop_received();
            self.receiver.discard(&mut self.requests);
        }
    }

    /// Takes the replies of all finished requests. Returns whether there were any.
    fn finish_all(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(done) = self.requests.poll_done(cx) {
            self.finish(done);
            any = true;
        }
        any
    }

    fn finish(&mut self, done: Done) {
        match done.outcome {
            Outcome::Answered(_) if self.stream.is_some() => self.sender.push(done.reply),
            Outcome::Answered(_) => self.requests.reply_lease.give(done.reply.len()),
            // Its client sends it again, maybe elsewhere.
            Outcome::Unanswered(Unanswered::Unsettled) => {}
            Outcome::Unanswered(error) => self.break_off(error.to_string()),
            Outcome::Panicked(panic) => {
                let why = panic_text(panic.as_ref());
                tracing::error!(
                    class = "daemon.bug", client = %self.peer, why, "a request panicked"
                );
                add(&self.common.stats.panics, 1);
                self.lose(End::Panicked);
            }
        }
    }

    /// Sends. Returns whether something was sent, and nothing is left.
    fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let before = self.sender.sent_bytes;
        match self.sender.poll_flush(cx, stream, &mut self.requests.reply_lease) {
            Poll::Ready(Ok(())) => self.sender.sent_bytes > before,
            Poll::Ready(Err(error)) => {
                self.lose(End::Lost(error));
                false
            }
            Poll::Pending => false,
        }
    }

    /// Receives once, if it may. Returns whether bytes came.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        self.receiver.waits_for_client = false;
        if self.end.is_some() || self.requests.has_received() || self.tls == Upgrade::Asked {
            return false;
        }
        let Some(stream) = &mut self.stream else { return false };
        let (readers, requests) = (&self.readers, &mut self.requests);
        let received = self.receiver.poll_receive(cx, stream, readers, requests);
        if self.tls == Upgrade::Shakes {
            self.learn();
        }
        match received {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                // XCP-ng's probe ends here, after one byte of a mark: no log entry needed.
                self.end = Some(End::ByClient);
                self.requests.end_holds();
                self.receiver.discard(&mut self.requests);
                true
            }
            Poll::Ready(Ok(_)) => true,
            Poll::Ready(Err(ReceiveError::Socket(error))) => {
                let is_tls = error.kind() == io::ErrorKind::InvalidData;
                self.lose(if is_tls { End::NoTls(error) } else { End::Lost(error) });
                true
            }
            Poll::Ready(Err(error)) => {
                self.break_off(error.to_string());
                true
            }
        }
    }

    /// Checks the progress of unfinished work, every [`TICK`].
    fn poll_tick(&mut self, cx: &mut Context<'_>) {
        let receives = !self.receiver.is_between_records() || self.tls == Upgrade::Shakes;
        let sends = !self.sender.is_empty();
        if self.tick.is_none() && (receives || sends) && self.stream.is_some() {
            self.tick = Some(Box::pin(sleep(TICK)));
        }
        while self.tick.as_mut().is_some_and(|tick| tick.as_mut().poll(cx).is_ready()) {
            let others_wait = self.common.budgets.is_short();
            let mut judged = Ok(());
            if sends {
                judged = self.sender.progress.tick(others_wait);
            }
            if receives && self.receiver.waits_for_client {
                judged = judged.and(self.receiver.progress.tick(others_wait));
            }
            if let Err(slow) = judged {
                add(&self.common.stats.closed_as_slow, 1);
                self.lose(End::Slow(slow));
                cx.waker().wake_by_ref();
            }
            let unfinished = (receives || sends) && self.stream.is_some();
            match self.tick.as_mut() {
                Some(tick) if unfinished => tick.as_mut().reset(Instant::now() + TICK),
                _ => self.tick = None,
            }
        }
    }

    /// Receives no more, but answers earlier requests.
    fn break_off(&mut self, why: String) {
        if self.end.is_some() {
            return;
        }
        add(&self.common.stats.protocol_errors, 1);
        self.end = Some(End::NotRpc(why));
        self.receiver.discard(&mut self.requests);
    }

    /// The connection is gone at once; only running requests go on.
    fn lose(&mut self, end: End) {
        self.stream = None;
        self.tick = None;
        self.requests.end_holds();
        self.receiver.discard(&mut self.requests);
        self.requests.drop_received();
        self.sender.discard(&mut self.requests.reply_lease);
        // A clean end may still become another; otherwise the first reason is the true one.
        match self.end {
            None | Some(End::ByClient | End::Stopped) => self.end = Some(end),
            Some(_) => {}
        }
    }

    fn tell_counters(&mut self) {
        let stats = &self.common.stats;
        add(&stats.requests, std::mem::take(&mut self.begun));
        add(&stats.requests_waited, std::mem::take(&mut self.waited));
        add(&stats.received_bytes, std::mem::take(&mut self.receiver.received_bytes));
        add(&stats.sent_bytes, std::mem::take(&mut self.sender.sent_bytes));
    }
}

/// Ready when there is something new; never, if there is nothing to follow.
async fn changed(follows: &mut Option<watch::Receiver<()>>) {
    if let Some(follows) = follows
        && follows.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Ends our side, and waits for the client to end the other. If we closed with unread bytes, TCP
/// would destroy data under way to the client.
async fn linger(stream: &mut Stream) -> io::Result<()> {
    poll_fn(|cx| stream.poll_shutdown(cx)).await?;
    let mut scrap = [0; 4096];
    loop {
        if poll_fn(|cx| stream.poll_read(cx, &mut scrap)).await? == 0 {
            return Ok(());
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
