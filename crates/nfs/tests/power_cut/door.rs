//! A client's side: connections, transaction ids, retransmitted calls.
//!
//! A client behaves like Linux' one: it repeats a call until it has an answer, over lost
//! connections and restarts of the server (`hard`). Its knowledge outlives the server ([`Known`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_checker::bed::Ticking;
use aquifer_checker::op::{Listed, Node, Op, Position, Reply};
use aquifer_checker::{Door, Shared};
use aquifer_files::{FileHandle, FsError, Service};
use aquifer_nfs::Nfs;
use aquifer_sim::Rng;
use tokio::sync::oneshot;

use crate::connection::{Connection, Held};
use crate::wire;

/// A server, and the state that it shares with the observers.
pub struct Server {
    pub world: Arc<Ticking>,
    pub service: Service,
    pub nfs: Arc<Nfs>,
    pub shared: Shared,
    /// The calls whose fate was open for a while.
    pub held: Held,
    /// Calls in progress that no client waits for.
    pub late: AtomicUsize,
}

impl Server {
    /// Waits until there is no call in progress without a waiting client.
    pub async fn is_quiet(&self) {
        while self.late.load(Ordering::Relaxed) > 0 {
            self.world.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// An unanswered call.
#[derive(Clone)]
pub struct UnderWay {
    pub op: Op,
    pub record: Vec<u8>,
    /// Its number with the witness.
    pub number: usize,
}

/// A change that was made.
#[derive(Clone)]
pub struct Made {
    pub op: Op,
    pub record: Vec<u8>,
    /// The new object.
    pub handle: Option<FileHandle>,
}

/// A client's knowledge.
#[derive(Default)]
pub struct Known {
    last_xid: u32,
    /// By transaction id.
    pub under_way: BTreeMap<u32, UnderWay>,
    /// Changes that must not be made twice, and were not made: they heard "later". By their numbers
    /// with the witness.
    pub later: BTreeMap<usize, Op>,
    /// The newest changes that must not be made twice.
    pub made: VecDeque<Made>,
}

/// See the module's head.
#[derive(Clone)]
pub struct NfsDoor(Arc<Inner>);

struct Inner {
    server: Arc<Server>,
    at: u64,
    known: Arc<Mutex<Known>>,
    wires: Mutex<Wires>,
}

struct Wires {
    rng: Rng,
    connections: Vec<Connection>,
    next_port: u16,
    /// The index of the connection in use.
    current: usize,
}

/// Connections of a client.
const CONNECTIONS: usize = 3;
/// How often a client asks again after the answer "later".
const ATTEMPTS_MAX: u64 = 400;
/// Changes that are remembered.
const MADE_MAX: usize = 6;

impl NfsDoor {
    /// Connects the client with this number.
    pub fn new(server: &Arc<Server>, at: u64, known: &Arc<Mutex<Known>>, rng: Rng) -> NfsDoor {
        let mut wires = Wires { rng, connections: Vec::new(), next_port: 700, current: 0 };
        for _ in 0..CONNECTIONS {
            let connection = wires.connect(server, at);
            wires.connections.push(connection);
        }
        let (server, known, wires) = (server.clone(), known.clone(), Mutex::new(wires));
        NfsDoor(Arc::new(Inner { server, at, known, wires }))
    }

    /// The client's knowledge.
    pub fn known(&self) -> &Mutex<Known> {
        &self.0.known
    }

    pub fn shared(&self) -> &Shared {
        &self.0.server.shared
    }

    /// True once in `of` times on average.
    pub fn chance(&self, of: u64) -> bool {
        self.0.below(of) == 0
    }

    /// Repeats a call that was sent to a server that is gone.
    pub async fn resume(&self, xid: u32, sent: &UnderWay, number: usize) -> Result<Reply, FsError> {
        self.0.ask(&sent.op, Some(number), Some((xid, sent.record.clone()))).await
    }

    /// Makes a call that heard "later" of a server that is gone: a new call, with a new transaction
    /// id.
    pub async fn begin_again(&self, op: &Op, number: usize) -> Result<Reply, FsError> {
        self.0.ask(op, Some(number), None).await
    }

    /// Loses all connections.
    pub fn lose_connections(&self) {
        self.0.wires.lock().unwrap().connections.iter().for_each(Connection::lose);
    }

    /// Sends a record and waits for its reply, on as many connections as it takes.
    pub async fn repeat(&self, record: &[u8]) -> Vec<u8> {
        loop {
            let sent = self.0.send(record);
            if let Ok(reply) = sent.await {
                return reply;
            }
        }
    }
}

impl Wires {
    fn connect(&mut self, server: &Server, at: u64) -> Connection {
        self.next_port += 1;
        let peer = SocketAddr::from(([10, 0, 0, at as u8 + 1], self.next_port));
        let world: Arc<dyn World> = server.world.clone();
        Connection::open((&world, &server.nfs, &server.held), (at, peer))
    }
}

/// The first answer to a call that is sent twice.
type First = Arc<Mutex<Option<Vec<u8>>>>;

impl Inner {
    fn below(&self, limit: u64) -> u64 {
        self.wires.lock().unwrap().rng.below(limit)
    }

    fn next_xid(&self) -> u32 {
        let mut known = self.known.lock().unwrap();
        known.last_xid += 1;
        known.last_xid
    }

    /// Sends a record on the connection in use; now and then on another.
    fn send(&self, record: &[u8]) -> oneshot::Receiver<Vec<u8>> {
        let wires = &mut *self.wires.lock().unwrap();
        if wires.rng.below(12) == 0 {
            wires.current = wires.rng.index(CONNECTIONS);
        }
        let to_pages = wires.rng.below(6) > 0;
        wires.connections[wires.current].send(record, to_pages)
    }

    /// Loses the connection in use.
    fn lose_connection(&self) {
        let wires = &mut *self.wires.lock().unwrap();
        let connection = wires.connect(&self.server, self.at);
        std::mem::replace(&mut wires.connections[wires.current], connection).lose();
    }

    /// Makes a call until it has an answer. The first attempt repeats an earlier record, if there
    /// is one.
    async fn ask(
        self: &Arc<Self>,
        op: &Op,
        number: Option<usize>,
        mut before: Option<(u32, Vec<u8>)>,
    ) -> Result<Reply, FsError> {
        let shared = &self.server.shared;
        for attempt in 0..ATTEMPTS_MAX {
            let is_again = before.is_some();
            let (xid, record) = before.take().unwrap_or_else(|| {
                let xid = self.next_xid();
                (xid, wire::call(xid, op))
            });
            if let Some(number) = number {
                let sent = UnderWay { op: op.clone(), record: record.clone(), number };
                let mut known = self.known.lock().unwrap();
                known.later.remove(&number);
                known.under_way.insert(xid, sent);
            }
            let (reply, was_again) = self.exchange(op, &record, number).await;
            let mut answer = wire::answer(op, &reply);
            {
                let mut known = self.known.lock().unwrap();
                known.under_way.remove(&xid);
                let is_later = wire::is_once(op) && wire::is_later(&answer);
                if let Some(number) = number.filter(|_| is_later) {
                    known.later.insert(number, op.clone());
                }
            }
            if let Ok(Reply::Done { moments_ns, .. }) = &mut answer {
                *moments_ns = self.server.world.told((self.at, xid));
            }
            if !wire::is_later(&answer) {
                let was_held = self.server.held.lock().unwrap().contains(&(self.at, xid));
                let is_again = is_again || was_again || was_held;
                if matches!(answer, Ok(Reply::Done { .. })) && !is_again {
                    shared.lock().unwrap().blame(format!("{op:?}: answered as if sent again"));
                }
                self.remember(op, record, &answer);
                return answer;
            }
            // Not so what must not run twice: "later" says that it did not.
            if let Some(number) = number.filter(|_| op.changes() && !wire::is_once(op)) {
                shared.lock().unwrap().lose(number);
            }
            self.server.world.sleep(Duration::from_millis(1 + attempt)).await;
        }
        if let Some(number) = number {
            self.known.lock().unwrap().later.remove(&number);
        }
        Err(FsError::TryLater)
    }

    fn remember(&self, op: &Op, record: Vec<u8>, answer: &Result<Reply, FsError>) {
        let Ok(Reply::Changed { attributes, .. } | Reply::Done { attributes, .. }) = answer else {
            return;
        };
        if !wire::is_once(op) {
            return;
        }
        let handle = attributes.map(|seen| seen.handle);
        let made = &mut self.known.lock().unwrap().made;
        made.push_back(Made { op: op.clone(), record, handle });
        if made.len() > MADE_MAX {
            made.pop_front();
        }
    }

    /// Sends a record until its reply comes. Returns whether it was sent more than once.
    async fn exchange(
        self: &Arc<Self>,
        op: &Op,
        record: &[u8],
        number: Option<usize>,
    ) -> (Vec<u8>, bool) {
        let (first, mut was_lost, mut is_again) = (First::default(), false, false);
        loop {
            let sent = self.send(record);
            if number.is_some() && !was_lost {
                match self.below(200) {
                    0..=19 => {
                        self.send_again(op, record, &first);
                        is_again = true;
                    }
                    20..=23 => self.lose_later(),
                    24..=39 if wire::is_once(op) => self.lose_later(),
                    _ => {}
                }
            }
            match sent.await {
                Ok(reply) => {
                    self.compare(op, &first, &reply);
                    return (reply, was_lost || is_again);
                }
                Err(_) => {
                    was_lost = true;
                    if let Some(number) = number.filter(|_| op.changes() && !wire::is_once(op)) {
                        // The first transmission may be carried out too.
                        self.server.shared.lock().unwrap().lose(number);
                    }
                }
            }
        }
    }

    fn compare(&self, op: &Op, first: &First, reply: &[u8]) {
        let mut first = first.lock().unwrap();
        match &*first {
            Some(first) if wire::is_once(op) && !wire::agree(op, first, reply) => {
                let (one, other) = (wire::answer(op, first), wire::answer(op, reply));
                let what = format!("{op:?}, sent again: {one:?}, then {other:?}");
                self.server.shared.lock().unwrap().blame(what);
            }
            Some(_) => {}
            None => *first = Some(reply.to_vec()),
        }
    }

    /// Sends a record again, at once or later, and does not wait for the reply. A call that may be
    /// carried out twice is then a call of its own to the witness.
    fn send_again(self: &Arc<Self>, op: &Op, record: &[u8], first: &First) {
        let delay = match self.below(3) {
            0 => 0,
            1 => self.below(2_000),
            _ => self.below(50_000),
        };
        let (inner, op, first) = (self.clone(), op.clone(), first.clone());
        let begin = |inner: &Inner, op: &Op| {
            let begin = || inner.server.shared.lock().unwrap().begin(op.clone());
            (!wire::is_once(op)).then(begin)
        };
        let record = record.to_vec();
        let at_once = (delay == 0).then(|| (begin(&inner, &op), inner.send(&record)));
        self.server.late.fetch_add(1, Ordering::Relaxed);
        let work = async move {
            let (number, sent) = match at_once {
                Some(sent) => sent,
                None => {
                    inner.server.world.sleep(Duration::from_micros(delay)).await;
                    (begin(&inner, &op), inner.send(&record))
                }
            };
            if let Ok(reply) = sent.await {
                inner.compare(&op, &first, &reply);
                let answer = wire::answer(&op, &reply);
                // "Later" says nothing of what a READ would have found.
                if let Some(number) = number.filter(|_| op.changes() || !wire::is_later(&answer)) {
                    inner.server.shared.lock().unwrap().end(number, answer);
                }
            }
            inner.server.late.fetch_sub(1, Ordering::Relaxed);
        };
        self.server.world.spawn("sent again", Box::pin(work));
    }

    /// Loses the connection in use after a moment.
    fn lose_later(self: &Arc<Self>) {
        let (inner, delay) = (self.clone(), Duration::from_micros(self.below(600)));
        self.server.late.fetch_add(1, Ordering::Relaxed);
        let work = async move {
            inner.server.world.sleep(delay).await;
            inner.lose_connection();
            inner.server.late.fetch_sub(1, Ordering::Relaxed);
        };
        self.server.world.spawn("lost connection", Box::pin(work));
    }

    /// All entries of a directory, in calls of about `limit` entries; if `plus`, with their
    /// attributes.
    async fn list(&self, node: &Node, limit: usize, plus: bool) -> Result<Reply, FsError> {
        let (mut entries, mut from) = (Vec::new(), Position::default());
        loop {
            let listed = self.list_from(node, from, limit, plus).await?;
            entries.extend(listed.entries);
            from = listed.next;
            if listed.eof {
                return Ok(Reply::Listed(entries));
            }
        }
    }

    /// About `limit` entries from a position.
    async fn list_from(
        &self,
        node: &Node,
        from: Position,
        limit: usize,
        plus: bool,
    ) -> Result<Listed, FsError> {
        let mut room = limit;
        for _ in 0..ATTEMPTS_MAX {
            let record = wire::list(self.next_xid(), node, from, room, plus);
            let Ok(reply) = self.send(&record).await else { continue };
            match wire::listed(&reply, plus) {
                Ok(None) => room += 1,
                Ok(Some(listed)) => return Ok(listed),
                Err(error) if wire::is_later(&Err(error.clone())) => {
                    self.server.world.sleep(Duration::from_millis(1)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(FsError::TryLater)
    }
}

impl Door for NfsDoor {
    async fn call(&self, op: &Op, number: Option<usize>) -> Result<Reply, FsError> {
        if let Op::List(node, limit) = op {
            // The check of all files needs all attributes.
            let plus = number.is_none() || self.0.below(3) > 0;
            return self.0.list(node, *limit, plus).await;
        }
        self.0.ask(op, number, None).await
    }

    async fn list_from(
        &self,
        directory: &Node,
        from: Position,
        limit: usize,
    ) -> Result<Listed, FsError> {
        self.0.list_from(directory, from, limit, from.cookie.is_multiple_of(2)).await
    }

    fn nudge(&self) {
        self.0.server.service.pool.request_txg();
    }

    async fn pause(&self, microseconds: u64) {
        self.0.server.world.sleep(Duration::from_micros(microseconds)).await;
    }
}
