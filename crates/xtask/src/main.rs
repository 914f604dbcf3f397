//! Tasks of the workspace that are not part of Aquifer: `cargo run -p xtask -- tidy`.

mod lanes;
mod mutants;
mod programs;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use mutants::Wanted;

const USAGE: &str = "usage: cargo run -p xtask -- tidy
       cargo run -p xtask -- test
       cargo run -p xtask -- mutants <count> <seed>
       cargo run -p xtask -- mutants planted <all | words of a file or mistake>";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["test"] => run_tests(),
        ["mutants", "planted", "all"] => run_mutants(Wanted::Planted("")),
        ["mutants", "planted", only] => run_mutants(Wanted::Planted(only)),
        ["mutants", count, seed] => match (count.parse(), seed.parse()) {
            (Ok(count), Ok(seed)) => run_mutants(Wanted::Drawn { count, seed }),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn run_tidy() -> ExitCode {
    let report = match tidy::check(root()) {
        Ok(report) => report,
        Err(problem) => {
            eprintln!("tidy: {problem}");
            return ExitCode::FAILURE;
        }
    };
    println!("{report}");
    if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_tests() -> ExitCode {
    match lanes::run(root()) {
        Ok(failed) if failed.is_empty() => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("failed: {}", failed.join(", "));
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("test: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run_mutants(wanted: Wanted<'_>) -> ExitCode {
    let report = match mutants::try_mutants(root(), wanted) {
        Ok(report) => report,
        Err(problem) => {
            eprintln!("mutants: {problem}");
            return ExitCode::FAILURE;
        }
    };
    println!("{report}");
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The root directory of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}
