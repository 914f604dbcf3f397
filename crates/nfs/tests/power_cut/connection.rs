//! The server's side of a connection. It receives records in turns, begins them in order, and
//! coalesces WRITEs where possible, as the daemon does (`nfsd::connection::requests`).

use std::collections::{HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::{Page, World};
use aquifer_checker::bed::{Asker, for_asker};
use aquifer_nfs::limits::TOGETHER_MAX;
use aquifer_nfs::{Nfs, PagedWrite, Unanswered, write_data};
use aquifer_rpc::xdr::EncodeBuf;
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::sync::{mpsc, oneshot};

use crate::wire;

/// Between two times that the server asks how a call ended, and how often it does.
const ASK_AGAIN: Duration = Duration::from_millis(20);
const ASKED_MAX: u32 = 5_000;

/// The calls that were kept for a while because their fate was open.
pub type Held = Arc<Mutex<HashSet<Asker>>>;

/// A connection, from its client's side.
pub struct Connection {
    client: u64,
    to: mpsc::UnboundedSender<Sent>,
}

enum Sent {
    Record(Received),
    /// The connection is lost, with all calls in progress for it.
    Lost,
}

struct Received {
    asker: Asker,
    bytes: Vec<u8>,
    pages: Option<Vec<Page>>,
    reply: oneshot::Sender<Vec<u8>>,
}

impl Received {
    fn paged(&self) -> Option<PagedWrite<'_>> {
        self.pages.as_deref().map(|pages| PagedWrite { head: &self.bytes, pages })
    }

    fn answer(self, reply: &EncodeBuf) {
        let reply = reply.to_vec();
        let (mark, body) = reply.split_first_chunk().unwrap();
        assert_eq!(u32::from_be_bytes(*mark), body.len() as u32 | 1 << 31, "one record");
        assert_eq!(body[..4], self.bytes[..4], "the call's xid");
        // The client may not wait for it any more.
        let _ = self.reply.send(body.to_vec());
    }
}

impl Connection {
    /// Connects a client.
    pub fn open(
        (world, nfs, held): (&Arc<dyn World>, &Arc<Nfs>, &Held),
        (client, peer): (u64, SocketAddr),
    ) -> Connection {
        let (to, from) = mpsc::unbounded_channel();
        world.spawn(
            "connection",
            Box::pin(serve((world.clone(), nfs.clone(), held.clone()), peer, from)),
        );
        Connection { client, to }
    }

    /// Sends a record. The data of a WRITE is received into pages, if `to_pages` is set and it is
    /// possible.
    pub fn send(&self, record: &[u8], to_pages: bool) -> oneshot::Receiver<Vec<u8>> {
        let (reply, replied) = oneshot::channel();
        let asker = (self.client, wire::xid(record));
        let data = write_data(record, record.len()).filter(|_| to_pages);
        let received = match data {
            Some(data) => {
                let pages = Some(pages_of(&record[data.clone()]));
                Received { asker, bytes: record[..data.start].to_vec(), pages, reply }
            }
            None => Received { asker, bytes: record.to_vec(), pages: None, reply },
        };
        // A lost connection drops what is sent to it.
        let _ = self.to.send(Sent::Record(received));
        replied
    }

    /// Loses the connection.
    pub fn lose(&self) {
        let _ = self.to.send(Sent::Lost);
    }
}

async fn serve(
    server: (Arc<dyn World>, Arc<Nfs>, Held),
    peer: SocketAddr,
    mut from: mpsc::UnboundedReceiver<Sent>,
) {
    let mut received = VecDeque::new();
    let mut under_way = FuturesUnordered::new();
    poll_fn(|cx| {
        while let Poll::Ready(sent) = from.poll_recv(cx) {
            match sent {
                Some(Sent::Record(record)) => received.push_back(record),
                Some(Sent::Lost) | None => return Poll::Ready(()),
            }
        }
        while !received.is_empty() {
            let turn = together(&received);
            let serving: Serving = match turn.len() {
                0 | 1 => {
                    let record = received.pop_front().unwrap();
                    Box::pin(answer(server.clone(), peer, record))
                }
                _ => {
                    let mut records: Vec<Received> =
                        turn.iter().rev().map(|at| received.remove(*at).unwrap()).collect();
                    records.reverse();
                    Box::pin(answer_together(server.1.clone(), peer, records))
                }
            };
            // Each begins before the next.
            under_way.push(serving);
            poll_all(&mut under_way, cx);
        }
        poll_all(&mut under_way, cx);
        Poll::Pending
    })
    .await;
}

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

fn poll_all(under_way: &mut FuturesUnordered<Serving>, cx: &mut Context<'_>) {
    while let Poll::Ready(Some(())) = Pin::new(&mut *under_way).poll_next(cx) {}
}

/// The indexes of the records that may be carried out together with the first.
fn together(received: &VecDeque<Received>) -> Vec<usize> {
    let Some(first) = received.front().and_then(Received::paged) else { return Vec::new() };
    let goes = |record: &Received| record.paged().is_some_and(|next| first.may_take(&next));
    let next = received.iter().take(TOGETHER_MAX).enumerate();
    next.filter(|(_, record)| goes(record)).map(|(at, _)| at).collect()
}

/// Answers a call; again and again, while its fate is open.
async fn answer(
    (world, nfs, held): (Arc<dyn World>, Arc<Nfs>, Held),
    peer: SocketAddr,
    record: Received,
) {
    let mut reply = EncodeBuf::new();
    for attempt in 0.. {
        assert!(attempt < ASKED_MAX, "a fate is not open for ever");
        let pages = record.pages.as_deref();
        let answered = nfs.answer_with(peer.into(), &record.bytes, pages, &mut reply);
        match served_for(record.asker, answered).await {
            Err(Unanswered::Unsettled) => {
                assert!(reply.is_empty(), "no answer");
                held.lock().unwrap().insert(record.asker);
                world.sleep(ASK_AGAIN).await;
            }
            answered => {
                answered.expect("a call");
                break;
            }
        }
    }
    assert!(reply.len() <= nfs.reply_bytes_max(&record.bytes), "no longer than was announced");
    record.answer(&reply);
}

/// Does work for a call: see [`for_asker`].
async fn served_for<T>(asker: Asker, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| for_asker(asker, || work.as_mut().poll(cx))).await
}

async fn answer_together(nfs: Arc<Nfs>, peer: SocketAddr, records: Vec<Received>) {
    let calls: Vec<PagedWrite<'_>> = records.iter().filter_map(Received::paged).collect();
    let replies = nfs.answer_together(&peer.into(), &calls).await;
    assert_eq!(replies.len(), records.len(), "a reply to each");
    for (record, (reply, done)) in records.into_iter().zip(replies) {
        done.expect("a call");
        record.answer(&reply);
    }
}
