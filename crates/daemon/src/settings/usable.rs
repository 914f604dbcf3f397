//! Settings to start with, whatever the file says.
//!
//! A setting that cannot be used is replaced by that of the last start whose settings were all
//! good, and by the default, if there was none. What was replaced is a problem of the server until
//! a start finds nothing wrong.
//!
//! Invariants:
//! - Where NFS listens, and where the state is, come from the file, the command line, or the last
//!   good start. A default could offer NFS to networks that it was kept from.
//! - A key that is not known (a newer release wrote it) changes nothing else.

use std::path::Path;

use aquifer_api::{Problem, Severity, codes};
use aquifer_blockio::durable;
use serde::Deserialize;
use toml::{Table, Value};

use super::{CONFIG, Settings, Wrong};
use crate::args::ServeArgs;
use crate::failure::Failure;

/// Settings, and what is wrong with those that were given.
#[derive(Debug)]
pub(crate) struct Usable {
    pub settings: Settings,
    pub problem: Option<Problem>,
}

/// The settings of a daemon that is started with `args`.
///
/// # Errors
/// It is not known where NFS is to listen, or where the state is.
pub(crate) fn usable(args: &ServeArgs) -> Result<Usable, Failure> {
    let kept = Kept::beside(args);
    let mut given = Given {
        kept: kept.table(),
        found: Vec::new(),
        has_listen: !args.nfs_addr.is_empty(),
        has_state: args.state_dir.is_some(),
    };
    let table = given.read(args)?;
    let mut settings = given.settings(table)?;
    settings.take(args);
    given.check(&mut settings)?;
    let problem = problem(&given.found);
    if problem.is_none() {
        kept.keep(&settings);
    }
    Ok(Usable { settings, problem })
}

/// Something that is wrong.
#[derive(Debug)]
struct Found {
    what: String,
    /// Only a key that is not known.
    is_unknown: bool,
}

fn problem(found: &[Found]) -> Option<Problem> {
    if found.is_empty() {
        return None;
    }
    let each: Vec<&str> = found.iter().map(|found| found.what.as_str()).collect();
    let status = format!("Settings cannot be used: {}.", each.join("; "));
    let action = "`aquifer serve --check` says more. Mend the configuration, then `systemctl \
                  restart aquifer`. Until then the daemon runs with the settings of its last \
                  good start, and with defaults where there was none.";
    let severity = match found.iter().all(|found| found.is_unknown) {
        true => Severity::Warning,
        false => Severity::Error,
    };
    Some(Problem::new(codes::SETTINGS_UNUSABLE, severity, status, Some(action.into())))
}

/// The settings of the last good start, in the state directory.
struct Kept(std::path::PathBuf);

impl Kept {
    fn beside(args: &ServeArgs) -> Kept {
        let default = Settings::default().state_dir;
        Kept(args.state_dir.clone().unwrap_or(default).join(FILE_NAME))
    }

    fn table(&self) -> Table {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let table: Table = toml::from_str(&text).unwrap_or_default();
        // One that is spoilt helps nobody.
        if Settings::deserialize(table.clone()).is_ok() { table } else { Table::new() }
    }

    fn keep(&self, settings: &Settings) {
        let Ok(text) = toml::to_string(settings) else { return };
        let is_there = std::fs::read_to_string(&self.0).is_ok_and(|before| before == text);
        if !is_there && self.0.parent().is_some_and(Path::is_dir) {
            // Without it, a bad setting is replaced by its default. It may name secrets.
            let _ = durable::replace(&self.0, text.as_bytes(), 0o600);
        }
    }
}

/// Settings that were given, and what was found wrong with them.
struct Given {
    kept: Table,
    found: Vec<Found>,
    /// The command line says where NFS listens.
    has_listen: bool,
    /// It says where the state is.
    has_state: bool,
}

impl Given {
    /// The file.
    fn read(&mut self, args: &ServeArgs) -> Result<Table, Failure> {
        let path = args.config.as_deref().unwrap_or(Path::new(CONFIG));
        let is_there = args.config.is_some() || std::fs::symlink_metadata(path).is_ok();
        if !is_there {
            return Ok(Table::new());
        }
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let read = text.and_then(|text| {
            toml::from_str::<Table>(&text).map_err(|error| error.message().to_string())
        });
        let error = match read {
            Ok(table) => return Ok(table),
            Err(error) => format!("configuration {}: {error}", path.display()),
        };
        if self.kept.is_empty() && !(self.has_listen && self.has_state) {
            return Err(Failure::usage(error));
        }
        self.found.push(Found { what: error, is_unknown: false });
        Ok(self.kept.clone())
    }

    /// The settings of a table, without what cannot be used.
    fn settings(&mut self, mut table: Table) -> Result<Settings, Failure> {
        let whole = match Settings::deserialize(table.clone()) {
            Ok(settings) => return Ok(settings),
            Err(error) => error,
        };
        for unit in units(&table) {
            let alone = unit.alone(&table).unwrap_or_default();
            let Err(error) = Settings::deserialize(alone) else { continue };
            let (key, error) = (unit.key(), error.message().to_string());
            let is_unknown = error.contains("unknown field");
            let what = format!("{key}: {error}");
            unit.replace(&mut table, &self.kept);
            let is_guessed = |known: &str, is_given: bool| {
                !is_given
                    && (known == key || known.starts_with(&format!("{key}.")))
                    && !has(&table, known)
            };
            if is_guessed("nfs.listen", self.has_listen) || is_guessed("state_dir", self.has_state)
            {
                return Err(Failure::usage(what));
            }
            self.found.push(Found { what, is_unknown });
        }
        // Each unit is good alone, so nothing is left that could be wrong.
        Settings::deserialize(table).map_err(|_| Failure::usage(whole.message()))
    }

