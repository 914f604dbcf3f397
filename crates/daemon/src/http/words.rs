//! Acts that were asked for, in words of the command line, for the history.

use std::fmt::Write;

use aquifer_admin::control::Named;
use aquifer_admin::control::guard::Guard;
use aquifer_admin::control::history::Concerned;
use aquifer_api::time::text_s;
use aquifer_api::{
    BindToken, ClearLocks, CreateToken, DatasetName, GiveUpReceive, PrunePull, ReceiveRequest,
    ReplicateRequest, Role, RotateToken, SettlePull, StopReplication, TakePull,
};

use super::acts::{About, Told};

/// Words with blanks between them.
#[derive(Default)]
struct Words(String);

impl Words {
    fn of(command: &str) -> Words {
        Words(command.into())
    }

    /// A word that somebody chose.
    fn word(mut self, word: &str) -> Words {
        let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '"');
        // Writing to a text does not fail.
        let _ = if plain { write!(self.0, " {word}") } else { write!(self.0, " {word:?}") };
        self
    }

    fn flag(mut self, is_set: bool, flag: &str) -> Words {
        if is_set {
            self.0.push(' ');
            self.0.push_str(flag);
        }
        self
    }

    fn option(self, flag: &str, value: Option<String>) -> Words {
        match value {
            Some(value) => self.flag(true, flag).word(&value),
            None => self,
        }
    }

    fn certificates(self, fingerprints: &[String]) -> Words {
        let each = fingerprints.iter();
        each.fold(self, |words, one| words.option("--certificate", Some(one.clone())))
    }

    fn words<'a>(self, words: impl IntoIterator<Item = &'a String>) -> Words {
        words.into_iter().fold(self, |words, word| words.word(word))
    }

    fn told(self, about: About) -> Told {
        Told::new(self.0, about)
    }
}

/// Datasets, which need not exist.
pub(super) fn named(datasets: &[DatasetName]) -> Vec<Named> {
    datasets.iter().map(|name| Named::Dataset(name.to_string())).collect()
}

fn dataset(name: &str) -> [Named; 1] {
    [Named::Dataset(name.into())]
}

/// Guards an act that takes disks by force, even if they hold something: they may be those of any
/// pool.
fn by_force(force: bool, told: Told) -> Told {
    if force { told.guarded(Guard::All) } else { told }
}

fn bytes(size: Option<u64>) -> Option<String> {
    size.map(|bytes| bytes.to_string())
}

/// Nothing is changed by a dry run.
fn unless(dry_run: bool, about: About) -> About {
    if dry_run { About::Nothing } else { about }
}

pub(super) fn receive(request: &ReceiveRequest) -> Told {
    let ReceiveRequest { name, dry_run, new_handles, force, sender, resumable, .. } = request;
    let words = Words::of("receive").flag(*dry_run, "-n").flag(*force, "-F");
    let words = words.flag(*new_handles, "--new-handles").flag(*resumable, "-s");
    let set = request.properties.iter().map(|(name, value)| format!("{name}={value}"));
    let words = set.fold(words, |words, set| words.option("-o", Some(set)));
    let left_out = request.exclude.iter();
    let words = left_out.fold(words, |words, name| words.option("-x", Some(name.clone())));
    // Of what is sent again and again, the end is noted.
    let is_nothing = *dry_run || sender.is_some() && !force;
    let about = About::Dataset(name.clone(), Vec::new());
    let told = words.word(name).told(unless(is_nothing, about)).naming(dataset(name));
    // Who may only receive takes nothing away, and brings no dataset into service.
    let is_admins = *force || *new_handles || !request.properties.is_empty();
    let needs = if is_admins { Role::Admin } else { told.needs };
    // A stream does not wait for a second person.
    let guard = if *force { Guard::Never(name.clone()) } else { Guard::Free };
    Told { needs, of: Some(name.clone()), guard, ..told }
}

pub(super) fn give_up_receive(GiveUpReceive { name }: &GiveUpReceive) -> Told {
    let words = Words::of("receive").flag(true, "-A").word(name);
    words.told(About::Dataset(name.clone(), Vec::new())).naming(dataset(name))
}

/// The end of a stream that is received as a dataset; `None`: it is not known any more, or is only
/// checked. `prunes_others`: snapshots go that no replication took.
pub(super) fn end_receive(name: Option<String>, gives_up: bool, prunes_others: bool) -> Told {
    let about = name.clone().map(|name| About::Dataset(name, Vec::new()));
    let words = Words::of("receive").word(&name.unwrap_or_default());
    let words = words.flag(true, if gives_up { "(given up)" } else { "(end)" });
    // Its stream was judged.
    let told = words.told(about.unwrap_or(About::Nothing)).naming([]);
    let needs = if prunes_others { Role::Admin } else { told.needs };
    Told { needs, ..told }
}

