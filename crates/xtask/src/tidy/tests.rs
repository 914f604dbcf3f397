//! The workspace itself, and examples that each rule must refuse.

use super::crates::Package;
use super::report::Report;
use super::tree::{File, Tree};
use super::{circles, crates, decisions, links, names, pages, shared, source, words};

#[test]
fn the_workspace_is_tidy() {
    let report = super::check(crate::root()).unwrap();
    assert_eq!(report.errors(), 0, "\n{report}");
    println!("{report}");
}

/// The rules see the workspace: a walk that finds no files would find no errors either.
#[test]
fn the_workspace_is_seen() {
    let root = crate::root();
    let tree = Tree::read(root).unwrap();
    let packages = crates::packages(root).unwrap();
    assert!(packages.len() >= 16, "{packages:?}");
    for package in &packages {
        let source = format!("{}/src/", package.directory);
        assert!(tree.file(&package.manifest()).is_some(), "{}", package.name);
        assert!(tree.files.iter().any(|file| file.path.starts_with(&source)), "{source}");
    }
    assert!(packages.iter().any(|package| !package.dependencies.is_empty()));
    assert!(tree.file("docs/format.md").is_some());
    assert!(!tree.files.iter().any(|file| file.path.contains("target/")));
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// The lines of a source with findings, with the first words of each.
fn lines_found(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut report = Report::default();
    source::check_file(&file(path, text), &mut report);
    let lines = report.lines();
    let lines = lines.iter().map(|line| {
        let rest = line.strip_prefix(path).unwrap();
        let (number, what) = rest.trim_start_matches(':').split_once(": ").unwrap_or(("", rest));
        let (number, what) = match number.parse() {
            Ok(number) => (number, what),
            Err(_) => (0, rest.trim_start_matches(": ")),
        };
        let words: Vec<&str> = what.split_whitespace().take(3).collect();
        (number, words.join(" "))
    });
    lines.collect()
}

/// Checks that exactly these are found: (line, first words).
#[track_caller]
fn expect(path: &str, text: &str, expected: &[(usize, &str)]) {
    let found = lines_found(path, text);
    let found: Vec<(usize, &str)> = found.iter().map(|(at, what)| (*at, what.as_str())).collect();
    assert_eq!(found, expected);
}

const SOURCE: &str = "crates/pool/src/pool.rs";

#[test]
fn long_files_and_lines() {
    let line = "x".repeat(100);
    expect(SOURCE, &line, &[]);
    expect(SOURCE, &format!("\n{line}x"), &[(2, "101 columns: at")]);
    expect(SOURCE, "//! ```text\n//! a u8\n//! ```\n/// ```\n/// ```", &[]);
    expect(SOURCE, "//! ```text a u8\n/// b ```", &[(1, "a fence with")]);
    expect(SOURCE, "/// Whatever it is.\n/// What follows.\n// What\nx();\n//// Who", &[]);
    expect(
        SOURCE,
        "//! What\n\n  /// The same, twice.\n",
        &[(1, "docs begin with"), (3, "docs begin with")],
    );
    expect(SOURCE, &"\n".repeat(800), &[]);
    expect(SOURCE, &"\n".repeat(801), &[(0, "801 lines: at")]);
    let mut report = Report::default();
    source::check_file(&file(SOURCE, &"\n".repeat(501)), &mut report);
    assert!(report.to_string().starts_with("warning: crates/pool/src/pool.rs: 501 lines"));
}

#[test]
fn other_characters() {
    expect(SOURCE, "// a\n// \u{2192}\n", &[(2, "\\u{2192} is not")]);
}

#[test]
fn macros_that_must_not_stay() {
    let text = "fn f() {\n    todo!();\n    std::unimplemented!(\"x\")\n}\n// todo!()\n";
    expect(SOURCE, text, &[(2, "todo! is left"), (3, "unimplemented! is left")]);
    expect("crates/a/tests/b.rs", "dbg!(x);", &[(1, "dbg! is left")]);
    expect(SOURCE, "let x = \"dbg!(x)\"; my_todo!();", &[]);
}

#[test]
fn globs_of_the_module_above() {
    let inside = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    expect(SOURCE, inside, &[]);
    expect(SOURCE, "pub use super :: * ;", &[(1, "`use super::*` outside")]);
    let before = "use super::*;\n#[cfg(test)]\nmod tests;\n";
    expect(SOURCE, before, &[(1, "`use super::*` outside")]);
    let after = format!("{inside}mod other {{ use super::*; }}\n");
    expect(SOURCE, &after, &[(5, "`use super::*` outside")]);
    expect("crates/pool/src/pool/tests.rs", "use super::*;", &[]);
    expect("crates/pool/tests/a.rs", "use super::*;", &[]);
    expect(SOURCE, "use super::{a, b};", &[]);
}

#[test]
fn unsafe_where_nobody_expects_it() {
    let text = "fn f() {\n    unsafe { g() }\n}\n";
    expect(SOURCE, text, &[(2, "unsafe: list the")]);
    expect("crates/blockio/src/buf.rs", text, &[]);
    expect(SOURCE, "#![expect(unsafe_code)] // unsafe", &[]);
}

#[test]
fn a_list_of_unsafe_files_that_is_out_of_date() {
    let mut report = Report::default();
    let tree = Tree { files: vec![file("crates/blockio/src/buf.rs", "// unsafe no more\n")] };
    source::check(&tree, &mut report);
    assert!(
        report.lines().iter().any(|line| line.starts_with("crates/blockio/src/buf.rs: listed"))
    );
}

fn package(name: &str, dependencies: &[&str]) -> Package {
    let dependencies =
        dependencies.iter().map(|name| (name.to_string(), crates::Purpose::Normal)).collect();
    let directory = format!("crates/{name}");
    Package { name: format!("aquifer-{name}"), directory, dependencies }
}

#[test]
fn manifests_and_heads() {
    let found = |package: &Package, manifest: &str, head: &str| {
        let files = vec![
            file(&package.manifest(), manifest),
            file(&format!("{}/src/lib.rs", package.directory), head),
        ];
        let mut report = Report::default();
        crates::check(std::slice::from_ref(package), &Tree { files }, &mut report);
        report.lines()
    };
    let (lints, head) = ("[lints]\nworkspace = true\n", "//! What it is.\n");
    let pool = package("pool", &["serde", "aquifer-vdev"]);
    assert!(found(&pool, lints, head).is_empty());
    for bad in
        ["", "[lints]\n", "[lints.rust]\nworkspace = true\n", "[package]\nworkspace = true\n"]
    {
        assert_eq!(found(&pool, bad, head).len(), 1, "{bad:?}");
    }
    for bad in ["", "\n//! Late.\n", "// What it is.\n", "use std::fmt;\n"] {
        assert_eq!(found(&pool, lints, bad).len(), 1, "{bad:?}");
    }
    for banned in ["serde", "serde_json", "bincode"] {
        assert_eq!(found(&package("ondisk", &[banned]), lints, head).len(), 1, "{banned}");
    }
    assert!(found(&package("ondisk", &["thiserror", "smallvec"]), lints, head).is_empty());
}

#[test]
fn decisions_without_status_or_date() {
    let found = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(name, text)| file(&format!("docs/decisions/{name}"), text));
        let mut report = Report::default();
        decisions::check(&Tree { files: files.collect() }, &mut report);
        report.lines().len()
    };
    let good = "# 1\n\nStatus: Accepted\nDate: 2026-11-21\n\n## Why\n";
    assert_eq!(found(&[("0001-a.md", good), ("README.md", "")]), 0);
    assert_eq!(found(&[("0001-a.md", &good.replace("Accepted", "Rejected"))]), 0);
    assert_eq!(found(&[("0001-a.md", "# 1\n")]), 2);
    assert_eq!(found(&[("0001-a.md", &good.replace("Accepted", "Proposed"))]), 1);
    assert_eq!(found(&[("0001-a.md", &good.replace("2026-11-21", "21.11.2026"))]), 1);
    assert_eq!(found(&[("0001-a.md", &good.replace("11-21", "13-21"))]), 1);
    assert_eq!(found(&[("0001-a.md", "## Why\nStatus: Accepted\nDate: 2026-11-21\n")]), 2);
    assert_eq!(found(&[("0001-a.md", good), ("0001-b.md", good)]), 1);
    for bad in ["1-a.md", "0001.md", "0001-A.md", "notes.md"] {
        assert_eq!(found(&[(bad, good)]), 1, "{bad}");
    }
}

