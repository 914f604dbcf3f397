//! `dist/aquifer.service`, parsed as systemd does, and a way to set its rights without systemd.
//!
//! Invariant: every setting of `[Service]` is set here, checked by its calls, or listed as one that
//! only systemd can set ([`NOT_HERE`]). A new setting must be added to one of these lists.

use std::collections::BTreeSet;

use aquifer_conformance::{Error, Result};
use aquifer_rig::process::Invocation;

use crate::place::SOON;

/// The id of user and group `aquifer`, which a machine need not have.
pub const ID: u32 = 61_234;

/// Settings that [`Service::start_line`] applies.
const GIVEN: [&str; 20] = [
    "ExecStart",
    "User",
    "Group",
    "SupplementaryGroups",
    "AmbientCapabilities",
    "CapabilityBoundingSet",
    "NoNewPrivileges",
    "UMask",
    "LimitNOFILE",
    "LimitMEMLOCK",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "StateDirectory",
    "StateDirectoryMode",
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProcSubset",
];

/// Filters of system calls: the test compares the daemon's calls with them.
const BY_CALLS: [&str; 8] = [
    "SystemCallFilter",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "LockPersonality",
    "MemoryDenyWriteExecute",
];

/// Settings that are not applied here: the manager's own ones, and those that need its cgroups and
/// namespaces. None of them removes anything that a daemon on disks and sockets uses, except for
/// the devices.
const NOT_HERE: [&str; 17] = [
    "Type",
    "LimitCORE",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Restart",
    "RestartSec",
    "WatchdogSec",
    "DevicePolicy",
    "DeviceAllow",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectClock",
    "ProtectHostname",
    "RestrictSUIDSGID",
    "RemoveIPC",
    "KeyringMode",
];

/// The settings of `[Service]`, in order.
#[derive(Debug)]
pub struct Service {
    settings: Vec<(String, String)>,
}

impl Service {
    /// The shipped unit.
    pub fn shipped() -> Service {
        let text = include_str!("../../../../../dist/aquifer.service");
        let part = text.split("\n[Service]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let lines = part.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let settings = lines.map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_string(), value.to_string())
        });
        Service { settings: settings.collect() }
    }

    /// Settings in none of the lists.
    pub fn unknown(&self) -> Vec<&str> {
        let lists = [&GIVEN[..], &BY_CALLS[..], &NOT_HERE[..]];
        let names = self.settings.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !lists.iter().any(|list| list.contains(name))).collect()
    }

    /// The last value of a setting, which is the one in force.
    pub fn value(&self, name: &str) -> &str {
        let found = self.settings.iter().rev().find(|(found, _)| found == name);
        &found.unwrap_or_else(|| panic!("the unit has no {name}")).1
    }

    /// The words of all lines of a setting that is a list.
    pub fn words(&self, name: &str) -> Vec<&str> {
        let lines = self.settings.iter().filter(|(found, _)| found == name);
        lines.flat_map(|(_, value)| value.split_whitespace()).collect()
    }

    /// A line of shell that becomes the unit's command, with its rights, in mounts of its own.
    /// `program` replaces `/usr/bin/aquifer`, and `lib` replaces `/var/lib`. `tracer` precedes the
    /// program, with the same rights.
    pub fn start_line(&self, program: &str, lib: &str, tracer: &str) -> String {
        for name in ["NoNewPrivileges", "ProtectHome", "PrivateTmp", "ProtectKernelTunables"] {
            assert_eq!(self.value(name), "true", "{name} is given here as it was");
        }
        assert_eq!(self.value("ProtectSystem"), "strict");
        assert_eq!((self.value("ProtectProc"), self.value("ProcSubset")), ("invisible", "pid"));
        assert_eq!((self.value("User"), self.value("Group")), ("aquifer", "aquifer"));
        let command = self.value("ExecStart").strip_prefix("/usr/bin/aquifer ").unwrap();
        let run = format!("/run/{}", self.value("RuntimeDirectory"));
        let run_mode = self.value("RuntimeDirectoryMode");
        let umask = self.value("UMask");
        let files = self.value("LimitNOFILE");
        let groups = self.words("SupplementaryGroups").join(",");
        let caps = |name: &str| {
            let words = self.words(name);
            let names = words.iter().map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase());
            names.fold("-all".to_string(), |all, name| format!("{all},+{name}"))
        };
        let (ambient, bounding) = (caps("AmbientCapabilities"), caps("CapabilityBoundingSet"));
        format!(
            "set -e
            touch /run/program && mount --bind {program} /run/program
            mount --bind {lib} /var/lib
            mkdir -p -m {run_mode} {run} && chown {ID}:{ID} {run}
            # ProtectSystem=strict, ProtectKernelTunables: all but what is made here is read only.
            awk '{{ print $5 }}' /proc/self/mountinfo |
                grep -vE '^/(dev|proc|run|var/lib)(/|$)' | while read -r mount; do
                    mount -o remount,bind,ro \"$mount\" || true
                done 2>/dev/null
            # ProtectHome, PrivateTmp.
            mount -t tmpfs -o ro,mode=000 tmpfs /root
            mount -t tmpfs -o ro,mode=000 tmpfs /home
            mount -t tmpfs -o mode=1777 tmpfs /tmp
            mount -t proc -o hidepid=invisible,subset=pid proc /proc
            # Limits, as far as this machine lets us.
            ulimit -n {files} 2>/dev/null || true
            ulimit -l unlimited 2>/dev/null || true
            umask {umask}
            exec setpriv --reuid={ID} --regid={ID} --groups={groups} --no-new-privs \
                --bounding-set={bounding} --inh-caps={ambient} --ambient-caps={ambient} \
                {tracer} /run/program {command}"
        )
    }

    /// The system calls that the unit allows, by the groups of the installed systemd.
    pub fn allowed_calls(&self) -> Result<BTreeSet<String>> {
        let mut allowed = BTreeSet::new();
        let lines = self.settings.iter().filter(|(name, _)| name == "SystemCallFilter");
        for (_, value) in lines {
            let (denied, names) = match value.strip_prefix('~') {
                Some(names) => (true, names),
                None => (false, value.as_str()),
            };
            for name in names.split_whitespace() {
                let calls = calls_of(name)?;
                match denied {
                    true => allowed.retain(|call| !calls.contains(call)),
                    false => allowed.extend(calls),
                }
            }
        }
        Ok(allowed)
    }
}

/// A system call by name, or those of a group (`@aio`).
fn calls_of(name: &str) -> Result<BTreeSet<String>> {
    if !name.starts_with('@') {
        return Ok(BTreeSet::from([name.to_string()]));
    }
    let analyze = Invocation::tool("systemd-analyze", "service")?;
    let said = analyze.args(["syscall-filter", name]).check(SOON)?.text();
    let mut calls = BTreeSet::new();
    for line in said.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()) {
        match line.starts_with('@') {
            true => calls.extend(calls_of(line)?),
            false if line.starts_with('#') => {}
            false => drop(calls.insert(line.to_string())),
        }
    }
    match calls.is_empty() {
        true => Err(Error::Malformed(format!("systemd-analyze syscall-filter {name}: {said}"))),
        false => Ok(calls),
    }
}
