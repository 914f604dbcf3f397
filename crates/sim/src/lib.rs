//! The deterministic world under the power-cut simulator.
//!
//! One seed gives one history. [`Sim`] runs tasks on one thread in an order drawn from the seed.
//! Its disks reorder, tear, lose, misplace and refuse as the seed and the test tell them. Running a
//! seed again gives the same history again.
//!
//! A simulated cut, in short: `Sim::new(seed)`, `add_disk` with a prepared [`Image`], `plan_cut`,
//! `run_until` until [`Stop::Halted`], `power_cut`, then `run_until` with import and checks.

pub mod disk;
pub mod rng;
pub mod sabotage;
pub mod seeds;
pub mod sim;
pub mod world;

mod clock;
mod executor;
mod machine;
mod trace;

pub use disk::{
    Corruption, Counters, CutMode, DiskConfig, Fault, FaultRule, Image, Latency, SimDisk,
    SmallerDisk, Vanish, When,
};
pub use rng::Rng;
pub use sim::{CutPlan, Sim, SimConfig, Stop};
pub use world::SimWorld;