    /// Replaces settings that make no sense.
    fn check(&mut self, settings: &mut Settings) -> Result<(), Failure> {
        let kept = Settings::deserialize(self.kept.clone()).unwrap_or_default();
        let from = [kept, Settings::default()];
        for _ in 0..CHECKS_MAX {
            let Err(Wrong { key, why }) = settings.check() else { return Ok(()) };
            let is_first = !self.found.iter().any(|found| found.what == why);
            // What the last good start had may not be good any more.
            let [kept, default] = &from;
            let other = if is_first && !self.kept.is_empty() { kept } else { default };
            match key {
                "nfs.listen" | "state_dir" if self.kept.is_empty() || !is_first => {
                    return Err(Failure::usage(why));
                }
                "nfs.listen" => settings.nfs.listen.clone_from(&other.nfs.listen),
                "state_dir" => settings.state_dir.clone_from(&other.state_dir),
                "nfs.connections" => settings.nfs.connections = other.nfs.connections,
                "nfs.tls" => settings.nfs.tls = other.nfs.tls.clone(),
                "portmap.listen" => settings.portmap = other.portmap.clone(),
                "api.names" => settings.api.names.clone_from(&other.api.names),
                "log" => settings.log.clone_from(&other.log),
                // What it was is too much now: half of what there is.
                "memory" => settings.memory = None,
                "wait_for_disks_s" => settings.wait_for_disks_s = other.wait_for_disks_s,
                "alerts" => settings.alerts = other.alerts.clone(),
                "audit" => settings.audit = other.audit.clone(),
                _ => settings.peers = other.peers.clone(),
            }
            if is_first {
                self.found.push(Found { what: why, is_unknown: false });
            }
        }
        settings.check().map_err(|Wrong { why, .. }| Failure::usage(why))
    }
}

/// A unit that is good or bad as a whole: a value, an element of a list, a peer.
#[derive(Debug)]
struct Unit {
    path: Vec<String>,
    index: Option<usize>,
}

/// The units of a table; elements of a list from the last to the first, so that each can be taken
/// out.
fn units(table: &Table) -> Vec<Unit> {
    let mut all = Vec::new();
    collect(table, &[], &mut all);
    all
}

fn collect(table: &Table, above: &[String], all: &mut Vec<Unit>) {
    for (name, value) in table {
        let path = [above, std::slice::from_ref(name)].concat();
        match value {
            Value::Table(inner) if SECTIONS.contains(&path.join(".").as_str()) => {
                collect(inner, &path, all);
            }
            Value::Array(elements) if !elements.is_empty() => {
                let each = (0..elements.len()).rev();
                all.extend(each.map(|index| Unit { path: path.clone(), index: Some(index) }));
            }
            _ => all.push(Unit { path, index: None }),
        }
    }
}

impl Unit {
    fn key(&self) -> String {
        self.path.join(".")
    }

    /// A table that has only this.
    fn alone(&self, table: &Table) -> Option<Table> {
        let mut value = look_up(table, &self.path)?.clone();
        if let (Some(index), Value::Array(elements)) = (self.index, &value) {
            value = Value::Array(vec![elements.get(index)?.clone()]);
        }
        let wrapped = self
            .path
            .iter()
            .rev()
            .fold(value, |inner, name| Value::Table(Table::from_iter([(name.clone(), inner)])));
        match wrapped {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Takes it out, and puts what is kept in its place.
    fn replace(&self, table: &mut Table, kept: &Table) {
        let Some((name, above)) = self.path.split_last() else { return };
        let mut at = table;
        for name in above {
            let Some(Value::Table(inner)) = at.get_mut(name) else { return };
            at = inner;
        }
        match (self.index, at.get_mut(name)) {
            (Some(index), Some(Value::Array(elements))) if index < elements.len() => {
                elements.remove(index);
            }
            _ => {
                at.remove(name);
                if let Some(value) = look_up(kept, &self.path) {
                    at.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

fn look_up<'t>(table: &'t Table, path: &[String]) -> Option<&'t Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(first)?;
    match (value, rest) {
        (value, []) => Some(value),
        (Value::Table(inner), rest) => look_up(inner, rest),
        _ => None,
    }
}

fn has(table: &Table, key: &str) -> bool {
    let path: Vec<String> = key.split('.').map(str::to_string).collect();
    look_up(table, &path).is_some()
}

/// Tables whose keys are settings of their own.
const SECTIONS: [&str; 9] =
    ["nfs", "nfs.tls", "portmap", "api", "names", "alerts", "audit", "audit.syslog", "peers"];
/// More than there are keys that a check names.
const CHECKS_MAX: usize = 32;
const FILE_NAME: &str = "settings.toml";

#[cfg(test)]
mod tests;
