//! Leaves out rules of the design; the simulator must find that.

use std::ops::Range;

use aquifer_blockio::sabotage::{Rule, leave_out};

/// Rules are left out in the whole process. Tests that do so, and tests that must not see it, wait
/// for each other.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs seeds without a rule, until one finds that it is missing. Where such seeds are rare, they
/// begin shortly before the first: CI looks at each rule each time.
///
/// # Panics
/// None of them does.
pub fn must_be_found(rule: Rule, seeds: Range<u64>, run: impl Fn(u64) -> Result<(), String>) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    leave_out(&[rule]);
    let mut why = String::new();
    let found = seeds.clone().find(|seed| {
        why = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(*seed))) {
            Ok(Ok(())) => return false,
            Ok(Err(what)) => what,
            Err(_) => "an assertion of the engine".into(),
        };
        true
    });
    leave_out(&[]);
    std::panic::set_hook(hook);
    let seed = found.unwrap_or_else(|| panic!("{rule:?} left out is found"));
    println!("{rule:?} left out: found by seed {seed}, after {}: {why}", seed - seeds.start);
}
