//! `aquifer token`.

use std::path::Path;

use aquifer_api::keys::{parse_fingerprint, read_fingerprint};
use aquifer_api::time::{now_s, parse_date, parse_span};
use aquifer_api::{DatasetName, Role};
use clap::{ArgGroup, Subcommand};

/// Acts on tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, this once.
    Create {
        /// Role of the token: metrics, read, operator or admin, each of which may do what those
        /// before it may; or receive, or send, which are for servers that make copies.
        #[arg(long, value_parser = role)]
        role: Role,
        /// When it ends: in 90d, 12h, or at the beginning of 2027-01-31. [default: never]
        #[arg(long, value_name = "SPAN|DATE", value_parser = end)]
        expires: Option<u64>,
        /// Bind it to a certificate: it counts only on connections whose client shows this one and
        /// has its key. A file (PEM), or its SHA-256 fingerprint; may be given several times.
        #[arg(long = "certificate", value_name = "FILE|FINGERPRINT", value_parser = fingerprint)]
        certificates: Vec<String>,
        /// Bind it to a dataset: it counts for this one and what lies below it alone; may be given
        /// several times. For the roles receive, send (which needs it), read and operator.
        /// [default: all]
        #[arg(long = "dataset", value_name = "DATASET")]
        datasets: Vec<DatasetName>,
        /// Name of the token.
        name: String,
    },
    /// List tokens.
    List,
    /// Bind a token to other certificates than before; the token stays.
    #[command(group = ArgGroup::new("to").args(["certificates", "none"]).required(true))]
    Bind {
        /// A certificate with which it counts from now on: a file (PEM), or its SHA-256
        /// fingerprint; may be given several times.
        #[arg(long = "certificate", value_name = "FILE|FINGERPRINT", value_parser = fingerprint)]
        certificates: Vec<String>,
        /// To none: it counts on each connection.
        #[arg(long)]
        none: bool,
        /// The token.
        name: String,
    },
    /// End a token, at once.
    Revoke {
        /// The token.
        name: String,
    },
    /// Put another token in the place of one, and print it, this once.
    Rotate {
        /// How long the one before still holds, such as 1h. [default: not at all]
        #[arg(long, value_name = "SPAN", value_parser = span)]
        keep: Option<u64>,
        /// When the new one ends. [default: when the one before would have]
        #[arg(long, value_name = "SPAN|DATE", value_parser = end)]
        expires: Option<u64>,
        /// Bind the new one to this certificate, as in `create`. [default: to those of the one
        /// before]
        #[arg(long = "certificate", value_name = "FILE|FINGERPRINT", value_parser = fingerprint)]
        certificates: Vec<String>,
        /// The token.
        name: String,
    },
}

/// A certificate's fingerprint, or that of the first one in a file.
fn fingerprint(text: &str) -> Result<String, String> {
    let of_file = || read_fingerprint(Path::new(text)).map_err(|error| error.to_string());
    parse_fingerprint(text).map_or_else(of_file, Ok)
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.name() == text);
    found.ok_or_else(|| {
        format!("{text:?} is no role: metrics, receive, send, read, operator, admin")
    })
}

fn span(text: &str) -> Result<u64, String> {
    parse_span(text).ok_or_else(|| format!("{text:?} is no time: say 90d, 12h, 30m"))
}

/// A time in seconds since 1970.
pub(super) fn end(text: &str) -> Result<u64, String> {
    let in_a_while = parse_span(text).and_then(|span_s| now_s().checked_add(span_s));
    in_a_while
        .or_else(|| parse_date(text))
        .ok_or_else(|| format!("{text:?} is no time: say 90d, 12h, or 2027-01-31"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_span_from_now_or_a_day() {
        let week = end("1w").unwrap();
        assert!((week - now_s()).abs_diff(604_800) <= 1, "{week}");
        assert_eq!(end("2027-01-31"), Ok(1_801_353_600));
        for wrong in ["", "soon", "2027-02-30", "5", "18446744073709551615s"] {
            assert!(end(wrong).is_err(), "{wrong}");
        }
        assert_eq!((role("read"), span("1h")), (Ok(Role::Read), Ok(3600)));
        assert!(
            role("root").unwrap_err().contains("metrics, receive, send, read, operator, admin")
        );
    }
}
