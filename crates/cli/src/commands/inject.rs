//! `aquifer inject`: faults of disks, for tests. Only debug builds have it.

use aquifer_api::client::Client;
use aquifer_api::{InjectRequest, On, Share};
use clap::Args;

use super::Output;
use crate::failure::Failure;

/// The faults of a disk.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// This part of the reads fails: 1/100.
    #[arg(long, value_name = "SHARE", value_parser = Share::parse)]
    read_errors: Option<Share>,
    /// This part of the writes fails.
    #[arg(long, value_name = "SHARE", value_parser = Share::parse)]
    write_errors: Option<Share>,
    /// This part of the flushes fails.
    #[arg(long, value_name = "SHARE", value_parser = Share::parse)]
    flush_errors: Option<Share>,
    /// This part of the discards fails.
    #[arg(long, value_name = "SHARE", value_parser = Share::parse)]
    discard_errors: Option<Share>,
    /// This part of the reads returns a page with one wrong bit.
    #[arg(long, value_name = "SHARE", value_parser = Share::parse)]
    rot: Option<Share>,
    /// Every operation takes this much longer.
    #[arg(long, value_name = "MS")]
    delay_ms: Option<u64>,
    /// Operations wait until the faults are cleared, and are carried out then.
    #[arg(long)]
    hang: bool,
    /// The disk is gone.
    #[arg(long)]
    vanish: bool,
    /// First, forget the faults that the disk has.
    #[arg(long)]
    clear: bool,
    /// The pool.
    name: String,
    /// The disk.
    disk: String,
}

pub(super) async fn inject(
    client: &Client,
    output: Output,
    args: InjectArgs,
) -> Result<(), Failure> {
    let InjectArgs { read_errors, write_errors, flush_errors, discard_errors, .. } = args;
    let InjectArgs { rot, delay_ms, hang, vanish, clear, name, disk, .. } = args;
    let request = InjectRequest {
        disk,
        clear,
        read_errors,
        write_errors,
        flush_errors,
        discard_errors,
        rot,
        delay_ms,
        hang,
        vanish,
    };
    if request == (InjectRequest { disk: request.disk.clone(), ..InjectRequest::default() }) {
        return Err(Failure::usage("name a fault, or --clear"));
    }
    let done = client.ask(&On::new(&name, request)).await?;
    output.answer(&done, |_| String::new())
}
