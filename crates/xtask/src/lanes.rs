//! The tests of the workspace, two programs at once.
//!
//! `cargo test` runs one program after the other. Those with real clients wait for much of their
//! time: for guests, for daemons that start, for limits that run out. The worlds of the simulator
//! compute. So one lane takes the programs that wait, from the front of a row, and the other
//! computes, from its end; they meet where they meet. Those that wait are built first and run while
//! the others are built. A program's output comes in one piece, when it has ended.
//!
//! Some programs run twice: the second time they leave out one rule of the design after the other
//! (`make sabotage`). They do so in a process of their own, since a rule is left out in all of it.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::programs::{self, Program};

/// Programs whose tests wait, the longest first. Another program may stand anywhere: only time is
/// lost.
const WAITERS: [(&str, &str); 6] = [
    ("conformance", "aquifer"),
    ("aquifer", "aquifer"),
    ("demo", "demo"),
    ("bench", "attacks"),
    ("nfsd", "clients"),
    ("nfsd", "overload"),
];

/// Programs that compute, the longest last.
const COMPUTERS: [(&str, &str); 4] =
    [("files", "files"), ("nfs", "power_cut"), ("files", "power_cut"), ("pool", "power_cut")];

/// Programs that leave out rules.
const SABOTEURS: [(&str, &str); 5] = [
    ("vdev", "holds"),
    ("files", "files"),
    ("pool", "power_cut"),
    ("nfs", "power_cut"),
    ("files", "power_cut"),
];

/// The test in each of them that does; it is ignored otherwise.
const SABOTAGE: &str = "a_rule_left_out_is_found";

/// Tests at once: many of those that wait, one for each of the two processors of those that
/// compute.
const WAITING_THREADS: &str = "4";
const COMPUTING_THREADS: &str = "2";

/// Builds and runs all tests; the programs that failed. Those that wait run while the others are
/// built.
///
/// # Errors
/// Something does not build, or cannot be run.
pub fn run(root: &Path) -> Result<Vec<String>, String> {
    let names: BTreeSet<&str> = WAITERS.iter().map(|(_, name)| *name).collect();
    let only: Vec<&str> = names.iter().flat_map(|name| ["--test", *name]).collect();
    let first = build(root, &only)?.into_iter();
    let first: Vec<Program> = first.filter(|program| place(&WAITERS, program).is_some()).collect();
    let row = Row::default();
    row.add(in_order(first.clone()), false);
    let failed = Mutex::new(Vec::new());
    let lane = |is_front: bool| -> Result<(), String> {
        let threads = if is_front { WAITING_THREADS } else { COMPUTING_THREADS };
        while let Some(run) = row.next(is_front) {
            if !run_one(root, &run, threads)? {
                lock(&failed).push(run.name());
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lane(true));
        let rest = build(root, &[]).and_then(|all| {
            let saboteurs = all.iter().filter(|program| place(&SABOTEURS, program).is_some());
            if saboteurs.count() != SABOTEURS.len() {
                return Err(format!("programs that leave out rules are missing: {SABOTEURS:?}"));
            }
            Ok(all.into_iter().filter(|program| !first.contains(program)).collect())
        });
        let computing = match rest {
            Ok(rest) => {
                row.add(in_order(rest), true);
                lane(false)
            }
            Err(error) => {
                // Those that wait end with the one that runs.
                row.end();
                Err(error)
            }
        };
        let ended = [computing, waiting.join().unwrap_or(Err("a lane panicked".to_string()))];
        ended.into_iter().collect::<Result<Vec<()>, String>>()
    })?;
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    let mut examples = programs::cargo_command();
    examples.args(["test", "--workspace", "--quiet", "--doc"]).current_dir(root);
    if !examples.status().map_err(|error| format!("cargo: {error}"))?.success() {
        failed.push("examples in docstrings".to_string());
    }
    println!("\nexamples in docstrings: {:.1} s", began.elapsed().as_secs_f64());
    Ok(failed)
}

/// Builds test programs of the workspace: those that `only` chooses.
fn build(root: &Path, only: &[&str]) -> Result<Vec<Program>, String> {
    let began = Instant::now();
    let mut command = programs::cargo_command();
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let (is_built, messages) = programs::cargo(root, command.args(only).stderr(Stdio::inherit()))?;
    if !is_built {
        return Err("the tests do not build".to_string());
    }
    let programs = messages.iter().filter_map(|message| programs::program(root, message));
    let programs: Vec<Program> = programs.collect();
    println!("\n{} programs built: {:.1} s", programs.len(), began.elapsed().as_secs_f64());
    Ok(programs)
}

/// Programs that are to run, from which both lanes take.
#[derive(Debug, Default)]
struct Row {
    /// Those left, and whether these are all.
    left: Mutex<(VecDeque<Run>, bool)>,
    came: Condvar,
}

impl Row {
    /// Adds runs behind the others. `is_whole`: no more come.
    fn add(&self, runs: VecDeque<Run>, is_whole: bool) {
        let mut left = lock(&self.left);
        left.0.extend(runs);
        left.1 = is_whole;
        self.came.notify_all();
    }

