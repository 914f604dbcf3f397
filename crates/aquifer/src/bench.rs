//! `aquifer bench`: what a datastore gives its clients, by names that people compare with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aquifer_cli::{Failure, Options, Output, client};
use aquifer_doctor::bench::{BYTES_MIN, Figures, LIKES, Like, Wanted, measure};
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Arguments of `aquifer bench`: what is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// As which program.
    #[arg(long, value_name = "PROGRAM", value_parser = likes())]
    pub like: Like,
    /// How long each run takes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Size of the file that is written and removed, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(BYTES_MIN >> 20..=1 << 20))]
    pub size: u64,
    /// Full name of an exported dataset.
    pub dataset: String,
}

fn likes() -> impl TypedValueParser<Value = Like> {
    PossibleValuesParser::new(LIKES.map(|like| like.name)).try_map(|name| {
        LIKES.into_iter().find(|like| like.name == name).ok_or("no program that is known")
    })
}

/// Measures, and prints a table.
pub(crate) async fn bench(options: &Options, args: BenchArgs) -> Result<(), Failure> {
    let (client, output) = (client(&options.api)?, Output::of(options));
    let stop = Arc::new(AtomicBool::new(false));
    crate::interrupt::stops(&stop)?;
    let BenchArgs { like, seconds, size, dataset } = args;
    let wanted = Wanted { like, dataset, seconds, bytes: size << 20 };
    let figures = measure(&client, wanted, stop).await.map_err(Failure::failed)?;
    output.answer(&figures, |figures| figures.iter().fold(header(), |text, one| text + &line(one)))
}

fn header() -> String {
    let names = ["OPS/S", "MB/S", "MEAN ms", "P50 ms", "P99 ms", "MAX ms"];
    let columns = names.map(|name| format!("{name:>8}")).join(" ");
    format!("{:<26} {columns}\n", "RUN")
}

fn line(figures: &Figures) -> String {
    let hundredths = |value: u64, unit: u64| {
        let of = value.saturating_mul(100) / unit;
        format!("{:>8}", format!("{}.{:02}", of / 100, of % 100))
    };
    let times = [figures.mean_ns, figures.p50_ns, figures.p99_ns, figures.max_ns];
    let times = times.map(|ns| hundredths(ns, 1_000_000)).join(" ");
    let bytes = hundredths(figures.bytes_per_s, 1_000_000);
    format!("{:<26} {:>8} {bytes} {times}\n", figures.name, figures.ops_per_s)
}
