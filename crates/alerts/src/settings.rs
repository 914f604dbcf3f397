//! Settings of what is sent, and where: a part of the daemon's configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;

use aquifer_api::{OutletKind, Severity};
use serde::{Deserialize, Serialize};

/// All settings of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A pool that is this full is a warning, in percent; 0 is none.
    pub capacity_warning_percent: u8,
    /// A pool that is this full is an error, in percent; 0 is none.
    pub capacity_error_percent: u8,
    /// More snapshots and datasets than so many, destroyed by callers within an hour, are an
    /// alarm; 0: none.
    pub destroyed_in_hour: u32,
    /// A token that is refused for its role more often within ten minutes is an alarm; 0: none.
    pub refused_in_ten_minutes: u32,
    /// A VM disk that is written more than so many times the most of any ten minutes in its past is
    /// an alarm; 0: none.
    pub overwritten_times: u32,
    /// One that is written less than so many GiB in ten minutes is none.
    pub overwritten_gib_min: u32,
    /// Hours after which a problem that is still there is sent once more; 0: never.
    pub remind_hours: u32,
    /// Codes that are shown, and never sent.
    pub mute: Vec<String>,
    /// Outlets by SMTP.
    pub mail: Vec<Mail>,
    /// Outlets by HTTP.
    pub webhook: Vec<Webhook>,
    /// Programs.
    pub command: Vec<Program>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            capacity_warning_percent: 80,
            capacity_error_percent: 90,
            destroyed_in_hour: 50,
            refused_in_ten_minutes: 20,
            overwritten_times: 5,
            overwritten_gib_min: 4,
            remind_hours: 24,
            mute: Vec::new(),
            mail: Vec::new(),
            webhook: Vec::new(),
            command: Vec::new(),
        }
    }
}

/// An outlet by SMTP. An empty text or path means "not set", here as everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The least that is sent.
    #[serde(default = "warning")]
    pub severity: Severity,
    /// `HOST` or `HOST:PORT`. The port follows from `tls` if it is not given.
    pub server: String,
    /// How the server is spoken to.
    #[serde(default)]
    pub tls: MailTls,
    /// Authorities that the server's certificate may be from, in PEM, instead of the machine's.
    #[serde(default)]
    pub ca: PathBuf,
    /// The sender.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
    /// User that logs in.
    #[serde(default)]
    pub user: String,
    /// A file with the password, which nobody else can read.
    #[serde(default)]
    pub password_file: PathBuf,
}

/// Whether mail goes over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailTls {
    /// From a word in the clear on (port 587).
    #[default]
    Starttls,
    /// From the first byte on (port 465).
    Tls,
    /// In the clear (port 25): for a relay on this machine.
    None,
}

/// An outlet by HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The least that is sent.
    #[serde(default = "warning")]
    pub severity: Severity,
    /// Where a POST goes to: `https://...` or `http://...`.
    #[serde(default)]
    pub url: String,
    /// A file with the URL instead, which nobody else can read: that of some services is a secret.
    #[serde(default)]
    pub url_file: PathBuf,
    /// The body.
    #[serde(default)]
    pub shape: Shape,
    /// Authorities that the server's certificate may be from, in PEM, instead of the machine's.
    #[serde(default)]
    pub ca: PathBuf,
    /// A file with a token for `Authorization: Bearer`, which nobody else can read.
    #[serde(default)]
    pub token_file: PathBuf,
}

/// The bodies of webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// All of it, as `docs/alerts.md` has it.
    #[default]
    Json,
    /// An incoming webhook of Slack, or of what understands these: Mattermost, Rocket.Chat.
    Slack,
    /// A webhook of Discord.
    Discord,
}

/// A program. It gets the text on standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The least that is sent.
    #[serde(default = "warning")]
    pub severity: Severity,
    /// The program, by its absolute path, and its words.
    pub run: Vec<String>,
}

fn warning() -> Severity {
    Severity::Warning
}

/// A setting cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("alerts.{0}")]
pub struct BadSetting(pub(crate) String);

impl Settings {
    /// The names of all outlets, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut each = |kind: OutletKind, given: Vec<&String>| {
            names.extend(given.into_iter().enumerate().map(|(at, name)| match name.as_str() {
                "" => format!("{}-{}", kind.word(), at + 1),
                name => name.to_string(),
            }));
        };
        each(OutletKind::Mail, self.mail.iter().map(|mail| &mail.name).collect());
        each(OutletKind::Webhook, self.webhook.iter().map(|hook| &hook.name).collect());
        each(OutletKind::Command, self.command.iter().map(|program| &program.name).collect());
        names
    }

    /// Finds settings that cannot be.
    ///
    /// # Errors
    /// The setting, and what is wrong with it.
    pub fn check(&self) -> Result<(), BadSetting> {
        let wrong = |what: String| Err(BadSetting(what));
        let (warning, error) = (self.capacity_warning_percent, self.capacity_error_percent);
        if warning > 100 || error > 100 || error != 0 && warning > error {
            return wrong(format!(
                "capacity_*_percent: {warning} and {error}: a warning comes before an error, and \
                 both at 100 % at most"
            ));
        }
        let names = self.names();
        if names.len() > OUTLETS_MAX {
            return wrong(format!("mail, webhook, command: at most {OUTLETS_MAX} outlets"));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return wrong(format!("*.name: two outlets are called {twice:?}"));
        }
        for mail in &self.mail {
            crate::mail::check(mail).map_err(|why| BadSetting(format!("mail: {why}")))?;
        }
        for hook in &self.webhook {
            crate::webhook::check(hook).map_err(|why| BadSetting(format!("webhook: {why}")))?;
        }
        for program in &self.command {
            match program.run.first() {
                Some(path) if path.starts_with('/') => {}
                _ => return wrong("command.run: names no program by an absolute path".into()),
            }
        }
        Ok(())
    }
}

/// Each has a thread.
const OUTLETS_MAX: usize = 16;