#[test]
fn pages_that_leave_a_crate_out() {
    let packages = [package("pool", &[]), package("rpc", &[])];
    let found = |text: &str| {
        let mut report = Report::default();
        pages::check(&packages, &Tree { files: vec![file("README.md", text)] }, &mut report);
        report.lines().len()
    };
    assert_eq!(found("`pool` and `aquifer-rpc`"), 0);
    assert_eq!(found("crates/pool, crates/rpc"), 0);
    assert_eq!(found("the pool, and crates/rpc2"), 2);
    let mut report = Report::default();
    pages::check(&packages, &Tree::default(), &mut report);
    assert_eq!(report.errors(), 0, "pages that do not exist yet");
}

#[test]
fn what_goes_around_the_seam_is_refused() {
    let text = "use std::sync::{Arc, Mutex};\nuse parking_lot::RwLock;\nuse std::sync::Weak;\n\
        // parking_lot\nlet lock = tokio::sync::Notify::new();\n\
        #[cfg(test)]\nmod tests { use std::sync::atomic::AtomicU64; }\n";
    let mut report = Report::default();
    shared::check_file(&file("crates/pool/src/some.rs", text), &mut report);
    let lines = report.lines();
    let refused = ["2: parking_lot", "5: tokio::sync", "1: std::sync::Mutex"];
    assert_eq!(lines.len(), refused.len(), "{lines:#?}");
    for refused in refused {
        assert!(lines.iter().any(|line| line.contains(refused)), "{refused}: {lines:#?}");
    }
}

