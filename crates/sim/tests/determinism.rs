//! One seed, one history: in one process, and in another.

use std::env;
use std::process::Command;
use std::time::Duration;

use aquifer_blockio::{Disk, Page, World};
use aquifer_sim::{
    CutPlan, DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, SimWorld, Stop,
    Vanish, When,
};

const SEEDS: u64 = 25;
const CHILD: &str = "AQUIFER_SIM_PRINT_HASHES";

/// A worker that reads, writes, flushes and sleeps at random.
async fn worker(world: SimWorld, disk: SimDisk, mut rng: Rng) {
    for _ in 0..40 {
        let sector = rng.below(200);
        let pages = vec![Page::with_prefix(&rng.next_u64().to_le_bytes()); rng.index(8) + 1];
        // Errors are part of the history; they must repeat too.
        match rng.below(6) {
            0 => drop(disk.read(sector, 8).await),
            1 | 2 => drop(disk.write(sector, pages).await),
            3 => drop(disk.write_durable(sector, pages).await),
            4 => drop(disk.flush().await),
            _ => world.sleep(Duration::from_nanos(rng.below(1_000_000))).await,
        }
    }
}

/// Three incarnations over two faulty disks; the events and the end state, as numbers.
fn history(seed: u64) -> [u64; 4] {
    let config = SimConfig { story_entries_max: 100, ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let disks = ["a", "b"].map(|name| sim.add_disk(name, Image::new(256), DiskConfig::default()));
    disks[0].inject(FaultRule::new(Fault::WriteError, When::Ppm(20_000)));
    disks[0].inject(FaultRule::new(Fault::MisdirectedRead { from: None }, When::Ppm(20_000)));
    disks[1].inject(FaultRule::new(Fault::FlushError, When::Ppm(100_000)));
    disks[1].inject(FaultRule::new(Fault::Vanish(Vanish::PowerLost), When::OnceAfter(100)));
    let mut choice = sim.stream("cuts");
    for incarnation in 0..3 {
        disks[1].come_back();
        let world = sim.world();
        for (index, disk) in disks.iter().enumerate() {
            for worker_index in 0..4 {
                let rng = sim.stream(&format!("worker{incarnation}.{index}.{worker_index}"));
                let task = worker(world.clone(), disk.clone(), rng);
                world.spawn("worker", Box::pin(task));
            }
        }
        sim.plan_cut(CutPlan::AtEvent(100 + choice.below(200)));
        assert_eq!(sim.run_until(std::future::pending::<()>()), Err(Stop::Halted));
        if choice.coin() {
            sim.power_cut_any();
        } else {
            sim.kill();
        }
    }
    let [first, second] = disks.map(|disk| disk.durable_image().digest());
    let mut story = 0u64;
    for byte in sim.story().bytes() {
        story = story.wrapping_mul(31).wrapping_add(u64::from(byte));
    }
    [sim.trace_hash(), first, second, story]
}

#[test]
fn the_same_seed_gives_the_same_history_here_and_in_another_process() {
    let histories: Vec<[u64; 4]> = (0..SEEDS).map(history).collect();
    let lines: Vec<String> = histories.iter().map(|words| format!("history {words:?}")).collect();
    if env::var_os(CHILD).is_some() {
        println!("\n{}", lines.join("\n"));
        return;
    }
    assert_eq!(histories, (0..SEEDS).map(history).collect::<Vec<_>>(), "twice in one process");
    let name = "the_same_seed_gives_the_same_history_here_and_in_another_process";
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: Vec<&str> = text.lines().filter(|line| line.starts_with("history ")).collect();
    assert_eq!(theirs, lines, "and in another process");
}

#[test]
fn seeds_differ_in_their_histories() {
    let mut hashes: Vec<u64> = (0..SEEDS).map(|seed| history(seed)[0]).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len() as u64, SEEDS);
}
