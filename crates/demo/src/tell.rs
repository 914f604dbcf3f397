//! How the demo speaks: steps, commands as a person would type them, what was said.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A new step of the story.
pub fn step(title: &str) {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    println!("\n{}. {title}", NUMBER.fetch_add(1, Ordering::Relaxed));
}

/// A command as it would be typed.
pub fn command(line: &str) {
    println!("   $ {line}");
}

/// Something that was said or happened.
pub fn said(text: &str) {
    for line in text.lines() {
        println!("     {}", line.trim_end());
    }
}

/// A length of time for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
