//! `aquifer pool`, but for its status.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use aquifer_admin::api::{
    CreatePool, DestroyPool, FoundPool, ImportRequest, LeafState, PoolCreated, PoolSummary,
    ScanRequest, ScanResult, VdevKind,
};
use aquifer_admin::client::Client;

use super::{Output, tell};
use crate::args::vdevs;
use crate::failure::Failure;
use crate::table::Table;

/// What `pool create` was told beside the disks.
#[derive(Debug)]
pub(super) struct Wish {
    pub force: bool,
    pub dry_run: bool,
    pub properties: Vec<(String, String)>,
    pub create_size: Option<u64>,
    pub name: String,
}

pub(super) async fn create(
    client: &Client,
    output: Output,
    wish: Wish,
    disks: &[String],
) -> Result<(), Failure> {
    let request = CreatePool {
        vdevs: vdevs(disks).map_err(Failure::usage)?,
        name: wish.name,
        properties: wish.properties.into_iter().collect(),
        force: wish.force,
        dry_run: wish.dry_run,
        create_bytes: wish.create_size,
    };
    let created = client.create_pool(&request).await?;
    output.answer(&created, |created| match created.dry_run {
        true => would_create(created, output),
        false => String::new(),
    })?;
    tell(output, &created.notes);
    Ok(())
}

fn would_create(created: &PoolCreated, output: Output) -> String {
    let name = &created.name;
    let mut text = format!("would create pool {name:?} with the following layout:\n\n\t{name}\n");
    for vdev in &created.vdevs {
        let indent = match vdev.kind {
            VdevKind::Mirror => {
                text.push_str(&format!("\t  mirror  {}\n", output.size(vdev.disk_bytes)));
                "\t    "
            }
            VdevKind::Single => "\t  ",
        };
        for disk in &vdev.disks {
            let size = match vdev.kind {
                VdevKind::Mirror => String::new(),
                VdevKind::Single => format!("  {}", output.size(vdev.disk_bytes)),
            };
            text.push_str(&format!("{indent}{disk}{size}\n"));
        }
    }
    text
}

pub(super) async fn scan(
    client: &Client,
    output: Output,
    places: Vec<PathBuf>,
) -> Result<(), Failure> {
    let places = absolute(places)?;
    let again: String = places.iter().map(|place| format!(" -d {}", place.display())).collect();
    let found = client.scan(&ScanRequest { places }).await?;
    output.answer(&found, |found| scanned(found, &again))?;
    match found.pools.is_empty() && !output.json {
        true => Err(Failure::failed(
            "no pool was found that could be imported; -d DIR looks elsewhere, image files are \
             found only so",
        )),
        false => Ok(()),
    }
}

fn scanned(found: &ScanResult, places: &str) -> String {
    let mut text: Vec<String> = found.pools.iter().map(|pool| found_pool(pool, places)).collect();
    text.extend(found.refused.iter().map(|refused| format!("  skip: {refused}\n")));
    text.join("\n")
}

fn found_pool(pool: &FoundPool, places: &str) -> String {
    let clean = match pool.clean {
        true => "it was exported",
        false => "it was not exported: the import replays its log, unless another machine uses it",
    };
    let (name, guid) = (&pool.name, &pool.guid);
    let health = word(pool.health);
    let mut text = format!(
        "  pool: {name}\n    id: {guid}\n state: {health}\nstatus: {clean}\naction: aquifer pool \
         import{places} {name}\nconfig:\n\n"
    );
    let mut table = Table::new(&["", ""]);
    table.row(vec![format!("\t{name}"), health]);
    for vdev in &pool.vdevs {
        if vdev.kind == VdevKind::Mirror {
            table.row(vec![format!("\t  {}", vdev.name), word(vdev.health)]);
        }
        let indent = if vdev.kind == VdevKind::Mirror { "\t    " } else { "\t  " };
        for (path, state) in &vdev.leaves {
            table.row(vec![format!("{indent}{path}"), word::<LeafState>(*state)]);
        }
    }
    text.extend(table.text(false).lines().skip(1).map(|line| format!("{line}\n")));
    text
}

pub(super) async fn import(
    client: &Client,
    output: Output,
    places: Vec<PathBuf>,
    rewind: u64,
    discard_log: bool,
    pool: String,
) -> Result<(), Failure> {
    let places = absolute(places)?;
    let request = ImportRequest { pool, places, rewind, discard_log };
    let done = client.import_pool(&request).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn export(client: &Client, output: Output, name: &str) -> Result<(), Failure> {
    let done = client.export_pool(name).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn list(
    client: &Client,
    output: Output,
    name: Option<String>,
) -> Result<(), Failure> {
    let mut pools = client.pools().await?;
    if let Some(name) = name {
        pools.retain(|pool| pool.name == name);
        if pools.is_empty() {
            // The daemon says it best.
            client.pool(&name).await?;
        }
    }
    output.answer(&pools, |pools| list_text(pools, output))
}

fn list_text(pools: &[PoolSummary], output: Output) -> String {
    if pools.is_empty() && !output.script {
        return "no pools: `aquifer pool create` makes one, `aquifer pool import` finds one\n"
            .into();
    }
    let mut table = Table::new(&["NAME", ">SIZE", ">ALLOC", ">FREE", ">CAP", "HEALTH"]);
    for pool in pools {
        let numbers = match pool.size_bytes {
            0 => ["-".to_string(), "-".into(), "-".into(), "-".into()],
            size => [
                output.size(size),
                output.size(pool.allocated_bytes),
                output.size(pool.free_bytes),
                percent(pool.allocated_bytes, size),
            ],
        };
        let health = word(pool.health);
        table.row([vec![pool.name.clone()], numbers.to_vec(), vec![health]].concat());
    }
    output.table(&table)
}

fn percent(part: u64, of: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(of.max(1));
    format!("{percent}%")
}

pub(super) async fn destroy(
    client: &Client,
    output: Output,
    force: bool,
    name: &str,
) -> Result<(), Failure> {
    if !force {
        // Somebody who mistyped it is told so before he is asked.
        client.pool(name).await?;
        confirm("pool", name)?;
    }
    let done = client.destroy_pool(name, &DestroyPool { confirm: name.into() }).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

/// Has the name of what is to be destroyed, a pool or a dataset, typed again.
pub(super) fn confirm(what: &str, name: &str) -> Result<(), Failure> {
    eprint!("Everything in {what} {name:?} will be lost. Type its name again to destroy it: ");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::failed(format!("no answer can be read: {error}")))?;
    match line.trim() {
        typed if typed == name => Ok(()),
        typed => Err(Failure::failed(format!(
            "{what} {name:?} was not destroyed: {typed:?} is not its name"
        ))),
    }
}

/// The daemon has another working directory.
fn absolute(places: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let each = |place: PathBuf| {
        let absolute = std::path::absolute(&place);
        let absolute = absolute.map_err(|error| unusable(&place, &error))?;
        match absolute.try_exists() {
            Ok(true) => Ok(absolute),
            Ok(false) => Err(Failure::failed(format!("{}: does not exist", place.display()))),
            Err(error) => Err(unusable(&place, &error)),
        }
    };
    places.into_iter().map(each).collect()
}

fn unusable(place: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", place.display()))
}

/// A state in the API's own word.
pub(super) fn word<T: serde::Serialize>(state: T) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".into(),
    }
}
