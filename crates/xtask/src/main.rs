//! Tasks of the workspace that are no part of Aquifer: `cargo run -p xtask -- tidy`.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
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

/// The workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}
