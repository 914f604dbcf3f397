//! The latest events: a ring in memory. The log on standard error has the same events, and keeps
//! them.
//!
//! Invariants:
//! - Bounded: the ring has a number of events, and one class only a part of them. So a disk full of
//!   bit rot does not push out the event of its failure. Each event is cut to a size.
//! - An event that concerns a pool names it, whatever told it: by the pool's name, a dataset, a
//!   disk, or the pool's own thread.
//! - A file is told once in an hour, however many of its pages are bad.
//! - Sequence numbers rise by one and never repeat in one life of the daemon. A reader that asks
//!   for the events after its last one misses none that is still kept, and sees how many are gone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use aquifer_api::{Event, time};
use aquifer_files::subject::pools;

/// The newest events.
#[derive(Debug)]
pub struct EventRing {
    events: Mutex<VecDeque<Event>>,
    /// The number of the newest event; [`u64::MAX`] when all waiting must end.
    newest: watch::Sender<u64>,
    /// The pools of disks, by path.
    disks: Mutex<HashMap<String, String>>,
    witness: OnceLock<Witness>,
}

/// One that is told each event at once, on the thread that notes it: it misses none, also in a
/// burst and at the end of the daemon. It notes no event itself, and waits for nothing.
pub struct Witness(pub Box<dyn Fn(&Event) + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// How far somebody has followed the events, and what they remember of them. It outlives the task
/// that follows: what happens after the end of that one is still handed over, by
/// [`EventRing::catch_up`].
#[derive(Debug, Default)]
pub struct Follower<S>(Mutex<Followed<S>>);

#[derive(Debug, Default)]
struct Followed<S> {
    /// The last event that was handed over.
    last: u64,
    remembered: S,
}

impl Default for EventRing {
    fn default() -> Self {
        let newest = watch::Sender::new(0);
        EventRing {
            events: Mutex::default(),
            newest,
            disks: Mutex::default(),
            witness: OnceLock::new(),
        }
    }
}

impl EventRing {
    /// From now on these are the disks of a pool.
    pub fn know_disks(&self, pool: &str, paths: impl Iterator<Item = String>) {
        let mut disks = self.disks.lock();
        disks.retain(|_, of| of != pool);
        disks.extend(paths.map(|path| (path, pool.to_string())));
    }

    /// From now on this one is told of each event. A ring has one witness.
    pub fn is_witnessed_by(&self, witness: Witness) {
        let _ = self.witness.set(witness);
    }

    /// Notes an event, with the present time.
    pub fn note(
        &self,
        level: &str,
        class: &str,
        message: &str,
        mut fields: BTreeMap<String, String>,
    ) {
        if let Some(pool) = self.pool_of(&fields) {
            fields.insert("pool".into(), pool);
        }
        let mut events = self.events.lock();
        if let Some(file) = file_of(class, &fields) {
            let since = time::now_ns().saturating_sub(SAME_FILE_NS);
            let is_same = |event: &Event| {
                event.wall_ns > since
                    && event.class == class
                    && file_of(class, &event.fields) == Some(file)
            };
            if events.iter().any(is_same) {
                return;
            }
        }
        let sequence = events.back().map_or(0, |event| event.sequence) + 1;
        let of_class = events.iter().filter(|event| event.class == class).count();
        let oldest = match of_class >= CLASS_EVENTS_MAX {
            true => events.iter().position(|event| event.class == class),
            false => (events.len() >= EVENTS_MAX).then_some(0),
        };
        if let Some(oldest) = oldest {
            events.remove(oldest);
        }
        let fields = fields.into_iter().take(FIELDS_MAX);
        let event = Event {
            sequence,
            wall_ns: time::now_ns(),
            level: level.into(),
            class: cut(class),
            message: cut(message),
            fields: fields.map(|(name, value)| (name, cut(&value))).collect(),
        };
        // In the order of the ring.
        if let Some(Witness(told)) = self.witness.get() {
            told(&event);
        }
        events.push_back(event);
        drop(events);
        self.newest.send_if_modified(|newest| {
            let later = *newest < sequence;
            *newest = (*newest).max(sequence);
            later
        });
    }

    /// The pool that an event concerns.
    fn pool_of(&self, fields: &BTreeMap<String, String>) -> Option<String> {
        if let Some(pool) = fields.get("pool") {
            return Some(pool.clone());
        }
        let named = ["dataset", "snapshot"].iter().find_map(|name| fields.get(*name));
        if let Some(name) = named {
            return pools(name).next().map(str::to_string);
        }
        if let Some(leaf) = fields.get("leaf") {
            return self.disks.lock().get(leaf).cloned();
        }
        std::thread::current().name()?.strip_prefix(THREAD_OF_POOL).map(str::to_string)
    }

    /// The kept events after `after`.
    pub fn after(&self, after: u64) -> Vec<Event> {
        let events = self.events.lock();
        events.iter().filter(|event| event.sequence > after).cloned().collect()
    }

    /// As [`EventRing::after`], but waits up to `patience` for one.
    pub async fn wait_after(&self, after: u64, patience: Duration) -> Vec<Event> {
        let mut newest = self.newest.subscribe();
        let come = newest.wait_for(|newest| *newest > after);
        // After the time limit the answer is empty, which is an answer too.
        let _ = tokio::time::timeout(patience.min(PATIENCE_MAX), come).await;
        self.after(after)
    }

    /// Calls for a look at the events, now and whenever there are new ones, until the daemon stops.
    pub async fn follow(&self, look: impl Fn()) {
        let mut newest = self.newest.subscribe();
        while !self.has_ended() {
            look();
            // The ring outlives this call, and with it the sender.
            let _ = newest.changed().await;
        }
    }

    /// Hands over each event that was not yet, in order. Of several that call at once, one does.
    pub fn catch_up<S>(&self, follower: &Follower<S>, each: impl Fn(&mut S, &Event)) {
        let mut followed = follower.0.lock();
        for event in self.after(followed.last) {
            followed.last = event.sequence;
            each(&mut followed.remembered, &event);
        }
    }

    /// Whether the daemon stops: nothing waits any more.
    fn has_ended(&self) -> bool {
        *self.newest.borrow() == u64::MAX
    }

    /// Ends all waiting: the daemon stops.
    pub fn end(&self) {
        self.newest.send_replace(u64::MAX);
    }
}

/// The file that an event about one is of.
fn file_of<'f>(
    class: &str,
    fields: &'f BTreeMap<String, String>,
) -> Option<(Option<&'f String>, &'f String)> {
    if !ABOUT_FILES.contains(&class) {
        return None;
    }
    Some((fields.get("dataset"), fields.get("file").or_else(|| fields.get("object"))?))
}

