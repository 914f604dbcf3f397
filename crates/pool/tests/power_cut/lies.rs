//! Disks that lie: data that they report as durable is not. Then no promise is possible. But the
//! pool imports, or refuses with a reason, and never shows data that was not written.

use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{CutPlan, DiskConfig, Image, Rng, Sim, SimConfig, SimDisk};

use crate::clients::{Model, Open, open, workload};
use crate::shapes::{LOG_SHAPES, SHAPES, base, disk_name, named};
use crate::slots::{SLOTS, version_of};
use crate::{Kind, seeds, story};

/// The results of imports after cuts.
#[derive(Default, Debug)]
struct Outcome {
    imported: u64,
    went_back: u64,
    refused: u64,
    /// Slots that could not be read, with an error.
    unreadable: u64,
}

#[test]
fn disks_that_lie_are_imported_or_refused_with_a_reason() {
    let shapes = SHAPES.into_iter().chain(LOG_SHAPES);
    let bases: Vec<_> = shapes.map(|shape| (shape, base(shape))).collect();
    let mut outcome = Outcome::default();
    for seed in seeds(300) {
        let mut rng = Rng::stream(seed, "lies");
        let (shape, images) = &bases[rng.index(bases.len())];
        let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
        let mut sim = Sim::with_config(seed, config);
        let add = |(at, image): (usize, &Image)| {
            sim.add_disk(&disk_name(*shape, at), image.clone(), DiskConfig::default())
        };
        let disks: Vec<SimDisk> = images.iter().enumerate().map(add).collect();
        for disk in &disks {
            disk.lie_about_flushes(rng.below(4) > 0);
        }
        let world: Arc<dyn World> = Arc::new(sim.world());
        for _ in 0..1 + rng.below(3) {
            sim.plan_cut(CutPlan::AtEvent(1 + rng.below(1500)));
            let work = Rng::stream(rng.next_u64(), "work");
            let life = async {
                let open = bring_up(&world, &disks, &mut outcome).await?;
                look(&open, &mut outcome).await;
                world.spawn("txg", open.pool.clone().run());
                // Errors of such disks show here, too.
                let model = Arc::new(Mutex::new(Model::default()));
                let _ = workload(world.clone(), &open, model, &[], Kind::Short, work).await;
                Some(())
            };
            let _ = sim.run_until(life);
            sim.power_cut_any();
        }
    }
    println!("{outcome:?}");
    assert!(outcome.imported > 0 && outcome.refused + outcome.went_back > 0, "{outcome:?}");
}

/// Imports like an administrator: first without options, then giving up more and more.
async fn bring_up(
    world: &Arc<dyn World>,
    disks: &[SimDisk],
    outcome: &mut Outcome,
) -> Option<Open> {
    let ask = |rewind, discard_log| {
        let options = ImportOptions {
            rewind,
            discard_log,
            missing_log: discard_log,
            ..ImportOptions::default()
        };
        let (world, disks) = (world.clone(), named(disks));
        async move { open(world, disks, &options).await }
    };
    match ask(0, false).await {
        Ok(open) => {
            outcome.imported += 1;
            return Some(open);
        }
        Err(why) => assert!(!why.is_empty(), "a refusal says why"),
    }
    for (rewind, discard_log) in [(0, true), (1, true), (2, true)] {
        if let Ok(open) = ask(rewind, discard_log).await {
            outcome.went_back += 1;
            return Some(open);
        }
    }
    outcome.refused += 1;
    None
}

/// Checks that each slot has content that was once written to it, or cannot be read.
async fn look(open: &Open, outcome: &mut Outcome) {
    for slot in 0..SLOTS {
        match open.slots.read(slot).await {
            Ok(Some(page)) => drop(version_of(slot, &page)),
            Ok(None) => {}
            Err(_) => outcome.unreadable += 1,
        }
    }
}
