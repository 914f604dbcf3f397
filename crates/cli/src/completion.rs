//! Completion by a shell, beside commands and options: names that the daemon knows.
//!
//! Invariant: completing a word changes nothing, prints nothing of its own, and ends after
//! [`PATIENCE`]. A daemon that does not answer, or refuses, has no names.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use aquifer_api::client::Client;
use aquifer_api::{
    BookmarkQuery, ConfirmationsQuery, DatasetQuery, On, PoolQuery, PoolsQuery, SnapshotQuery,
};
use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

use crate::args::{API_SOCKET, ApiArgs};
use crate::commands::client;
use crate::failure::Failure;

/// Longest wait for the daemon. Somebody looks at the cursor meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kind of thing that a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Pool,
    /// A disk of a pool, as `pool status` shows it.
    Disk,
    /// A disk that is in no pool yet, or a word before it.
    NewDisk,
    Dataset,
    /// A dataset, and behind an `@` one of its snapshots, behind a `#` one of its bookmarks.
    Snapshot,
    Property,
    /// `PROPERTY=`, of those that can be set.
    Assignment,
    /// Word of `aquifer set`: an assignment, or a dataset.
    AssignmentOrDataset,
    /// The number of an act that waits for a second person.
    Waiting,
}

/// The command line with completions of names.
#[must_use]
pub fn completing(command: Command) -> Command {
    below(command, &[])
}

fn below(command: Command, path: &[&str]) -> Command {
    let command = command.mut_args(|arg| match named(path, &arg) {
        Some(named) => {
            arg.add(ArgValueCompleter::new(move |current: &OsStr| named.candidates(current)))
        }
        None => arg,
    });
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        below(command, &[path, &[name.as_str()]].concat())
    })
}

/// Finds the kind of thing that an argument of a command names; `None`: nothing that a daemon
/// lists.
fn named(path: &[&str], arg: &Arg) -> Option<Named> {
    let id = arg.get_id().as_str();
    if !arg.is_positional() {
        return (id == "properties").then_some(Named::Assignment);
    }
    Some(match (path, id) {
        // What does not exist yet, or is not in service.
        (["pool", "create" | "import"], "name" | "pool") | (["token", ..], _) => return None,
        (["pool", "create" | "add"], "disks") | (["pool", ..], "new") => Named::NewDisk,
        (["pool", ..], "disk" | "disks") => Named::Disk,
        (["pool", ..], "name") | (["inject"], "pool") | (["iostat"], "words") => Named::Pool,
        (["inject"], "disk") => Named::Disk,
        (["confirm"], "number") => Named::Waiting,
        (["set"], "words") => Named::AssignmentOrDataset,
        (_, "property" | "properties") => Named::Property,
        (["snapshot" | "hold" | "release"], "snapshots") => Named::Snapshot,
        (["clone" | "rollback" | "send" | "bookmark"], "snapshot") | (["holds"], "names") => {
            Named::Snapshot
        }
        (["diff"], "old" | "new") | (["rename"], "name" | "new") => Named::Snapshot,
        (["destroy"], "dataset") => Named::Snapshot,
        (["clone"], "names") | (_, "dataset" | "datasets") => Named::Dataset,
        _ => return None,
    })
}

impl Named {
    fn candidates(self, current: &OsStr) -> Vec<CompletionCandidate> {
        let mut paths = Vec::new();
        if self == Named::NewDisk {
            paths = PathCompleter::file().complete(current);
        }
        let Some(current) = current.to_str() else { return paths };
        let words: Vec<String> =
            std::env::args_os().filter_map(|word: OsString| word.into_string().ok()).collect();
        let names = self.names(current, &words);
        let begin = names.into_iter().filter(|name| name.starts_with(current));
        begin.map(CompletionCandidate::new).chain(paths).collect()
    }

    /// The names, of which the shell is shown those that begin as the word does.
    fn names(self, current: &str, words: &[String]) -> Vec<String> {
        if self == Named::NewDisk {
            return ["mirror", "log", "spare"].map(String::from).into();
        }
        let Ok(client) = client(&daemon(words)) else { return Vec::new() };
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return Vec::new();
        };
        let asked = runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.ask(&client, current, words)).await
        });
        asked.ok().and_then(Result::ok).unwrap_or_default()
    }

    async fn ask(
        self,
        client: &Client,
        current: &str,
        words: &[String],
    ) -> Result<Vec<String>, Failure> {
        match self {
            Named::NewDisk => Ok(Vec::new()),
            Named::Pool => pools(client).await,
            Named::Disk => disks(client, words).await,
            Named::Dataset => datasets(client).await,
            Named::Snapshot => snapshots(client, current).await,
            Named::Property => properties(client, false).await,
            Named::Assignment => properties(client, true).await,
            Named::AssignmentOrDataset => {
                let mut all = properties(client, true).await?;
                all.extend(datasets(client).await?);
                Ok(all)
            }
            Named::Waiting => {
                let waiting = client.ask(&ConfirmationsQuery).await?.into_iter();
                Ok(waiting.map(|of| of.number.to_string()).collect())
            }
        }
    }
}

