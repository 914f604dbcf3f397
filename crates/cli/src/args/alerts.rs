//! `aquifer alerts`.

use clap::Subcommand;

/// Acts on alerts.
#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// Send a message that says it is a test, and say whether it went out.
    Test {
        /// By this outlet. [default: by all]
        outlet: Option<String>,
    },
}
