//! Files that come with the program, made of its command line: pages of the manual, and
//! completions.
//!
//! Completions are dynamic. A shell's script only calls the program again, with
//! [`VARIABLE`] set, and the program knows commands, options and the daemon's names.

use std::path::Path;

use aquifer_cli::{Failure, completing};
use clap::{Command, CommandFactory};
use clap_complete::{CompleteEnv, Shell, env::Shells};
use clap_mangen::Man;

use crate::Args;

/// Set to a shell's name, it has the program complete a command line.
const VARIABLE: &str = "AQUIFER_COMPLETE";

/// Text that every page of the manual has: codes, files, and where there is more.
const MORE: &str = include_str!("paper/more.roff");

/// Where zsh finds the script by its name (fpath), it runs it at the first completion: the function
/// that it defines must answer that one, too.
const ZSH_BY_NAME: &str = "
if [ \"$funcstack[1]\" = _aquifer ]; then
    _clap_dynamic_completer_aquifer \"$@\"
fi
";

/// Answers a shell that completes a command line, and ends the program; else does nothing.
pub(crate) fn complete() {
    CompleteEnv::with_factory(|| completing(Args::command())).var(VARIABLE).complete();
}

/// The script that tells a shell to ask this program.
///
/// # Errors
/// A shell that is not known.
pub(crate) fn completions(shell: Shell) -> Result<String, Failure> {
    let (name, shells) = (shell.to_string(), Shells::builtins());
    let shell = shells.completer(&name);
    let shell = shell.ok_or_else(|| Failure::usage(format!("{name}: no such shell")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "aquifer", "aquifer", "aquifer", &mut script)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if name == "zsh" {
        script.push_str(ZSH_BY_NAME);
    }
    Ok(script)
}

/// Writes a page for each command into `directory`.
///
/// # Errors
/// A page that cannot be written.
pub(crate) fn man_pages(directory: &Path) -> Result<(), Failure> {
    for (name, text) in pages() {
        let path = directory.join(name);
        let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
        std::fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}

/// File names and texts.
pub(crate) fn pages() -> Vec<(String, Vec<u8>)> {
    let mut command = Args::command();
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages);
    pages
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let man = Man::new(command.clone().override_usage(usage));
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = man.render(&mut text);
    let text = String::from_utf8_lossy(&text);
    let name = man.get_filename();
    let name = name.trim_end_matches(".1");
    let mut page = String::new();
    for line in text.lines() {
        match line.starts_with(".TH ") {
            // An empty date would be left out, and what stands behind it would move.
            true => page.push_str(&title(name)),
            false => page.push_str(line),
        }
        page.push('\n');
    }
    page.push_str(MORE);
    if let Some((above, _)) = name.rsplit_once('-') {
        page.push_str(&format!(".SH \"SEE ALSO\"\n\\fB{}\\fR(1)\n", above.replace('-', "\\-")));
    }
    pages.push((format!("{name}.1"), page.into_bytes()));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below, pages);
    }
}

/// The line with name, section, date, version and book.
fn title(name: &str) -> String {
    let (date, version) = (env!("AQUIFER_DATE"), env!("CARGO_PKG_VERSION"));
    format!(".TH \"{name}\" \"1\" \"{date}\" \"aquifer {version}\" \"Aquifer\"")
}

#[cfg(test)]
mod tests;
