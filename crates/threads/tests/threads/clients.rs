//! Clients that share a tree, each on a thread: whole calls, beside txgs that go to disk.
//!
//! Their answers must be one history, and the tree at the end must be its end: after an export, and
//! where the process was killed in the middle of everything.

use std::sync::LazyLock;

use aquifer_checker::bed::Shape;
use aquifer_checker::client::{Client, Habits};
use aquifer_checker::files_door::FilesDoor;
use aquifer_checker::{End, Shared, Witness, restart};
use aquifer_sim::Rng;
use aquifer_sim::seeds::story;
use aquifer_threads::bed::{Base, Bed, DATASET, base};
use aquifer_threads::block_on;
use aquifer_threads::run::{is_repeated, permute};
use aquifer_threads::schedule::seed;
use aquifer_threads::world::Thread;

pub static BASE: Base = LazyLock::new(|| base(Shape::Single, async |_| ()));

/// Little room, so that their calls collide.
const HABITS: Habits = Habits { names: 4, directories: 2, files: 3, cells: 64, turn: 1 };

fn work(bed: &Bed, shared: &Shared, clients: u64, calls: u64) -> Vec<Thread<Result<(), String>>> {
    let client = |at| {
        let (service, shared) = (bed.service.clone(), shared.clone());
        let rng = Rng::stream(seed(), &format!("client {at}"));
        bed.world.thread(async move || {
            let door = FilesDoor::new(&service);
            Client { door, shared, habits: HABITS, rng, tells: story() > 0 }.run(calls).await
        })
    };
    (0..clients).map(client).collect()
}

pub fn share_a_tree() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let shared = Witness::new(bed.service.files.root(DATASET).unwrap());
        let mut rng = Rng::stream(seed(), "clients");
        for thread in work(&bed, &shared, 2 + rng.below(2), 4 + rng.below(16)) {
            thread.join().unwrap().unwrap();
        }
        let bed = bed.again().await;
        let door = FilesDoor::new(&bed.service);
        restart::check(&door, &shared, End::Export).await.unwrap();
        drop(door);
        bed.close().await;
    });
}

pub fn are_cut_off() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let shared = Witness::new(bed.service.files.root(DATASET).unwrap());
        let mut rng = Rng::stream(seed(), "cut");
        let threads = work(&bed, &shared, 2 + rng.below(2), 4 + rng.below(12));
        for _ in 0..rng.below(30) {
            bed.world.a_moment().await;
        }
        let (images, seen) = bed.as_killed(|| shared.lock().unwrap().clone());
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        bed.close().await;
        let bed = Bed::open(&images).await;
        let shared = Shared::new(seen.into());
        restart::check(&FilesDoor::new(&bed.service), &shared, End::Crash).await.unwrap();
        bed.close().await;
    });
}

#[test]
fn clients_on_threads_see_one_history() {
    permute(&[&BASE], share_a_tree, 40);
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    permute(&[&BASE], are_cut_off, 40);
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    (0..3).for_each(|seed| is_repeated(&[&BASE], share_a_tree, seed));
}

/// Within some ten times the schedules that it took.
#[test]
fn txgs_that_do_not_wait_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[&BASE], Rule::CloseWaitsForHolders, share_a_tree, 500);
}
