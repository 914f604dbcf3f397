//! The main job, as `make demo` plays it, with the programs of this build.

use std::process::{Command, Stdio};

#[test]
fn the_demo_plays_to_its_end() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_aquifer-demo"));
    let played = demo.env("CI", "true").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{text}\n{errors}");
    for said in ["by code that shares nothing with the engine: no error", "What to type next"] {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
}