#[test]
fn pages_name_what_is_there() {
    let source = "pub const TXG_MAX: u64 = 1; struct TxHold; mod sync {} \
                  \"aquifer_pool_txg\"";
    let files = vec![
        file("crates/pool/src/sync.rs", source),
        file("docs/cli.md", "## aquifer pool create NAME\n## aquifer list [DATASET]\n"),
    ];
    let tree = Tree { files };
    let known = words::Known::of(&tree);
    let found = |text: &str| {
        let mut report = Report::default();
        words::check_page(&file("a.md", text), &known, &mut report);
        report.lines()
    };
    for fine in [
        "`TXG_MAX` and `TxHold`, `pool::sync::TxHold`, `ab`, `A_`, `ESXi`, `std::sync::Gone`",
        "`aquifer_pool_txg`",
        "`aquifer pool create tank`, `aquifer list`, `aquifer pool`, `aquifer.toml`, `aquifer -h`",
        "```\naquifer list -r\n`TXG_MIN` of somebody else\n```",
    ] {
        assert!(found(fine).is_empty(), "{:?}", found(fine));
    }
    assert_eq!(found("\n`TXG_MIN`"), ["a.md:2: `TXG_MIN` is not in any source"]);
    assert_eq!(found("`aquifer_txg`"), ["a.md:1: `aquifer_txg` is not in any source"]);
    assert_eq!(found("`TxGone`"), ["a.md:1: `TxGone` is not in any source"]);
    assert_eq!(found("`pool::txg`"), ["a.md:1: `pool::txg`: there is no txg in pool"]);
    let no_heading = |command: &str| format!("a.md:1: `{command}` has no heading in docs/cli.md");
    assert_eq!(found("`aquifer ls`"), [no_heading("aquifer ls")]);
    assert_eq!(found("`aquifer pool make tank`"), [no_heading("aquifer pool make")]);
    assert_eq!(found("```\n# aquifer ls\n```").len(), 1);
    let long = "word ".repeat(21);
    assert_eq!(found(&long), ["a.md:1: 105 columns: at most 100"]);
    assert!(found(&format!("| {long}\n# {long}\n```\n{long}\n```")).is_empty());
    assert_eq!(found("`aquifer\nlist` `TXG_MIN`").len(), 1, "a span that goes on");
    assert_eq!(found("a\n```\nb\n"), ["a.md:2: a block of code that does not end"]);
    let in_source = |text: &str| {
        let mut report = Report::default();
        words::check_source(&file("a.rs", text), &known, &mut report);
        report.lines()
    };
    assert!(in_source("\"type `aquifer pool create`, `aquifer list \\\n -r`\"").is_empty());
    let gone = "a.rs:2: `aquifer status` has no heading in docs/cli.md";
    assert_eq!(in_source("\n// as `aquifer status` and aquifer itself show"), [gone]);
}

