//! Every code of a problem, and where the documentation says what to do about it.
//!
//! Codes stand in messages, in monitoring, and in what people have written for themselves: one is
//! never renamed. The table in `docs/alerts.md` explains each.

use std::fmt::Write;

/// A kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Its word.
    pub word: &'static str,
    /// The file of the documentation.
    pub page: &'static str,
    /// The title of the section there; empty, if the word is the title.
    title: &'static str,
}

impl Code {
    /// The title of the section that says what to do.
    pub fn title(&self) -> &'static str {
        if self.title.is_empty() { self.word } else { self.title }
    }

    /// The section that says what to do, where the package installs it.
    pub fn see(&self) -> String {
        let mut see = format!("{DOCS}/{}#", self.page);
        for char in self.title().chars() {
            let anchor = if char == ' ' { '-' } else { char.to_ascii_lowercase() };
            // A String takes everything.
            let _ = see.write_char(anchor);
        }
        see
    }
}

/// Where the package installs the documentation.
pub const DOCS: &str = "/usr/share/doc/aquifer/docs";

macro_rules! codes {
    ($($page:literal $title:literal { $($name:ident = $word:literal,)* })*) => {
        $($(
            #[doc = concat!("`", $word, "`")]
            pub const $name: Code = Code { word: $word, page: $page, title: $title };
        )*)*
        /// All of them.
        pub const ALL: &[Code] = &[$($($name,)*)*];
    };
}

