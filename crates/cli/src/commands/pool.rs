//! `aquifer pool`, except for its status.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use aquifer_api::client::Client;
use aquifer_api::shown::lines_shown;
use aquifer_api::{
    ClearDisk, ClearPool, CreatePool, DestroyPool, DiskRequest, ExportPool, FoundPool, FoundVdev,
    Health, ImportRequest, LeafState, On, PoolCreated, PoolQuery, PoolSummary, PoolsQuery,
    ScanRequest, ScanResult, VdevClass, VdevKind, VdevLayout,
};

use super::{Output, tell};
use crate::args::{CreateArgs, Vdevs, vdevs};
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn create(
    client: &Client,
    output: Output,
    wish: CreateArgs,
) -> Result<(), Failure> {
    let Vdevs { data: vdevs, logs, spares, caches } = vdevs(&wish.disks).map_err(Failure::usage)?;
    if vdevs.is_empty() {
        let why = "a pool needs disks for data beside those of the log: A log B";
        return Err(Failure::usage(why));
    }
    let request = CreatePool {
        vdevs,
        logs,
        spares,
        caches,
        name: wish.name,
        properties: wish.properties.into_iter().collect(),
        force: wish.force,
        dry_run: wish.dry_run,
        create_bytes: wish.create_size,
        held_until_s: wish.held_until,
    };
    let created = client.ask(&request).await?;
    output.answer(&created, |created| match created.dry_run {
        true => would_create(created, output),
        false => String::new(),
    })?;
    tell(output, &created.notes);
    Ok(())
}

fn would_create(created: &PoolCreated, output: Output) -> String {
    let name = &created.name;
    let head = format!("would create pool {name:?} with the following layout:\n\n");
    head + &layout(created, output)
}

/// The vdevs that would be made.
pub(super) fn layout(created: &PoolCreated, output: Output) -> String {
    let mut text = format!("\t{}\n", created.name);
    let logs = (!created.logs.is_empty()).then(|| "\tlogs\n".to_string());
    text.extend(created.vdevs.iter().map(|vdev| vdev_text(vdev, output)));
    text.extend(logs);
    text.extend(created.logs.iter().map(|vdev| vdev_text(vdev, output)));
    text.extend((!created.spares.is_empty()).then(|| "\tspares\n".to_string()));
    text.extend(created.spares.iter().map(|disk| format!("\t  {disk}\n")));
    text.extend((!created.caches.is_empty()).then(|| "\tcache\n".to_string()));
    text.extend(created.caches.iter().map(|disk| format!("\t  {disk}\n")));
    text
}

fn vdev_text(vdev: &VdevLayout, output: Output) -> String {
    let size = output.size(vdev.disk_bytes);
    let each = |indent: &str, size: &str| -> String {
        vdev.disks.iter().map(|disk| format!("{indent}{disk}{size}\n")).collect()
    };
    match vdev.kind {
        VdevKind::Mirror => format!("\t  mirror  {size}\n{}", each("\t    ", "")),
        VdevKind::Single => each("\t  ", &format!("  {size}")),
    }
}

pub(super) async fn scan(
    client: &Client,
    output: Output,
    places: Vec<PathBuf>,
) -> Result<(), Failure> {
    let places = absolute(client, places)?;
    let again: String = places.iter().map(|place| format!(" -d {}", place.display())).collect();
    let found = client.ask(&ScanRequest { places }).await?;
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
    let lost = |vdev: &FoundVdev| vdev.class == VdevClass::Log && vdev.health == Health::Unavail;
    let clean = match pool.clean {
        true => "it was exported",
        false if pool.vdevs.iter().any(lost) => {
            "it was not exported, and a log device is missing: if the log lay there, the import \
             asks for it, or for --missing-log"
        }
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
    for (head, vdev) in data_first(&pool.vdevs, |vdev| vdev.class) {
        if head {
            table.row(vec!["\tlogs".into(), String::new()]);
        }
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
    mut request: ImportRequest,
) -> Result<(), Failure> {
    request.places = absolute(client, request.places)?;
    let done = client.ask(&request).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn export(
    client: &Client,
    output: Output,
    name: &str,
    force: bool,
) -> Result<(), Failure> {
    let done = client.ask(&On::new(name, ExportPool { force })).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn clear(
    client: &Client,
    output: Output,
    name: &str,
    disk: Option<String>,
) -> Result<(), Failure> {
    let done = match disk {
        Some(disk) => client.ask(&On::new(name, ClearDisk(DiskRequest { disk }))).await?,
        None => client.ask(&On::new(name, ClearPool)).await?,
    };
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn list(
    client: &Client,
    output: Output,
    name: Option<String>,
) -> Result<(), Failure> {
    let mut pools = client.ask(&PoolsQuery).await?;
    if let Some(name) = name {
        pools.retain(|pool| pool.name == name);
        if pools.is_empty() {
            // The daemon has the best message for an unknown pool.
            client.ask(&On::new(&name, PoolQuery)).await?;
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

pub(super) fn percent(part: u64, of: u64) -> String {
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
        // Reports a mistyped name before it asks for confirmation.
        client.ask(&On::new(name, PoolQuery)).await?;
        confirm("pool", name)?;
    }
    let done = client.ask(&On::new(name, DestroyPool { confirm: name.into() })).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

/// Asks the user to type the name of the pool or dataset to destroy again.
pub(super) fn confirm(what: &str, name: &str) -> Result<(), Failure> {
    let loss = format!("Everything in {what} {name:?} will be lost.");
    confirm_by(&format!("{loss} Type its name again to destroy it: "), what, name)
}

/// Asks for the name by a question.
pub(super) fn confirm_by(question: &str, what: &str, name: &str) -> Result<(), Failure> {
    match ask(&lines_shown(question))?.as_str() {
        typed if typed == name => Ok(()),
        "" => Err(Failure::failed(format!(
            "{what} {name:?} was not destroyed: nobody has typed its name; without a terminal, add \
             --force"
        ))),
        typed => Err(Failure::failed(format!(
            "{what} {name:?} was not destroyed: {typed:?} is not its name"
        ))),
    }
}

/// Asks the user for a line.
pub(super) fn ask(question: &str) -> Result<String, Failure> {
    eprint!("{question}");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::failed(format!("no answer can be read: {error}")))?;
    Ok(line.trim().to_string())
}

/// The daemon has another working directory, and may be on another machine.
fn absolute(client: &Client, places: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let each = |place: PathBuf| {
        if !client.is_local() {
            let why = "is not absolute; -d is a path of the server's";
            let refused = || Failure::usage(format!("{}: {why}", place.display()));
            return if place.is_absolute() { Ok(place) } else { Err(refused()) };
        }
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

/// Vdevs in the order of output: those for data, then those of the log. With each, whether the
/// heading of the log comes before it.
pub(super) fn data_first<T>(vdevs: &[T], class: fn(&T) -> VdevClass) -> Vec<(bool, &T)> {
    let of = |wanted| vdevs.iter().filter(move |vdev| class(vdev) == wanted);
    let logs = of(VdevClass::Log).enumerate().map(|(at, vdev)| (at == 0, vdev));
    of(VdevClass::Data).map(|vdev| (false, vdev)).chain(logs).collect()
}

/// A state in the API's word for it.
pub(super) fn word<T: serde::Serialize>(state: T) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".into(),
    }
}