/// Classes of events that each bad page of a file tells.
const ABOUT_FILES: [&str; 4] =
    ["file.damaged", "file.unreadable", "file.repaired", "snapshot.unreadable"];
/// A file is not told again before.
const SAME_FILE_NS: u64 = 3600 * 1_000_000_000;
/// How the names of threads of pools begin.
pub(crate) const THREAD_OF_POOL: &str = "pool ";

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}

/// Events that are kept: with the sizes below some 4 MiB at most, mostly 300 KiB.
const EVENTS_MAX: usize = 1024;
/// Events of one class.
const CLASS_EVENTS_MAX: usize = EVENTS_MAX / 4;
/// Fields of one event, and characters of one text.
const FIELDS_MAX: usize = 12;
const TEXT_CHARS_MAX: usize = 256;
/// Longest wait for an event.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn note(ring: &EventRing, class: &str, text: &str) {
        ring.note("info", class, text, BTreeMap::from([("what".into(), text.into())]));
    }

    #[test]
    fn a_flood_of_one_class_pushes_out_no_other() {
        let ring = EventRing::default();
        note(&ring, "disk.failed", "first");
        for number in 0..5000 {
            note(&ring, "disk.checksum", &number.to_string());
        }
        let events = ring.after(0);
        assert_eq!(events.len(), 1 + CLASS_EVENTS_MAX);
        assert_eq!((events[0].sequence, events[0].class.as_str()), (1, "disk.failed"));
        assert_eq!(events.last().unwrap().sequence, 5001);
        for class in ["b", "c", "d", "e", "f"] {
            (0..1000).for_each(|_| note(&ring, class, "x"));
        }
        assert_eq!(ring.after(0).len(), EVENTS_MAX);
        assert_eq!(ring.after(10_000).len(), 1);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let ring = EventRing::default();
        note(&ring, "long", &"\u{e9}".repeat(10_000));
        let event = ring.after(0).remove(0);
        assert_eq!(event.message.chars().count(), TEXT_CHARS_MAX + 3);
        assert_eq!(event.fields["what"], event.message);
    }

    #[tokio::test]
    async fn who_waits_is_told_at_once_and_at_the_end() {
        let ring = EventRing::default();
        assert_eq!(ring.wait_after(0, Duration::from_millis(1)).await, []);
        let long = Duration::from_secs(3600);
        let (events, ()) =
            tokio::join!(ring.wait_after(0, long), async { note(&ring, "disk.failed", "now") });
        assert_eq!(events.len(), 1);
        ring.end();
        assert_eq!(ring.wait_after(1, long).await, []);
        note(&ring, "late", "after the end");
        assert_eq!(ring.wait_after(1, long).await.len(), 1);
    }

    #[tokio::test]
    async fn what_comes_when_nobody_follows_any_more_is_handed_over_once() {
        let (ring, follower) = (EventRing::default(), Follower::<Vec<String>>::default());
        let each = |seen: &mut Vec<String>, event: &Event| seen.push(event.message.clone());
        note(&ring, "x", "before");
        let ends = async {
            while follower.0.lock().last == 0 {
                tokio::task::yield_now().await;
            }
            note(&ring, "x", "while it follows");
            ring.end();
        };
        tokio::join!(ring.follow(|| ring.catch_up(&follower, each)), ends);
        note(&ring, "x", "after the end");
        for _ in 0..2 {
            ring.catch_up(&follower, each);
        }
        let Followed { remembered, .. } = follower.0.into_inner();
        assert_eq!(remembered, ["before", "while it follows", "after the end"]);
    }

    fn fields(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn each_event_of_a_pool_names_it() {
        let ring = EventRing::default();
        ring.know_disks("tank", ["/dev/a".to_string(), "/dev/b".to_string()].into_iter());
        ring.know_disks("dozer", ["/dev/b".to_string()].into_iter());
        for (of, pool) in [
            (&[("pool", "tank"), ("leaf", "/dev/b")][..], Some("tank")),
            (&[("dataset", "tank/vms/a")], Some("tank")),
            (&[("snapshot", "dozer@s")], Some("dozer")),
            (&[("leaf", "/dev/a")], Some("tank")),
            (&[("leaf", "/dev/b")], Some("dozer")),
            (&[("leaf", "/dev/c")], None),
            (&[("client", "10.0.0.1")], None),
        ] {
            ring.note("info", "x", "", fields(of));
            let last = ring.after(0).pop().unwrap();
            assert_eq!(last.fields.get("pool").map(String::as_str), pool, "{of:?}");
        }
        let shared = std::sync::Arc::new(ring);
        let own = std::sync::Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pool backup".into());
        thread
            .spawn(move || own.note("info", "log.lost", "", fields(&[])))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(shared.after(0).pop().unwrap().fields["pool"], "backup");
    }

    #[test]
    fn the_pages_of_one_file_hide_no_other() {
        let ring = EventRing::default();
        let page = |file: &str, page: u32| {
            let bytes = page.to_string();
            let of = [("dataset", "tank/vms"), ("file", file), ("bytes", &bytes)];
            ring.note("error", "file.unreadable", "", fields(&of));
        };
        (0..1000).for_each(|number| page("/a", number));
        page("/b", 0);
        let told: Vec<String> =
            ring.after(0).iter().map(|event| event.fields["file"].clone()).collect();
        assert_eq!(told, ["/a", "/b"]);
    }
}
