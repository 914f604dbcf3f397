//! Where audit lines go.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Destinations of audit lines. Empty means "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A file.
    pub file: PathBuf,
    /// A syslog, over TLS.
    pub syslog: SyslogSettings,
}

/// A syslog that takes messages over TLS (RFC 5425).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyslogSettings {
    /// `HOST:PORT`. Its certificate must be of that host.
    pub server: String,
    /// A PEM file with the authority that signed the certificate.
    pub authority: PathBuf,
}

impl Settings {
    /// The file, if there is to be one.
    pub fn file(&self) -> Option<&Path> {
        Some(self.file.as_path()).filter(|path| !path.as_os_str().is_empty())
    }

    /// The syslog, if there is to be one.
    pub fn syslog(&self) -> Option<&SyslogSettings> {
        Some(&self.syslog).filter(|of| **of != SyslogSettings::default())
    }

    /// Fails if they make no sense.
    ///
    /// # Errors
    /// Which one, and why.
    pub fn check(&self) -> Result<(), String> {
        if self.file().is_some_and(|path| !path.is_absolute()) {
            return Err(format!("audit.file: {:?}: say where by an absolute path", self.file));
        }
        let Some(SyslogSettings { server, authority }) = self.syslog() else { return Ok(()) };
        let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(format!("audit.syslog.server: {server:?}: say HOST:PORT"));
        }
        if !authority.is_absolute() {
            return Err("audit.syslog.authority: name a PEM file, by an absolute path".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_whole_or_not_set() {
        let of = |file: &str, server: &str, authority: &str| Settings {
            file: file.into(),
            syslog: SyslogSettings { server: server.into(), authority: authority.into() },
        };
        for good in [("", "", ""), ("/a", "", ""), ("/a", "[::1]:6514", "/ca"), ("", "h:1", "/c")] {
            assert_eq!(of(good.0, good.1, good.2).check(), Ok(()), "{good:?}");
        }
        for bad in [
            ("a", "", ""),
            ("", "h", "/c"),
            ("", ":1", "/c"),
            ("", "h:x", "/c"),
            ("", "h:1", ""),
            ("", "", "/c"),
            ("", "h:1", "c"),
        ] {
            assert!(of(bad.0, bad.1, bad.2).check().is_err(), "{bad:?}");
        }
    }
}
