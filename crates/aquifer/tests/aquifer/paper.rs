//! Pages of the manual, and what shells complete.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{AQUIFER, Place};

#[test]
fn pages_of_the_manual_are_read_without_a_complaint() {
    let place = Place::new();
    let directory = place.path("man");
    fs::create_dir(&directory).unwrap();
    place.must(&["man-pages", directory.to_str().unwrap()]);
    let mut pages: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 60, "{pages:?}");
    let readers = [
        ("man", &["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"][..]),
        ("mandoc", &["-T", "lint", "-W", "warning"]),
    ];
    for (reader, words) in readers {
        let Ok(read) = Command::new(reader).args(words).args(&pages).output() else {
            eprintln!("SKIPPED: {reader} is not installed");
            continue;
        };
        let out = String::from_utf8_lossy(&read.stdout);
        let mut complaints = out.lines().filter(|line| line.starts_with("mandoc: "));
        // Lists of values begin so in clap's pages; sources without git have no date.
        let harmless = ["skipping paragraph macro", "missing date"];
        let is_harmless = |line: &&str| harmless.iter().any(|words| line.contains(words));
        let complaint = complaints.find(|line| !is_harmless(line));
        assert_eq!(complaint, None);
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(said.is_empty(), "{reader}: {said}");
    }
}

/// Returns the words that a shell is offered for the last word of a line, without options.
fn offered(place: &Place, line: &[&str]) -> Vec<String> {
    let socket = place.text("run/aquifer.sock");
    let mut command = Command::new(AQUIFER);
    command.args(["--", "aquifer", "--api-socket", &socket]).args(line);
    let said = command.env("AQUIFER_COMPLETE", "fish").output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let text = String::from_utf8(said.stdout).unwrap();
    let words = text.lines().map(|line| line.split('\t').next().unwrap());
    words.filter(|word| !word.starts_with('-')).map(String::from).collect()
}

#[test]
fn shells_complete_the_names_that_the_daemon_knows() {
    let place = Place::new();
    let (a, b, c) = (place.image("a"), place.image("b"), place.image("c"));
    // Without a daemon: commands and options, at once.
    assert!(offered(&place, &["pool", "off"]).contains(&"offline".to_owned()));
    assert_eq!(offered(&place, &["pool", "status", ""]), [""; 0]);
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["pool", "create", "tub", &c]);
    place.must(&["create", "tank/vms"]);
    place.must(&["snapshot", "tank/vms@one"]);

    assert_eq!(offered(&place, &["pool", "status", "t"]), ["tank", "tub"]);
    assert_eq!(offered(&place, &["pool", "destroy", "ta"]), ["tank"]);
    assert_eq!(offered(&place, &["pool", "create", "t"]), [""; 0]);
    let disks = offered(&place, &["pool", "offline", "tank", "/"]);
    assert_eq!(disks, [a.as_str(), b.as_str()]);
    assert!(offered(&place, &["pool", "clear", "tub", ""]).contains(&c));
    assert!(offered(&place, &["pool", "add", "tank", "mi"]).contains(&"mirror".to_owned()));
    assert!(offered(&place, &["pool", "add", "tank", &a[..a.len() - 1]]).contains(&a));
    assert_eq!(offered(&place, &["list", "tank"]), ["tank", "tank/vms"]);
    assert_eq!(offered(&place, &["destroy", "tank/vms@"]), ["tank/vms@one"]);
    assert_eq!(offered(&place, &["set", "compr"]), ["compression="]);
    assert_eq!(offered(&place, &["set", "compression=off", "tu"]), ["tub"]);
    assert_eq!(offered(&place, &["inherit", "compression", "tu"]), ["tub"]);
    // What cannot be set is not offered to set.
    assert_eq!(offered(&place, &["get", "us"]), ["used", "usedbyrefreservation"]);
    assert_eq!(offered(&place, &["set", "us"]), [""; 0]);
}

/// A shell, and a program of it that completes `aquifer pool stat`. `$1` is the directory of the
/// script, which has the name that the package gives it.
const SHELLS: [(&str, &str, &str); 3] = [
    (
        "bash",
        "aquifer",
        "source $1/aquifer; COMP_WORDS=(aquifer pool stat); COMP_CWORD=2
         _clap_complete_aquifer aquifer stat pool; echo \"${COMPREPLY[@]}\"",
    ),
    ("fish", "aquifer.fish", "source $argv[2]/aquifer.fish; complete -C 'aquifer pool stat'"),
    (
        "zsh",
        "_aquifer",
        "zmodload zsh/zpty; zpty z zsh -f -i
         zpty -w z \"PS1=; fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D\"
         zpty -w z \"echo rea''dy\"
         zpty -r z line '*ready*'
         zpty -n -w z $'aquifer pool stat\\t'
         zpty -r z line '*status*'; print -r -- $line",
    ),
];

#[test]
fn scripts_of_shells_complete_from_the_first_time_on() {
    let place = Place::new();
    let programs = Path::new(AQUIFER).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    for (shell, file, program) in SHELLS {
        let script = place.must(&["completions", shell]);
        assert!(!script.contains(AQUIFER), "a path of this machine: {script}");
        let directory = place.path(shell);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(file), script).unwrap();
        let mut command = Command::new("timeout");
        command.args(["30", shell, "-c", program, shell]).arg(&directory);
        // fish reads its own settings, and writes some.
        let said = command.env("PATH", &path).env("HOME", &directory).output().unwrap();
        if said.status.code() == Some(127) {
            eprintln!("SKIPPED: {shell} is not installed");
            continue;
        }
        let out = String::from_utf8_lossy(&said.stdout);
        assert!(out.contains("status"), "{shell}: {said:?}");
    }
}
