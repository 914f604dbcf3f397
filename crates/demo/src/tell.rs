//! The output of the demo: steps, commands as a person would type them, and their answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Prints the title of a new step.
pub fn step(title: &str) {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    println!("\n{}. {title}", NUMBER.fetch_add(1, Ordering::Relaxed));
}

/// Prints a command as a person would type it.
pub fn command(line: &str) {
    println!("   $ {line}");
}

/// Prints an answer or an event.
pub fn said(text: &str) {
    for line in text.lines() {
        println!("     {}", line.trim_end());
    }
}

/// A time span for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
