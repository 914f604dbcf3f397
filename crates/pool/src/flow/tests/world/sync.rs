//! Syncs of a world.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::super::limits::{
    EASY_SHARE, SYNC_WINDOW_SECTORS_MAX, SYNC_WINDOW_SECTORS_MIN, SYNC_WRITE_SECTORS_MAX,
};
use super::super::super::{Closed, Resize, SyncWrite, Times};
use super::super::events::{Event, Plan};
use super::World;

/// Steps of a sync in that time, and what each hands out.
const STEPS: usize = 32;
const STEP_SECTORS: u64 = 16;
/// Time of all that follows the last write of a sync: record, flush, uberblock.
const TAIL: Duration = Duration::from_millis(20);
#[derive(Debug)]
pub(super) struct Syncing {
    pub bytes: u64,
    pub logged_bytes: u64,
    pub share: f64,
    /// Sectors that it has not handed out, and those that wait for the window.
    left: u64,
    queued: u64,
    /// On their way: since when, and what they took of the window.
    flying: VecDeque<(Duration, usize)>,
    /// Sectors that the disk has done of the first of them.
    done: u64,
    waits: bool,
    landed: Option<Duration>,
}

impl World {
    pub(super) fn close(&mut self) {
        if !self.close_requested || self.sync.is_some() {
            return;
        }
        let held = std::mem::take(&mut self.open);
        self.sparse_bytes = 0;
        self.close_requested = false;
        let share = self.fill(held);
        let sectors = held.dirty_bytes / 4096;
        self.happens(Event::Closed(Closed { share, sectors }));
        assert!(self.traced.is_syncing());
        // Nodes come with the data; some data needs no writing.
        let left = sectors * (80 + self.rng.below(60)) / 100;
        self.sync = Some(Syncing {
            bytes: held.dirty_bytes,
            logged_bytes: held.logged_bytes,
            share,
            left,
            queued: 0,
            flying: VecDeque::new(),
            done: 0,
            waits: false,
            landed: None,
        });
    }

    /// The sync takes steps while it is not ahead, and its writes enter the window.
    pub(super) fn hand_out(&mut self) {
        let fill = self.coming();
        let Some(mut sync) = self.sync.take() else { return };
        for _ in 0..STEPS {
            if sync.left == 0 {
                break;
            }
            let looks = sync.waits || self.happens(Event::Stepped) == Plan::Yes(true);
            let ahead = Event::LooksAhead { fill, awaited: self.awaited };
            sync.waits = looks && self.happens(ahead) == Plan::Yes(true);
            assert!(!(sync.waits && self.awaited), "somebody waits for it");
            assert!(!(sync.waits && fill >= EASY_SHARE), "writers are slowed by it");
            if sync.waits {
                self.saw("ahead");
                break;
            }
            let sectors = sync.left.min(STEP_SECTORS);
            sync.left -= sectors;
            sync.queued += sectors;
            self.happens(Event::HandsOut(sectors));
            if self.awaited {
                self.saw("awaited");
            }
        }
        self.sync = Some(sync);
    }

    /// The disk takes what is in the window.
    pub(super) fn write(&mut self) {
        let Some(mut sync) = self.sync.take() else { return };
        let entry = SYNC_WRITE_SECTORS_MAX;
        let all = sync.left == 0;
        let whole = |queued| queued >= entry as u64 || (all && queued > 0);
        while whole(sync.queued) && self.window_free >= entry {
            sync.queued = sync.queued.saturating_sub(entry as u64);
            self.window_free -= entry;
            sync.flying.push_back((self.now, entry));
        }
        sync.done += self.disk;
        while sync.done >= entry as u64 {
            let Some((begun, entered)) = sync.flying.pop_front() else {
                sync.done = 0;
                break;
            };
            sync.done -= entry as u64;
            self.wrote(SyncWrite { sectors: entry as u64, entered, took: self.now - begun });
        }
        let flying: usize = sync.flying.iter().map(|(_, entered)| entered).sum();
        let window = self.traced.window();
        assert_eq!(self.window_free + flying, window, "the window leaks");
        assert!((SYNC_WINDOW_SECTORS_MIN..=SYNC_WINDOW_SECTORS_MAX).contains(&window));
        self.sync = Some(sync);
    }

    fn wrote(&mut self, write: SyncWrite) {
        let Plan::Resize(resize) = self.happens(Event::Wrote(write)) else { panic!("a resize") };
        self.window_free += write.entered;
        match resize {
            Resize::Grow(0) | Resize::Shrink(0) => {}
            Resize::Grow(more) => {
                self.window_free += more;
                self.saw("grown");
            }
            Resize::Shrink(less) => {
                assert!(less <= write.entered, "only what the write gives back");
                self.window_free -= less;
                self.saw("shrunk");
            }
        }
    }

    pub(super) fn end_sync(&mut self) {
        let Some(sync) = &mut self.sync else { return };
        let landed = match sync.landed {
            Some(landed) => landed,
            None if sync.left == 0 && sync.queued == 0 && sync.flying.is_empty() => {
                sync.landed = Some(self.now);
                self.happens(Event::Landed);
                return;
            }
            None => return,
        };
        if self.now < landed + TAIL {
            return;
        }
        self.sync = None;
        self.awaited = false;
        self.happens(Event::Synced);
        assert!(!self.traced.is_syncing());
        if !self.log_at_home {
            self.measure_devices();
        }
    }

    fn measure_devices(&mut self) {
        let slow_log = self.rng.coin();
        let add = |times: &mut Times, count: u64, us: u64| {
            times.count += count;
            times.ns += count * us * 1000;
            times.bytes += count * 65_536;
        };
        add(&mut self.devices.writes, 100, 1000);
        add(&mut self.devices.flushes, 1, 1000);
        add(&mut self.devices.logged, 100, if slow_log { 3000 } else { 1000 });
        let plan = self.happens(Event::DevicesTook(self.devices));
        assert_eq!(plan, Plan::Yes(slow_log), "the shorter way");
        self.saw(if slow_log { "early" } else { "logged" });
    }
}
