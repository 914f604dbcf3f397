//! The options by which a daemon is found, and what it is shown.

use std::path::PathBuf;

use super::API_SOCKET;

/// Which daemon is asked.
#[derive(Debug, clap::Args)]
pub struct ApiArgs {
    /// The daemon's socket.
    #[arg(long, global = true, value_name = "PATH", default_value = API_SOCKET)]
    pub api_socket: PathBuf,
    /// A daemon on another machine instead: https://HOST:PORT.
    #[arg(long, global = true, value_name = "URL")]
    pub api: Option<String>,
    /// The certificate that it must show, or its authority's (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    pub api_certificate: Option<PathBuf>,
    /// The file with its token.
    #[arg(long, global = true, value_name = "FILE")]
    pub api_token: Option<PathBuf>,
    /// The certificate that it is shown, if it asks for one (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    pub api_client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, global = true, value_name = "FILE")]
    pub api_client_key: Option<PathBuf>,
}
