//! `aquifer snapshot` and `rollback`, and `destroy` and `rename` of snapshots.

use aquifer_api::client::Client;
use aquifer_api::{
    DestroyBookmarks, DestroySnapshots, MakeBookmark, RenameSnapshot, RollBack, SnapshotsDestroyed,
    TakeSnapshots,
};

use super::pool::confirm_by;
use super::{Output, tell};
use crate::failure::Failure;

/// How snapshots are destroyed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub recursive: bool,
    pub clones: bool,
    pub force: bool,
    pub dry_run: bool,
    pub verbose: bool,
}

pub(super) async fn take(
    client: &Client,
    output: Output,
    recursive: bool,
    names: Vec<String>,
) -> Result<(), Failure> {
    let done = client.ask(&TakeSnapshots { names, recursive }).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn roll_back(
    client: &Client,
    output: Output,
    (destroy_later, force): (bool, bool),
    name: String,
) -> Result<(), Failure> {
    let request = RollBack { name, destroy_later, force };
    output.answer(&client.ask(&request).await?, |_| String::new())
}

pub(super) async fn destroy(
    client: &Client,
    output: Output,
    wish: Wish,
    name: String,
) -> Result<(), Failure> {
    let Wish { recursive, clones, force, dry_run, verbose } = wish;
    let mut request = DestroySnapshots {
        name: name.clone(),
        recursive,
        clones,
        dry_run: true,
        ..DestroySnapshots::default()
    };
    if dry_run || !force {
        // Reports a mistyped name before it asks for confirmation.
        let doomed = client.ask(&request).await?;
        if dry_run {
            return output.answer(&doomed, |doomed| text(doomed, verbose, output, TENSE_WOULD));
        }
        let listed = text(&doomed, verbose, output, TENSE_WILL);
        let question = format!("{listed}Type {name} again to destroy: ");
        confirm_by(&question, "snapshot", &name)?;
        request.upto_txg = doomed.snapshots.iter().map(|info| info.txg).max();
    }
    request.dry_run = false;
    request.confirm = name;
    let done = client.ask(&request).await?;
    let text = |done: &SnapshotsDestroyed| match verbose {
        true => text(done, verbose, output, TENSE_DONE),
        false => String::new(),
    };
    output.answer(&done, text)
}

pub(super) async fn bookmark(
    client: &Client,
    output: Output,
    snapshot: String,
    bookmark: String,
) -> Result<(), Failure> {
    let done = client.ask(&MakeBookmark { snapshot, bookmark }).await?;
    output.answer(&done, |_| String::new())
}

pub(super) async fn destroy_bookmark(
    client: &Client,
    output: Output,
    wish: Wish,
    name: String,
) -> Result<(), Failure> {
    let Wish { recursive, clones, dry_run, .. } = wish;
    if recursive || clones || dry_run {
        return Err(Failure::usage(
            "-r, -R and -n are not for bookmarks, on which nothing depends",
        ));
    }
    // It has no content: nobody is asked.
    let done = client.ask(&DestroyBookmarks { names: vec![name] }).await?;
    output.answer(&done, |_| String::new())
}

/// A snapshot, and all of them together.
type Tense = (&'static str, &'static str);
const TENSE_WOULD: Tense = ("would destroy", "would free");
const TENSE_WILL: Tense = ("destroys", "frees");
const TENSE_DONE: Tense = ("destroyed", "freed");

fn text(doomed: &SnapshotsDestroyed, verbose: bool, output: Output, tense: Tense) -> String {
    let (destroys, frees) = tense;
    let SnapshotsDestroyed { snapshots, free_bytes } = doomed;
    let each = snapshots.iter().filter(|_| verbose);
    let mut text: String = each.map(|info| format!("{destroys} {}\n", info.name)).collect();
    let free = match free_bytes {
        Some(bytes) => output.size(*bytes),
        None => "an unknown amount: the records of it cannot be read".into(),
    };
    let count = match snapshots.len() {
        1 => "1 snapshot".into(),
        count => format!("{count} snapshots"),
    };
    text.push_str(&format!("{destroys} {count}, {frees} {free}\n"));
    text
}

pub(super) async fn rename(
    client: &Client,
    output: Output,
    recursive: bool,
    name: String,
    new: &str,
) -> Result<(), Failure> {
    let new = new_name(&name, new).map_err(Failure::usage)?;
    let done = client.ask(&RenameSnapshot { name, new, recursive }).await?;
    output.answer(&done, |_| String::new())
}

/// Returns the new name of a snapshot, without the name of its dataset or file. Paths of files may
/// have an '@', too.
fn new_name(name: &str, new: &str) -> Result<String, String> {
    let of_it = name.rsplit_once('@').map_or(name, |(of, _)| of);
    match new.rsplit_once('@') {
        Some((of, new)) if of.is_empty() || of == of_it => Ok(new.into()),
        Some(_) => Err(format!("a snapshot stays with its dataset or file: {name} {of_it}@NEW")),
        None => Err(format!("{new:?} is no snapshot: write {of_it}@NEW, or @NEW")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_is_of_the_same_dataset() {
        for (name, new, expected) in [
            ("tank/vms@a", "tank/vms@b", Ok("b")),
            ("tank/vms@a", "@b c", Ok("b c")),
            ("tank/vms@a", "tank@b", Err("stays with its dataset")),
            ("tank/vms:a@b.vhd@c", "tank/vms:a@b.vhd@d", Ok("d")),
            ("tank/vms:a.vhd@c", "tank/vms:b.vhd@c", Err("stays with its dataset or file")),
            ("tank/vms@a", "b", Err("no snapshot: write tank/vms@NEW")),
        ] {
            match (new_name(name, new), expected) {
                (Ok(is), Ok(expected)) => assert_eq!(is, expected),
                (Err(is), Err(expected)) => assert!(is.contains(expected), "{is}"),
                (is, expected) => panic!("{name} {new}: {is:?}, not {expected:?}"),
            }
        }
    }
}
