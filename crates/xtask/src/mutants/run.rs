//! Runs tests of a mutant, one after the other, until one fails or does not end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::build::{Programs, Workspace};
use super::mutant::Mutant;
use super::report::Report;
use super::steps::{SKIPPED, Step, steps};

/// The result of the tests of a mutant.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A test failed.
    Caught {
        /// The test program.
        by: String,
        /// Its first message.
        why: String,
    },
    /// A test program did not end.
    Hung {
        /// The test program.
        by: String,
    },
    /// All passed.
    Missed,
}

/// The processor time that each step may take, since the machine may be busy with other work.
pub type Limits = BTreeMap<Step, Duration>;

/// Mutants that run at once.
const WORKERS: usize = 2;
/// Memory limit of a test, so that a test that takes ever more harms no other program.
const MEMORY_KIB_MAX: u64 = 12 << 20;
/// The time that a step may take beyond several times its time without any mutant.
const GRACE: Duration = Duration::from_secs(20);
const TIMES_MAX: u32 = 3;
/// A test that waits for ever takes no processor time.
const WALL_MAX: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);

/// Runs the steps without a mutant, and returns the limit of each. Simulators run only their first
/// round: the last round is longer in proportion to its seeds.
///
/// # Errors
/// A step that fails.
pub fn baseline(
    workspace: &Workspace,
    programs: &Programs,
    rooms: &[&str],
) -> Result<Limits, String> {
    let mut limits = Limits::new();
    let begun = Instant::now();
    for room in rooms {
        for step in steps(room, programs) {
            if limits.contains_key(&step) {
                continue;
            }
            let first = limits.iter().find(|(of, _)| of.program == step.program);
            if let Some((first, limit)) = first {
                let more = step.seeds.unwrap_or(1) / first.seeds.unwrap_or(1).max(1);
                let limit = *limit * more;
                limits.insert(step, limit);
                continue;
            }
            let log = workspace.directory.join("log/0");
            let took = match run(workspace, programs, &step, 0, WALL_MAX, &log)? {
                (Outcome::Missed, took) => took,
                (other, _) => {
                    return Err(format!("without any mutant: {}: {other:?}", step.name()));
                }
            };
            println!("  {:>6.1} s  {}", took.as_secs_f64(), step.name());
            limits.insert(step, took * TIMES_MAX + GRACE);
        }
    }
    println!("all tests pass without a mutant, in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(limits)
}

/// Tries all, two at once, and notes the outcome of each.
///
/// # Errors
/// Tests that cannot be run.
pub fn try_all(
    workspace: &Workspace,
    programs: &Programs,
    limits: &Limits,
    mutants: &[(usize, Mutant)],
    report: &mut Report,
) -> Result<(), String> {
    let queue = Mutex::new(mutants.iter());
    let report = Mutex::new(report);
    let work = || {
        loop {
            let next = queue.lock().map_err(|_| "a worker ended")?.next();
            let Some((number, mutant)) = next else { return Ok::<(), String>(()) };
            let outcome = try_one(workspace, programs, limits, mutant, *number)?;
            report.lock().map_err(|_| "a worker ended")?.add(mutant, outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker ended")?)
    })
}

/// Tries the mutant with this `number`.
///
/// # Errors
/// Tests that cannot be run.
pub fn try_one(
    workspace: &Workspace,
    programs: &Programs,
    limits: &Limits,
    mutant: &Mutant,
    number: usize,
) -> Result<Outcome, String> {
    for step in steps(mutant.room(), programs) {
        let limit = limits.get(&step).copied().unwrap_or(GRACE);
        let log = workspace.directory.join(format!("log/{number}"));
        match run(workspace, programs, &step, number, limit, &log)? {
            (Outcome::Missed, _) => {}
            (found, _) => return Ok(found),
        }
    }
    Ok(Outcome::Missed)
}

/// The output of a step, and the processor time that it took.
fn run(
    workspace: &Workspace,
    programs: &Programs,
    step: &Step,
    number: usize,
    limit: Duration,
    log: &Path,
) -> Result<(Outcome, Duration), String> {
    let program = programs.get(&step.program).ok_or_else(|| format!("no {}", step.name()))?;
    let mut child = start(workspace, program, step, number, log)?;
    let began = Instant::now();
    let mut took = Duration::ZERO;
    loop {
        took = took.max(processor_time(child.id()));
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        let said = fs::read_to_string(log).unwrap_or_default();
        let is_caught = match ended {
            Some(status) => !status.success(),
            // The other tests of the program need not end.
            None => said.contains(" ... FAILED"),
        };
        if is_caught {
            end(&mut child);
            return Ok((Outcome::Caught { by: step.name(), why: reason(&said) }, took));
        } else if ended.is_some() {
            return Ok((Outcome::Missed, took));
        } else if took > limit || began.elapsed() > WALL_MAX {
            end(&mut child);
            return Ok((Outcome::Hung { by: step.name() }, took));
        }
        std::thread::sleep(POLL);
    }
}

fn start(
    workspace: &Workspace,
    program: &PathBuf,
    step: &Step,
    number: usize,
    log: &Path,
) -> Result<Child, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    fs::create_dir_all(log.parent().unwrap_or(log)).map_err(failed)?;
    let said = File::create(log).map_err(failed)?;
    let mut command = Command::new("sh");
    let limited = format!("ulimit -v {MEMORY_KIB_MAX}; exec \"$0\" \"$@\"");
    command.args(["-c", &limited]).arg(program);
    // A failing test's message is there at once.
    command.arg("--nocapture").args(SKIPPED.iter().flat_map(|test| ["--skip", test]));
    if let Some(seeds) = step.seeds {
        command.env("AQUIFER_SEEDS", seeds.to_string());
    }
    let directory = workspace.directory_of(&step.program.0);
    command.env("AQUIFER_MUTANT", number.to_string());
    command.env("CARGO_MANIFEST_DIR", &directory).current_dir(&directory).stdin(Stdio::null());
    let other = said.try_clone().map_err(failed)?;
    command.stdout(said).stderr(other).spawn().map_err(failed)
}

/// Processor time of a process so far, from `/proc`; zero for one that has ended.
fn processor_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may contain any characters: fields 14 and 15 of the whole line.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// The unit of `/proc`, on every Linux.
const TICKS_PER_SECOND: u64 = 100;

fn end(child: &mut Child) {
    // It may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
}

/// The first message of a failed test.
fn reason(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
    let place = lines.next().unwrap_or_default();
    let what = lines.next().unwrap_or_default();
    let tests = said.lines().find(|line| line.ends_with("... FAILED")).unwrap_or_default();
    let tests = tests.trim_start_matches("test ").trim_end_matches(" ... FAILED");
    let at = place.split("panicked at ").nth(1).unwrap_or_default();
    format!("{tests} {at} {}", what.chars().take(160).collect::<String>()).trim().to_string()
}
