//! The command line as a whole.

use clap::CommandFactory;

use super::*;

fn parse(text: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("aquifer").chain(text.split_whitespace()))
}

#[test]
fn the_command_line_makes_sense_to_clap() {
    Args::command().debug_assert();
}

#[test]
fn commands_are_those_of_zpool_and_zfs() {
    for text in [
        "pool create tank mirror /a /b",
        "pool create -f -n -o compression=off -o sharenfs=rw,root_squash tank /a --create-size 10G",
        "pool create tank mirror /a /b log mirror /c /d",
        "pool add -f -n --create-size 1G tank log mirror /c /d",
        "pool remove tank mirror-1",
        "pool replace -f --create-size 1G tank /c /d",
        "pool offline tank /c",
        "pool online tank /c",
        "pool import -m tank",
        "pool import --missing-log -d /images tank",
        "pool import",
        "pool import -d /dev -d /images tank --rewind=2 --discard-log",
        "pool export tank",
        "pool list -H -p",
        "pool status -v tank --json",
        "pool destroy -f tank",
        "pool replace tank /a",
        "create -o sharenfs=on tank/vms",
        "set compression=off sync=always tank/vms",
        "inherit compression tank/vms",
        "get all tank/vms",
        "get -r quota,used",
        "list -r tank",
        "list -t all -d 1 -o name,used,compression -s used -S name tank",
        "get -s local,inherited -o name,value all tank",
        "alerts",
        "alerts test mail-1",
        "pool events tank",
        "share",
        "share -H",
        "share why 10.0.0.1 /tank/vms --json",
        "inspect --deep --data tank",
        "iostat",
        "iostat -vl tank 1 5",
        "iostat -w 1",
        "arcstat -v 1 5",
        "nfsstat 1",
        "nfsiostat -d -n 5 10 3",
        "events -f --json",
        "completions bash",
        "serve --nfs-addr 127.0.0.1:0 --nfs-addr [::1]:2049 --no-portmap --memory 64M --log debug",
    ] {
        if let Err(error) = parse(text) {
            panic!("{text}: {error}");
        }
    }
}

#[test]
fn wrong_usage_is_told_from_failure_by_its_exit_code() {
    for text in [
        "",
        "pool",
        "pool create tank",
        "pool add tank",
        "pool remove tank",
        "pool replace tank",
        "pool create -o compression tank /a",
        "pool create --create-size huge tank /a",
        "pool import --rewind=3 tank",
        "set tank",
        "share why 10.0.0.1",
        "share tank",
        "serve --memory 1M",
        "serve --nfs-addr everywhere",
        "serve --no-portmap --portmap-addr 0.0.0.0:111",
        "nfsiostat -c -d",
        "arcstat 1 2 3",
        "nfsstat 1 2 3",
        "frobnicate",
    ] {
        assert_eq!(parse(text).unwrap_err().exit_code(), 2, "{text}");
    }
}

/// Whoever adds a command or an option, describes it.
#[test]
fn the_page_of_the_command_line_names_every_command_and_option() {
    let page = include_str!("../../../docs/cli.md");
    let command = Args::command();
    let mut todo = vec![("aquifer".to_string(), &command)];
    while let Some((name, command)) = todo.pop() {
        if command.has_subcommands() {
            let below = command.get_subcommands();
            todo.extend(below.map(|below| (format!("{name} {}", below.get_name()), below)));
        }
        if !command.has_subcommands() || !command.is_subcommand_required_set() {
            let heading = format!("\n## {name}");
            assert!(page.contains(&heading), "docs/cli.md has no heading for `{name}`");
        }
        for long in command.get_arguments().filter_map(|argument| argument.get_long()) {
            // Of -H and -p the short form is told.
            let told = page.contains(&format!("--{long}")) || ["script", "exact"].contains(&long);
            assert!(told, "docs/cli.md says nothing of `{name} --{long}`");
        }
    }
}
