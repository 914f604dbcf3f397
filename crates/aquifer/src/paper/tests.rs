//! Pages of the manual.

use super::*;

fn names(command: &Command, into: &mut Vec<String>) {
    into.push(format!("{}.1", command.get_display_name().unwrap_or(command.get_name())));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        names(below, into);
    }
}

#[test]
fn every_command_has_a_page_that_names_its_options() {
    let mut command = Args::command();
    command.build();
    let mut wanted = Vec::new();
    names(&command, &mut wanted);
    let pages = pages();
    assert_eq!(pages.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), wanted);
    for name in ["aquifer.1", "aquifer-serve.1", "aquifer-pool-create.1", "aquifer-share-why.1"] {
        assert!(wanted.iter().any(|wanted| wanted == name), "{name} of {wanted:?}");
    }
    assert!(!wanted.iter().any(|name| name.contains("man-pages")), "{wanted:?}");
    let (_, create) = pages.iter().find(|(name, _)| name == "aquifer-pool-create.1").unwrap();
    let create = std::str::from_utf8(create).unwrap();
    for words in ["\\-\\-create\\-size", "may be given several times", "EXIT STATUS"] {
        assert!(create.contains(words), "{words}: {create}");
    }
}

#[test]
fn pages_are_the_same_wherever_they_are_made() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    for (name, text) in pages() {
        let text = String::from_utf8(text).unwrap();
        let foreign = [here, "/root/", "/tmp/", "/home/"];
        let found = foreign.iter().find(|path| text.contains(**path));
        assert_eq!(found, None, "{name}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{name}");
    }
}

#[test]
fn the_version_says_what_was_built() {
    let version = env!("AQUIFER_VERSION");
    let rest = version.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
    let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    assert!(rest.is_empty() || commit.is_some_and(|commit| !commit.is_empty()), "{version}");
    // Built from a repository, it is known.
    let is_repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git")).exists();
    let is_set = option_env!("AQUIFER_COMMIT").is_some();
    assert!(commit.is_some() || !is_repository || is_set, "{version}");
}
