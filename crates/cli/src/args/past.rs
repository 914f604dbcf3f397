//! `aquifer iostat --history`: the load of the past.

/// Which part of the past is shown, and whose load.
#[derive(Debug, clap::Args)]
pub struct PastArgs {
    /// The load of the past instead, as the pools keep it: of a day, or of so long (`2h`, `31d`).
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1d", conflicts_with_all = ["verbose", "histograms"])]
    pub history: Option<String>,
    /// With --history, up to then instead of now, in UTC: `03:20`, `2027-01-31T03:20`.
    #[arg(long, value_name = "TIME", requires = "history")]
    pub until: Option<String>,
    /// With --history, what clients asked for instead of what disks did.
    #[arg(short = 'c', long, requires = "history", conflicts_with = "disks")]
    pub clients: bool,
    /// With --history, the VM disks that were busiest in that time.
    #[arg(short = 'd', long, requires = "history")]
    pub disks: bool,
}
