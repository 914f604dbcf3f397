//! `aquifer`: the daemon, and the command line shaped like `zpool` and `zfs` that talks to it.
//!
//! Exit codes: 0 done, 1 failed or refused (the reason is on stderr), 2 wrong usage.

#[cfg(sabotage)]
compile_error!("a build with --cfg sabotage breaks rules on purpose and must not serve anybody");

mod args;
mod commands;
mod failure;
mod serve;
mod settings;
mod shown;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.json;
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(error.to_string()))?;
    match args.command {
        Command::Serve(serve) => serve::serve(&runtime, args.api.api_socket, serve),
        command => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let Args { json, script, exact, .. } = args;
            let output = commands::Output { json, script, exact, colour };
            runtime.block_on(commands::run(command, &args.api, output))
        }
    }
}
