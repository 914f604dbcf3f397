//! `aquifer pool add`, `remove`, `attach`, `detach`, `replace`, `offline`, `online`: the disks of a
//! pool in service.

use aquifer_api::client::Client;
use aquifer_api::{AddVdevs, DiskRequest, PoolDone, ReplaceDisk};

use super::pool::{Wish, layout};
use super::{Output, tell};
use crate::args::vdevs;
use crate::failure::Failure;

pub(super) async fn add(
    client: &Client,
    output: Output,
    wish: Wish,
    disks: &[String],
) -> Result<(), Failure> {
    let (vdevs, logs) = vdevs(disks).map_err(Failure::usage)?;
    let Wish { force, dry_run, create_size: create_bytes, name, .. } = wish;
    let request = AddVdevs { vdevs, logs, force, dry_run, create_bytes };
    let added = client.add_vdevs(&name, &request).await?;
    output.answer(&added, |added| match added.dry_run {
        true => format!("would add to pool {name:?}:\n\n{}", layout(added, output)),
        false => String::new(),
    })?;
    tell(output, &added.notes);
    Ok(())
}

pub(super) async fn remove(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.remove_disk(name, &DiskRequest { disk }).await?)
}

pub(super) async fn replace(
    client: &Client,
    output: Output,
    name: &str,
    request: ReplaceDisk,
) -> Result<(), Failure> {
    done(output, &client.replace_disk(name, &request).await?)
}

pub(super) async fn attach(
    client: &Client,
    output: Output,
    name: &str,
    request: ReplaceDisk,
) -> Result<(), Failure> {
    done(output, &client.attach_disk(name, &request).await?)
}

pub(super) async fn detach(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.detach_disk(name, &DiskRequest { disk }).await?)
}

pub(super) async fn offline(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.offline_disk(name, &DiskRequest { disk }).await?)
}

pub(super) async fn online(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.online_disk(name, &DiskRequest { disk }).await?)
}

fn done(output: Output, done: &PoolDone) -> Result<(), Failure> {
    output.answer(done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}
