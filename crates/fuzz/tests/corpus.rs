//! Gives the inputs worth keeping to the targets again, without the fuzzing engine.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aquifer_fuzz::TARGETS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{directory:?}: {e}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The Makefile iterates over the directories: it would omit a target without one, or a directory
/// without a target.
#[test]
fn every_target_has_a_corpus_and_no_other_has() {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let directories: BTreeSet<String> = entries(&corpus()).iter().map(name).collect();
    assert_eq!(directories, TARGETS.map(|target| target.name.to_owned()).into());
}

#[test]
fn the_corpus_is_small() {
    let files = TARGETS.iter().flat_map(|target| entries(&corpus().join(target.name)));
    let bytes: u64 = files.map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 1 << 20, "{bytes} bytes: run make fuzz-merge, or leave something out");
}

#[test]
fn the_corpus_breaks_nothing() {
    for target in TARGETS {
        let inputs = entries(&corpus().join(target.name));
        assert!(!inputs.is_empty(), "{} has no inputs", target.name);
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            let tried = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(tried.is_ok(), "{} by {}", target.name, input.display());
        }
    }
}

/// Random bytes, so that a target that accepts nothing at all is noticed.
#[test]
fn noise_breaks_nothing() {
    for target in TARGETS {
        let mut noise = aquifer_sim::Rng::stream(7, target.name);
        for length in [0, 1, 2, 3, 4, 5, 8, 24, 64, 300, 1000, 5000] {
            let mut bytes = vec![0; length];
            noise.fill(&mut bytes);
            (target.run)(&bytes);
        }
    }
}
