//! The way by which changes of clients enter a dataset, and how it is shut.
//!
//! A change passes before it asks for admission, takes a lock, or looks at what it will change. It
//! is inside until it has joined its txg or given up. While the entrance is shut, new changes wait,
//! and hold no lock meanwhile. So an act that shuts it, and waits until nobody is inside, finds no
//! change under way.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_sync::Notify;
use aquifer_sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// How many changes are inside, and whether it is shut.
    state: AtomicU64,
    /// For those who wait to pass.
    opened: Notify,
    /// For the act that waits until nobody is inside. Not the same: each change that meets a shut
    /// entrance turns round, and would wake all others that wait to pass, which turn round.
    emptied: Notify,
}

const SHUT: u64 = 1 << 63;

/// A change that has passed the entrance of its dataset. It is inside while this lives.
#[derive(Debug)]
pub struct Passage(Arc<Entrance>);

impl Entrance {
    /// An open one.
    pub fn new() -> Arc<Entrance> {
        Arc::new(Entrance {
            state: AtomicU64::new(0),
            opened: Notify::new(),
            emptied: Notify::new(),
        })
    }

    /// Waits while it is shut.
    pub async fn pass(self: &Arc<Self>) -> Passage {
        loop {
            let before = self.state.fetch_add(1, Ordering::SeqCst);
            let passage = Passage(self.clone());
            if before & SHUT == 0 {
                return passage;
            }
            drop(passage);
            if left_out(Rule::WaitersComeFirst) {
                self.opened.notified().await;
            }
            let opened = self.opened.notified();
            if self.is_shut() {
                opened.await;
            }
        }
    }

    /// Whether no change passes.
    pub fn is_shut(&self) -> bool {
        self.state.load(Ordering::SeqCst) & SHUT != 0
    }

    /// Lets no change pass from now on.
    pub fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::SeqCst);
    }

    /// Lets changes pass again.
    pub fn open(&self) {
        self.state.fetch_and(!SHUT, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Shuts it until the returned guard is dropped.
    pub fn shut_for_a_while(self: &Arc<Self>) -> Shut {
        self.shut();
        Shut(self.clone())
    }

    /// Of a shut one: waits until no change is inside.
    pub async fn is_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.state.load(Ordering::SeqCst) & !SHUT == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let before = self.0.state.fetch_sub(1, Ordering::SeqCst);
        if before == SHUT | 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

/// While it lives, no change of a dataset begins.
#[derive(Debug)]
pub(crate) struct Shut(Arc<Entrance>);

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.open();
    }
}
