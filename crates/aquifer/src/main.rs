//! `aquifer`: the daemon, and the command line shaped like `zpool` and `zfs` that talks to it.
//!
//! Exit codes: 0 done, 1 failed or refused (the reason is on stderr), 2 wrong usage, 3 a pool has a
//! problem (`pool status -x`).

mod audit;
mod bench;
mod doctor;
mod inspect;
mod interrupt;
mod paper;
#[cfg(test)]
mod tests;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use aquifer_cli::{Failure, Options, Output, print, tell};
use aquifer_daemon::ServeArgs;
use clap::{Parser, Subcommand};

use audit::AuditCommand;
use bench::BenchArgs;
use doctor::DoctorArgs;
use inspect::InspectArgs;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns disks into a datastore for virtual machines, served over NFS.
#[derive(Debug, Parser)]
#[command(name = "aquifer", version = env!("AQUIFER_VERSION"), disable_help_subcommand = true)]
struct Args {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground.
    Serve(ServeArgs),
    #[command(flatten)]
    Ask(aquifer_cli::Command),
    /// Read an exported pool from its disks alone and say what is wrong with it.
    Inspect(InspectArgs),
    /// Find out what hypervisors will meet: replay their clients' steps from this machine, and look
    /// at ports, names, exports, clock and MTU.
    Doctor(DoctorArgs),
    /// Look at audit lines.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show which version this program is, and which one the daemon runs.
    Version,
    /// Measure a dataset through NFS as well-known programs do, with a file of its own.
    Bench(BenchArgs),
    /// Print a completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the pages of the manual, one for each command.
    #[command(hide = true)]
    ManPages {
        /// An existing directory.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    // Ends the program if a shell asks what a word could become.
    paper::complete();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return unparsed(&error),
    };
    let json = args.options.json;
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Help and version, or what is wrong with the command line.
fn unparsed(error: &clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).take_while(|word| word != "--").collect();
    let is_error = error.use_stderr();
    if is_error && words.iter().any(|word| word == "--json") {
        return Failure::usage(summary(error)).report(true);
    }
    // A closed pipe is nobody's concern.
    let _ = error.print();
    let mut plain: Vec<&str> = Vec::new();
    let mut is_value = false;
    for word in &words {
        if !word.starts_with('-') && !is_value {
            plain.push(word);
        }
        // Options that every command has, and that take a value.
        is_value = word.starts_with("--api") && !word.contains('=');
    }
    if error.kind() == clap::error::ErrorKind::InvalidSubcommand
        && let Some(hint) = aquifer_cli::hint(&plain)
    {
        let output = Output { json: false, script: false, exact: false, colour: false };
        tell(output, &[hint.to_string()]);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The first paragraph of what clap says.
fn summary(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).replace('\n', " ").trim().to_string()
}

fn run(Args { options, command }: Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(error.to_string()))?;
    match command {
        Command::Serve(serve) if serve.check => {
            print(&aquifer_daemon::settings(&serve).map_err(of_daemon)?)
        }
        Command::Serve(serve) => {
            let socket = options.api.api_socket;
            let served = aquifer_daemon::serve(&runtime, &socket, &serve, version::commit());
            // Not just dropped: that waits for blocking calls, and a disk may hang in one.
            runtime.shutdown_background();
            served.map_err(of_daemon)
        }
        Command::Ask(command) => runtime.block_on(aquifer_cli::run(command, &options)),
        Command::Inspect(args) => runtime.block_on(inspect::inspect(Output::of(&options), args)),
        Command::Audit(command) => audit::audit(Output::of(&options), command),
        Command::Bench(args) => runtime.block_on(bench::bench(&options, args)),
        Command::Version => runtime.block_on(version::version(&options)),
        Command::Doctor(args) => runtime.block_on(doctor::doctor(&options, args)),
        Command::Completions { shell } => print(&paper::completions(shell)?),
        Command::ManPages { directory } => paper::man_pages(&directory),
    }
}

fn of_daemon(failure: aquifer_daemon::Failure) -> Failure {
    match failure {
        aquifer_daemon::Failure::Usage(why) => Failure::usage(why),
        aquifer_daemon::Failure::Failed(why) => Failure::failed(why),
    }
}
