//! Pages and the read cache: a thread that holds a page sees its content, whatever others do.

use std::sync::Arc;

use aquifer_arc::{Cache, Class, Key};
use aquifer_blockio::{Filling, Page};
use aquifer_sim::Rng;
use aquifer_sync::Mutex;
use aquifer_threads::block_on;
use aquifer_threads::run::permute;
use aquifer_threads::schedule::seed;
use aquifer_threads::world::Threads;

/// A page full of a number.
type Marked = (u64, Page);

/// Pages of one block of memory, as a large WRITE brings them, or one by itself.
fn pages(mark: u64, count: usize) -> Vec<Page> {
    let mut filling = Filling::new(count);
    filling.put(&mark.to_le_bytes().repeat(512 * count));
    filling.finish().unwrap()
}

fn verify(mark: u64, page: &Page) {
    let found = page.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == mark);
    assert!(found, "a page of {mark} shows something else");
}

/// Threads that hand pages to each other, drop them, and write in the place of old ones.
pub fn pass_pages() {
    block_on(async {
        let world = Threads::new();
        let shared: Arc<Mutex<Vec<Marked>>> = Arc::default();
        let thread = |at: u64| {
            let shared = shared.clone();
            world.thread(async move || {
                let mut rng = Rng::stream(seed(), &format!("pages {at}"));
                let mut own: Vec<Marked> = Vec::new();
                // Blocks of which no frame has come back.
                let mut whole: Vec<Vec<Page>> = Vec::new();
                for turn in 0..24 {
                    let mark = at << 32 | turn;
                    match rng.below(5) {
                        0 => {
                            let made = pages(mark, if rng.coin() { 16 } else { 1 });
                            own.extend(made.iter().take(3).map(|page| (mark, page.clone())));
                            whole.push(made.into_iter().skip(3).collect());
                        }
                        1 => shared.lock().extend(own.last().cloned()),
                        2 => {
                            let taken = shared.lock().get(rng.index(4)).cloned();
                            own.extend(taken);
                        }
                        3 => {
                            let old = match rng.coin() {
                                true => shared.lock().pop(),
                                false => own.pop(),
                            };
                            let new = Page::with_prefix(&mark.to_le_bytes().repeat(512));
                            own.extend(old.map(|(_, old)| (mark, new.in_place_of(old))));
                        }
                        _ => drop(own.pop()),
                    }
                    own.iter().for_each(|(mark, page)| verify(*mark, page));
                }
            })
        };
        let threads: Vec<_> = (1..4).map(thread).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.lock().iter().for_each(|(mark, page)| verify(*mark, page));
    });
}

/// Readers of a cache whose pages are rewritten, in the same memory if nobody reads them.
pub fn share_a_cache() {
    block_on(async {
        let world = Threads::new();
        let cache: Arc<Cache<Page>> = Arc::new(Cache::new(128 << 10, 4));
        // Of each block: the txg in which it was written last.
        let newest: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(vec![0; 16]));
        let key = |place: usize, written: u64| Key { place: place as u64, written };
        let mark = |place: usize, written: u64| written << 8 | place as u64;
        for (place, page) in pages(0, 16).into_iter().enumerate() {
            let own = Page::with_prefix(&mark(place, 0).to_le_bytes().repeat(512));
            cache.insert(key(place, 0), own.in_place_of(page), 4096, Class::Data);
        }
        let reader = |at: u64| {
            let (cache, newest) = (cache.clone(), newest.clone());
            world.thread(async move || {
                let mut rng = Rng::stream(seed(), &format!("reader {at}"));
                for _ in 0..20 {
                    let place = rng.index(16);
                    let written = newest.lock()[place];
                    let held = cache.get(&key(place, written));
                    for _ in 0..rng.below(3) {
                        held.iter().for_each(|page| verify(mark(place, written), page));
                        aquifer_sync::point();
                    }
                    held.iter().for_each(|page| verify(mark(place, written), page));
                }
            })
        };
        let writer = |at: usize| {
            let (cache, newest) = (cache.clone(), newest.clone());
            world.thread(async move || {
                let mut rng = Rng::stream(seed(), &format!("writer {at}"));
                for _ in 0..12 {
                    // Of one block, one writer at a time.
                    let place = rng.index(8) * 2 + at;
                    let old = newest.lock()[place];
                    let (from, to) = (key(place, old), key(place, old + 1));
                    let page = Page::with_prefix(&mark(place, old + 1).to_le_bytes().repeat(512));
                    let place_of = |old: Option<Page>| match old {
                        Some(old) => page.in_place_of(old),
                        None => page,
                    };
                    cache.replace(&from, to, place_of, 4096, Class::Data);
                    newest.lock()[place] = old + 1;
                    if rng.below(6) == 0 {
                        cache.remove(&to);
                    }
                }
            })
        };
        let threads: Vec<_> = (0..2).map(reader).chain((0..2).map(writer)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(cache.resident_bytes() <= 128 << 10);
    });
}

#[test]
fn pages_keep_their_content() {
    permute(&[], pass_pages, 500);
}

#[test]
fn the_cache_shows_what_was_written() {
    permute(&[], share_a_cache, 500);
}

/// Each within some ten times the schedules that it took.
#[test]
fn pages_taken_from_others_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[], Rule::OwnersCountedAtOnce, pass_pages, 3000);
    must_be_found(&[], Rule::SharedPageStays, pass_pages, 1000);
    must_be_found(&[], Rule::SharedPageStays, share_a_cache, 1000);
}