/// The daemon that the words ask.
fn daemon(words: &[String]) -> ApiArgs {
    let value = |option: &str| {
        let mut behind = words.iter().skip_while(|word| *word != option).skip(1);
        let joined = || words.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
        behind.next().map(String::as_str).or_else(joined)
    };
    ApiArgs {
        api_socket: PathBuf::from(value("--api-socket").unwrap_or(API_SOCKET)),
        api: value("--api").map(String::from),
        api_certificate: value("--api-certificate").map(PathBuf::from),
        api_token: value("--api-token").map(PathBuf::from),
        api_client_certificate: value("--api-client-certificate").map(PathBuf::from),
        api_client_key: value("--api-client-key").map(PathBuf::from),
    }
}

async fn pools(client: &Client) -> Result<Vec<String>, Failure> {
    Ok(client.ask(&PoolsQuery).await?.into_iter().map(|pool| pool.name).collect())
}

/// Disks of the pool that the words name; of all pools if they name none.
async fn disks(client: &Client, words: &[String]) -> Result<Vec<String>, Failure> {
    let mut pools = pools(client).await?;
    if pools.iter().any(|pool| words.contains(pool)) {
        pools.retain(|pool| words.contains(pool));
    }
    let mut disks = Vec::new();
    for pool in pools {
        let status = client.ask(&On::new(&pool, PoolQuery)).await?;
        for vdev in status.vdevs {
            if vdev.leaves.len() > 1 {
                disks.push(vdev.name);
            }
            disks.extend(vdev.leaves.into_iter().map(|leaf| leaf.path));
        }
        disks.extend(status.spares.into_iter().map(|spare| spare.path));
    }
    Ok(disks)
}

async fn datasets(client: &Client) -> Result<Vec<String>, Failure> {
    let all = client.ask(&DatasetQuery::default()).await?;
    Ok(all.into_iter().map(|dataset| dataset.name).collect())
}

async fn snapshots(client: &Client, current: &str) -> Result<Vec<String>, Failure> {
    if let Some((dataset, _)) = current.split_once('#') {
        let query = SnapshotQuery {
            name: Some(dataset.to_owned()),
            recursive: false,
            ..Default::default()
        };
        let all = client.ask(&BookmarkQuery(query)).await?;
        return Ok(all.into_iter().map(|bookmark| bookmark.name).collect());
    }
    let Some((dataset, _)) = current.split_once('@') else { return datasets(client).await };
    let query =
        SnapshotQuery { name: Some(dataset.to_owned()), recursive: false, ..Default::default() };
    let all = client.snapshots(&query).await?;
    Ok(all.into_iter().map(|snapshot| snapshot.name).collect())
}

/// The properties that datasets have, those of users too; those that can be set as `PROPERTY=`.
async fn properties(client: &Client, assigned: bool) -> Result<Vec<String>, Failure> {
    let all = client.ask(&DatasetQuery::default()).await?;
    let found = all.into_iter().flat_map(|found| found.properties);
    let wanted = found.filter(|property| !assigned || property.source != "-");
    let names: BTreeSet<String> = wanted.map(|property| property.name).collect();
    let end = if assigned { "=" } else { "" };
    Ok(names.into_iter().map(|name| name + end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn the_daemon_that_the_words_name_is_asked() {
        let asked = daemon(&words("aquifer -- aquifer --api-socket /x pool status"));
        assert_eq!((asked.api_socket, asked.api), ("/x".into(), None));
        let asked = daemon(&words("aquifer pool status --api=https://a:1 --api-token t"));
        assert_eq!(asked.api_socket, PathBuf::from(API_SOCKET));
        assert_eq!(asked.api.as_deref(), Some("https://a:1"));
        assert_eq!(asked.api_token, Some("t".into()));
    }

    #[test]
    fn without_a_daemon_nothing_is_listed() {
        let here = words("aquifer --api-socket /nonexistent/socket pool status");
        for named in [Named::Pool, Named::Disk, Named::Snapshot, Named::AssignmentOrDataset] {
            assert_eq!(named.names("", &here), Vec::<String>::new(), "{named:?}");
        }
        assert!(Named::NewDisk.names("", &here).contains(&"mirror".to_owned()));
    }
}