/// Snapshots that another server fetches. `is_noted`: the history has it.
pub(super) fn take_pull(TakePull { datasets }: &TakePull, is_noted: bool) -> Told {
    let names: Vec<String> = datasets.iter().map(|name| name.to_string()).collect();
    let about = names.first().filter(|_| is_noted).map(|name| About::snapshots(name));
    let named = named(datasets);
    let told = Words::of("replicate --pull (snapshot)").words(&names);
    let of = names.first().cloned();
    Told { of, ..told.told(about.unwrap_or(About::Nothing)).naming(named) }
}

/// Of what is fetched again and again, the beginning is noted.
pub(super) fn settle_pull(SettlePull { dataset: name, copy, .. }: &SettlePull) -> Told {
    let words = Words::of("replicate --pull (hold)").word(name.as_str()).word(copy.as_str());
    let told = words.told(About::Nothing).naming(dataset(name.as_str()));
    Told { of: Some(name.to_string()), ..told }
}

/// As [`settle_pull`].
pub(super) fn prune_pull(PrunePull { dataset: name, .. }: &PrunePull) -> Told {
    let words = Words::of("replicate --pull (prune)").word(name.as_str());
    let told = words.told(About::Nothing).naming(dataset(name.as_str()));
    Told { of: Some(name.to_string()), ..told }
}

pub(super) fn replicate(request: &ReplicateRequest) -> Told {
    let ReplicateRequest { dataset, target, recursive, snapshot, all, .. } = request;
    let ReplicateRequest { keep, rate_bytes, force, pull, .. } = request;
    let words = Words::of("replicate").flag(*pull, "--pull").flag(*recursive, "-r");
    let words = words.flag(*force, "-F");
    let words = words.flag(*all, "--all").option("--snapshot", snapshot.clone());
    let words = words.option("--keep", bytes(*keep)).option("--rate", bytes(*rate_bytes));
    // Snapshots change here: of the dataset, or of the copy.
    let here = if *pull { target } else { dataset };
    // The target may be in a pool of this server.
    by_force(*force, words.word(dataset).word(target).told(About::snapshots(here)))
}

pub(super) fn stop_replication(request: &StopReplication) -> Told {
    let StopReplication { dataset, target, pull } = request;
    let words = Words::of("replicate").flag(true, "--stop").flag(*pull, "--pull");
    let here = if *pull { target } else { dataset };
    words.word(dataset).word(target).told(About::snapshots(here))
}

pub(super) fn clear_locks(ClearLocks { address, client }: &ClearLocks) -> Told {
    let words = Words::of("locks clear").word(&address.to_string()).words(client);
    words.told(About::Locks(*address))
}

pub(super) fn create_token(request: &CreateToken) -> Told {
    let CreateToken { name, role, expires_s, certificates, datasets } = request;
    let words = Words::of("token create").option("--role", Some(role.to_string()));
    let words = words.option("--expires", expires_s.map(text_s)).certificates(certificates);
    let each = datasets.iter();
    let words = each.fold(words, |words, one| words.option("--dataset", Some(one.to_string())));
    let told = words.word(name).told(About::Token(name.clone()));
    // It could confirm, ask for so much that others cannot, or prune as the feeder of a copy.
    let is_harmless = matches!(role, Role::Metrics | Role::Read);
    if is_harmless { told } else { told.guarded(Guard::All) }
}

pub(super) fn rotate_token(name: &str, request: &RotateToken) -> Told {
    let RotateToken { keep_s, expires_s, certificates } = request;
    let words = Words::of("token rotate")
        .option("--keep", (*keep_s > 0).then(|| format!("{keep_s}s")))
        .option("--expires", expires_s.map(text_s))
        .certificates(certificates.as_deref().unwrap_or_default());
    words.word(name).told(About::Token(name.into()))
}

pub(super) fn bind_token(name: &str, BindToken { certificates }: &BindToken) -> Told {
    let words = Words::of("token bind").flag(certificates.is_empty(), "--none");
    words.certificates(certificates).word(name).told(About::Token(name.into()))
}

pub(super) fn revoke_token(name: &str) -> Told {
    Words::of("token revoke").word(name).told(About::Token(name.into()))
}

/// A decision about an act that waits.
pub(super) fn decide(decision: &str, (number, act): (&str, &str), concerned: Concerned) -> Told {
    Told::new(format!("{decision} {number}: {act}"), About::Waiting(concerned))
}
