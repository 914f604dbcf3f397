//! `aquifer doctor`: what hypervisors will meet at a server, found out from this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aquifer_cli::{Failure, Options, Output, client};
use aquifer_doctor::{Asked, examine};

/// Arguments of `aquifer doctor`: what is looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Each step of each client, and what is as it should be.
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Replay clients at this dataset alone; else at all that are exported.
    #[arg(long, value_name = "DATASET")]
    pub dataset: Option<String>,
    /// A hypervisor's name or address: what exports answer to it, and the way to it.
    pub host: Option<String>,
}

/// Says what hypervisors will meet. Fails if one cannot work.
pub(crate) async fn doctor(options: &Options, args: DoctorArgs) -> Result<(), Failure> {
    let (client, output) = (client(&options.api)?, Output::of(options));
    let stop = Arc::new(AtomicBool::new(false));
    crate::interrupt::stops(&stop)?;
    let asked = Asked { host: args.host, dataset: args.dataset };
    let report = examine(&client, &asked, Arc::clone(&stop)).await;
    output.answer(&report, |report| report.text(args.verbose))?;
    match report.is_well() && !stop.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}