codes! {
    "runbook.md" "Replace a disk" {
        DISK_MISSING = "disk-missing",
        DISK_OUTDATED = "disk-outdated",
        DISK_FAULTED = "disk-faulted",
        DISK_FAILING = "disk-failing",
        DISK_DEGRADED = "disk-degraded",
        DISK_SLOW = "disk-slow",
        DISK_ERRORS = "disk-errors",
    }
    "runbook.md" "A client cannot mount" {
        NFS_NOT_SERVED = "nfs-not-served",
        PORTMAP_OFF = "portmap-off",
    }
    "runbook.md" "No space is left" {
        POOL_FULL = "pool-full",
    }
    "runbook.md" "A pool is not in service" {
        POOL_UNAVAILABLE = "pool-unavailable",
        POOL_READ_ONLY = "pool-read-only",
    }
    "runbook.md" "A log device is lost" {
        LOG_AWAY = "log-away",
    }
    "runbook.md" "A client hangs" {
        POOL_SUSPENDED = "pool-suspended",
        POOL_SILENT = "pool-silent",
    }
    "runbook.md" "A file is damaged" {
        FILE_DAMAGED = "file-damaged",
    }
    "alerts.md" "" {
        POOL_IMPORTING = "pool-importing",
        DISK_REMOVED = "disk-removed",
        DISK_READ_ONLY = "disk-read_only",
        DISK_OFFLINE = "disk-offline",
        DISK_DRILL = "disk-drill",
        DISK_RESILVERING = "disk-resilvering",
        SPARE_FAILING = "spare-failing",
        CACHE_UNUSABLE = "cache-unusable",
        LOG_DROPPED = "log-dropped",
        METASLAB_CLOSED = "metaslab-closed",
        SCRUB_OVERDUE = "scrub-overdue",
        QUOTA_FULL = "quota-full",
        CLIENTS_SHUT_OUT = "clients-shut-out",
        HOLDS_LEFT = "holds-left",
        RECEIVE_PARTS = "receive-parts",
        COPY_UNFED = "copy-unfed",
        REPLICATION_BEHIND = "replication-behind",
        STATE_DIR_FULL = "state-dir-full",
        STATE_NOT_KEPT = "state-not-kept",
        SETTINGS_UNUSABLE = "settings-unusable",
        API_NOT_SERVED = "api-not-served",
        AUDIT_NOT_WRITTEN = "audit-not_written",
        DESTROYED_MANY = "destroyed-many",
        TOKEN_REFUSED = "token-refused",
        DISK_OVERWRITTEN = "disk-overwritten",
        ACT_WAITS = "act-waits",
        NFS_TLS_OFF = "nfs-tls-off",
        LOCKS_NOT_KEPT = "locks-not-kept",
        MEMORY_SHORT = "memory-short",
        DAEMON_BUG = "daemon-bug",
        SNAPSHOT_UNREADABLE = "snapshot-unreadable",
        SNAPSHOT_SCHEDULE_FAILED = "snapshot-schedule_failed",
        TXG_SLOW = "txg-slow",
        CLOCK_JUMPED = "clock-jumped",
        LOCKS_GIVEN_AWAY = "locks-given_away",
        SPARE_TAKEN = "spare-taken",
        DISK_NOT_REPLACED = "disk-not_replaced",
        DISK_RESILVER_FAILED = "disk-resilver_failed",
        EXPORTS_TOO_MANY = "exports-too_many",
        POOL_HISTORY_DAMAGED = "pool-history_damaged",
        DISK_AUTOREPLACED = "disk-autoreplaced",
        DISK_RESILVERED = "disk-resilvered",
        POOL_RESUMED = "pool-resumed",
        SCRUB_FINISHED = "scrub-finished",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALERTS: &str = include_str!("../../../docs/alerts.md");
    const RUNBOOK: &str = include_str!("../../../docs/runbook.md");

    fn page(code: &Code) -> &'static str {
        match code.page {
            "alerts.md" => ALERTS,
            "runbook.md" => RUNBOOK,
            other => panic!("{other} is no page with sections for codes"),
        }
    }

    /// The words in backticks that begin lines of this form.
    fn words(text: &'static str, before: &str) -> Vec<&'static str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(before));
        lines.filter_map(|rest| rest.split('`').next()).collect()
    }

    #[test]
    fn each_code_has_a_row_and_the_row_leads_to_its_section() {
        let mut rows = words(ALERTS, "| [`");
        rows.sort_unstable();
        let mut all: Vec<&str> = ALL.iter().map(|code| code.word).collect();
        all.sort_unstable();
        assert_eq!(rows, all, "the rows of docs/alerts.md, and the codes");
        for code in ALL {
            let see = code.see();
            let target = see.strip_prefix(DOCS).and_then(|see| see.strip_prefix('/')).unwrap();
            let target = target.strip_prefix("alerts.md").unwrap_or(target);
            let row = format!("\n| [`{}`]({target}) | ", code.word);
            assert!(ALERTS.contains(&row), "docs/alerts.md has no row {row:?}");
        }
    }

    #[test]
    fn each_section_is_there_and_names_its_codes() {
        for code in ALL {
            let sections = page(code).split("\n#").filter_map(|section| section.split_once('\n'));
            let title = code.title();
            let is_it = |head: &str| head.trim_start_matches('#').trim().replace('`', "") == title;
            let found: Vec<&str> =
                sections.filter(|(head, _)| is_it(head)).map(|(_, body)| body).collect();
            let [body] = found[..] else {
                panic!("docs/{} has {} sections {title:?}", code.page, found.len());
            };
            let names = body.contains(&format!("`{}`", code.word)) || title == code.word;
            assert!(names, "{title:?} of docs/{} does not name {}", code.page, code.word);
            assert!(body.trim().len() > 20, "{title:?} of docs/{} says nothing", code.page);
        }
    }

    #[test]
    fn no_section_is_of_a_code_that_is_gone() {
        let all: BTreeSet<&str> = ALL.iter().map(|code| code.word).collect();
        for title in words(ALERTS, "### `") {
            assert!(
                all.contains(title),
                "docs/alerts.md has a section of {title}, which is no code"
            );
        }
    }

    #[test]
    fn where_to_look_is_a_path_and_an_anchor() {
        let docs = "/usr/share/doc/aquifer/docs";
        assert_eq!(DISK_MISSING.see(), format!("{docs}/runbook.md#replace-a-disk"));
        assert_eq!(DISK_OFFLINE.see(), format!("{docs}/alerts.md#disk-offline"));
        let plain = |char: char| char.is_ascii_alphanumeric() || " -_".contains(char);
        assert!(ALL.iter().all(|code| code.title().chars().all(plain)), "anchors drop the rest");
        assert!(ALL.iter().all(|code| code.see().len() <= 72), "a line of 80 columns");
    }
}
