//! The test programs to run, and their order: those first that find most in the least time.

use super::build::Programs;

/// A test program, with a number of seeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Its crate and name.
    pub program: (String, String),
    /// For a simulator.
    pub seeds: Option<u32>,
}

/// Crates from the lowest to the highest: an error in one shows in those above it, too.
const LINE: [&str; 8] = ["vdev", "space", "pool", "object", "dataset", "files", "nfs", "nfsd"];

/// Crates whose tests also run for mutants in the crates below them.
pub const ROOMS: [&str; 6] = ["space", "pool", "object", "dataset", "files", "nfs"];

/// The simulators, and the seeds of the first round and of the last.
const WORLDS: [(&str, u32, u32); 3] = [("files", 12, 60), ("nfs", 10, 40), ("pool", 20, 100)];

/// Tests that do not run: they would test the weaving, or repeat the simulators.
pub const SKIPPED: [&str; 3] = [
    // Woven functions are larger.
    "boxed_futures_are_no_larger_than_is_said",
    "the_future_of_a_request_is_no_larger_than_what_is_charged",
    // Other tests show that a seed runs the same again, and this takes long.
    "a_seed_runs_the_same_again",
];

impl Step {
    fn new(room: &str, name: &str, seeds: Option<u32>) -> Step {
        Step { program: (room.to_string(), name.to_string()), seeds }
    }

    /// A description for people.
    pub fn name(&self) -> String {
        let (room, name) = &self.program;
        let seeds = self.seeds.map(|seeds| format!(", {seeds} seeds")).unwrap_or_default();
        format!("{room} {name}{seeds}")
    }
}

/// All steps for a mutant in a crate. First come the crate's own unit tests, then the simulators
/// above it for a short time. Its other tests follow, then those of the crates above it, and the
/// simulators for longer.
pub fn steps(room: &str, programs: &Programs) -> Vec<Step> {
    let height = |room: &str| LINE.iter().position(|of| *of == room);
    let is_above = |of: &str| ROOMS.contains(&of) && height(of) > height(room);
    let is_world = |name: &str| name == "power_cut";
    let (own, others): (Vec<_>, Vec<_>) = programs
        .keys()
        .filter(|(of, name)| !is_world(name) && (of == room || is_above(of)))
        // It needs real clients, and a program that only cargo builds beside them.
        .filter(|(_, name)| name != "clients")
        .partition(|(of, _)| of == room);
    let (units, more): (Vec<_>, Vec<_>) = own.into_iter().partition(|(_, name)| name == "lib");
    let plain = |(of, name): &(String, String)| Step::new(of, name, None);
    let worlds = WORLDS.iter().filter(|(of, ..)| *of == room || is_above(of));
    let mut steps: Vec<Step> = units.into_iter().map(plain).collect();
    steps.extend(worlds.clone().map(|(of, few, _)| Step::new(of, "power_cut", Some(*few))));
    steps.extend(more.into_iter().map(plain));
    steps.extend(others.into_iter().map(plain));
    steps.extend(worlds.map(|(of, _, many)| Step::new(of, "power_cut", Some(*many))));
    steps
}