    /// None is to run any more.
    fn end(&self) {
        *lock(&self.left) = (VecDeque::new(), true);
        self.came.notify_all();
    }

    /// The next one; `None` after the last.
    fn next(&self, is_front: bool) -> Option<Run> {
        let left = lock(&self.left);
        let is_short = |left: &mut (VecDeque<Run>, bool)| left.0.is_empty() && !left.1;
        let left = self.came.wait_while(left, is_short);
        let mut left = left.unwrap_or_else(PoisonError::into_inner);
        if is_front { left.0.pop_front() } else { left.0.pop_back() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a program stands in a list.
fn place(list: &[(&str, &str)], program: &Program) -> Option<usize> {
    list.iter().position(|named| *named == (program.room.as_str(), program.name.as_str()))
}

/// A run of a program.
#[derive(Debug, Clone)]
struct Run {
    program: Program,
    /// Rules are left out, and nothing else is tested.
    is_sabotage: bool,
}

impl Run {
    fn name(&self) -> String {
        let Program { room, name, .. } = &self.program;
        format!("{room} {name}{}", if self.is_sabotage { ", rules left out" } else { "" })
    }
}

/// Waiters to the front, computers to the back, and beside them what leaves out rules.
fn in_order(programs: Vec<Program>) -> VecDeque<Run> {
    let saboteurs = programs.iter().filter(|program| place(&SABOTEURS, program).is_some());
    let saboteurs = saboteurs.cloned().map(|program| Run { program, is_sabotage: true });
    let mut runs: Vec<Run> = saboteurs.collect();
    runs.extend(programs.into_iter().map(|program| Run { program, is_sabotage: false }));
    runs.sort_by_key(|run| match place(&WAITERS, &run.program) {
        Some(place) => (0, place, false),
        None => match place(&COMPUTERS, &run.program) {
            Some(place) => (2, place, run.is_sabotage),
            None => (1, 0, run.is_sabotage),
        },
    });
    runs.into()
}

/// Runs a program and prints what it said; whether its tests passed.
fn run_one(root: &Path, run: &Run, threads: &str) -> Result<bool, String> {
    let program = &run.program;
    let failed = |error: std::io::Error| format!("{}: {error}", program.executable.display());
    let directory = root.join("crates").join(&program.room);
    let (mut said, began) = (unnamed_file(root).map_err(failed)?, Instant::now());
    let (out, err) = (said.try_clone().map_err(failed)?, said.try_clone().map_err(failed)?);
    let mut command = Command::new(&program.executable);
    if run.is_sabotage {
        command.args(["--ignored", SABOTAGE]);
    }
    command.env("CARGO_MANIFEST_DIR", &directory).current_dir(&directory).stdin(Stdio::null());
    command.env("RUST_TEST_THREADS", threads).stdout(out).stderr(err);
    let status = command.status().map_err(failed)?;
    let mut text = Vec::new();
    said.rewind().and_then(|()| said.read_to_end(&mut text)).map_err(failed)?;
    let mut out = std::io::stdout().lock();
    let took_s = began.elapsed().as_secs_f64();
    writeln!(out, "\n{}: {took_s:.1} s", run.name()).map_err(failed)?;
    out.write_all(&text).map_err(failed)?;
    let is_without_test = String::from_utf8_lossy(&text).contains("ok. 0 passed");
    Ok(status.success() && !(run.is_sabotage && is_without_test))
}

/// A file that is gone when it is closed: nothing stays after an interrupt.
fn unnamed_file(root: &Path) -> std::io::Result<File> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = root.join(format!("target/test-{}-{number}.log", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_waits_for_what_is_being_built() {
        let run = |name: &str| Run {
            program: Program {
                room: name.to_string(),
                name: name.to_string(),
                executable: Path::new("/").join(name),
            },
            is_sabotage: false,
        };
        let row = Row::default();
        row.add([run("first")].into(), false);
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| {
                let names = std::iter::from_fn(|| row.next(true)).map(|run| run.name());
                names.collect::<Vec<_>>()
            });
            row.add([run("second")].into(), false);
            row.add([run("third")].into(), true);
            assert_eq!(lane.join().unwrap(), ["first first", "second second", "third third"]);
        });
        assert!(row.next(false).is_none());
        let row = Row::default();
        row.add([run("first"), run("second")].into(), false);
        assert!(row.next(true).is_some());
        row.end();
        assert!(row.next(true).is_none(), "the rest does not build");
    }

    #[test]
    fn waiters_go_to_one_lane_and_computers_to_the_other() {
        let program = |room: &str, name: &str| Program {
            room: room.to_string(),
            name: name.to_string(),
            executable: Path::new("/").join(room),
        };
        let row = in_order(vec![
            program("pool", "power_cut"),
            program("rpc", "lib"),
            program("nfsd", "clients"),
            program("files", "power_cut"),
            program("aquifer", "aquifer"),
        ]);
        let names: Vec<String> = row.iter().map(Run::name).collect();
        let expected = [
            "aquifer aquifer",
            "nfsd clients",
            "rpc lib",
            "files power_cut",
            "files power_cut, rules left out",
            "pool power_cut",
            "pool power_cut, rules left out",
        ];
        assert_eq!(names, expected);
    }
}