#[test]
fn links_lead_to_pages_and_sections_that_are_there() {
    let found = |text: &str| {
        let other = file("docs/b.md", "# B\n## What `a_b-c` is: so\n## Twice\n## Twice\n");
        let files = vec![file("a.md", "# A\n"), file("docs/a.md", text), other];
        let mut report = Report::default();
        links::check(&Tree { files }, &mut report);
        report.lines()
    };
    for fine in [
        "# Here\n[a](b.md), [b](b.md#what-a_b-c-is-so) [c](b.md#twice-1) [d](#here)",
        "[up](../a.md#a) [x](https://example.com/y.md#z) [d](decisions) [c](../Cargo.toml)",
        "## See [this](b.md)\n[here](#see-this)",
        "```\n[a](gone.md)\n```",
    ] {
        assert!(found(fine).is_empty(), "{:?}", found(fine));
    }
    assert_eq!(found("\n[a](c.md)"), ["docs/a.md:2: links to c.md: no such page"]);
    assert_eq!(found("x [a](b.md#c) y"), ["docs/a.md:1: links to b.md#c: no such section"]);
    assert_eq!(found("[a](#c) [b](../b.md#b)").len(), 2);
    assert_eq!(found("```\n# c\n```\n[a](#c)").len(), 1, "a comment is no section");
}

#[test]
fn modules_in_a_circle_are_counted() {
    let lib = "mod a; mod b; mod c;\npub use b::{Deep, inner::Name};\n";
    let found = |a: &str, b: &str, c: &str, known: usize| {
        let files = [("lib", lib), ("a", a), ("b", b), ("b/inner", ""), ("c", c)];
        let files = files.map(|(at, text)| file(&format!("crates/some/src/{at}.rs"), text));
        let mut report = Report::default();
        circles::check_crate("some", &files.iter().collect::<Vec<_>>(), known, &mut report);
        let lines = report.lines();
        lines
            .iter()
            .map(|line| line.split_once(": some: ").unwrap().1.to_string())
            .collect::<Vec<_>>()
    };
    assert!(found("use crate::b::X;", "use crate::c::{Y, Z};", "use std::fmt;", 1).is_empty());
    let three = "3 modules in a circle, 1 before: a, b, c";
    assert_eq!(
        found("use crate::b::X;", "use super::{c::Y, c::Z};", "fn f() { crate::a::g() }", 1),
        [three]
    );
    assert!(
        found("use crate::Deep;", "use crate::c::Y;", "pub(crate) use super::a;", 3).is_empty()
    );
    let two = "2 modules in a circle: lower the number";
    assert_eq!(found("use crate::b::X;", "use crate::a::Y;", "", 3), [two]);
    // A name that the root gives on is where it was made; tests and comments need nobody.
    let inner = "use crate::Name; // crate::c\n#[cfg(test)]\nmod tests { use crate::c::Y; }";
    assert!(found(inner, "use crate::a::Y;", "use crate::a::Z;", 1).is_empty());
}

#[test]
fn a_name_of_types_is_in_few_crates() {
    let found = |texts: [&str; 4], known: &[(&str, usize)]| {
        let rooms = ["a", "b", "c", "d"].into_iter().zip(texts);
        let file = |(room, text)| file(&format!("crates/{room}/src/lib.rs"), text);
        let files: Vec<File> = rooms.map(file).collect();
        let mut report = Report::default();
        names::check_files(files.iter(), known, &mut report);
        let lines = report.lines();
        lines.iter().map(|line| line.rsplit_once("rs: ").unwrap().1.to_string()).collect::<Vec<_>>()
    };
    let three = ["struct State;", "pub enum State {}", "pub(crate) trait State {}"];
    let with = |last| [three[0], three[1], three[2], last];
    let all = "State: a, b, c, d declare types of this name";
    assert_eq!(found(with("pub(in super::super) struct State<T> {}"), &[]), [all]);
    assert!(found(with("pub struct State;"), &[("State", 4)]).is_empty());
    assert_eq!(found(with(""), &[("State", 4)]), ["State: in 3 crates: lower the number"]);
    // Uses, comments, other names and tests declare nothing.
    for other in [
        "use a::State; // struct State",
        "struct States;",
        "fn of(struct_State: State) {}",
        "#[cfg(test)]\nmod tests { struct State; }",
    ] {
        assert!(found(with(other), &[]).is_empty(), "{other}");
    }
}
