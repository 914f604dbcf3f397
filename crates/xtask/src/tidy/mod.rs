//! Style as a test: checks that no compiler or linter makes, also run by `cargo test`.
//!
//! Every rule works on texts and lists, so that its own tests can show what it must refuse.

mod circles;
mod crates;
mod decisions;
pub(crate) mod lexer;
mod links;
mod names;
mod outside;
mod pages;
mod report;
mod rooms;
mod shared;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use std::path::Path;

pub use report::Report;

/// Checks the workspace at `root`.
///
/// # Errors
/// The reason why the checks cannot run: files that cannot be read, or cargo that cannot be run.
pub fn check(root: &Path) -> Result<Report, String> {
    let tree = tree::Tree::read(root)?;
    let packages = crates::packages(root)?;
    let mut report = Report::default();
    rooms::check(&packages, &mut report);
    crates::check(&packages, &tree, &mut report);
    source::check(&tree, &mut report);
    circles::check(&tree, &mut report);
    names::check(&tree, &mut report);
    shared::check(&tree, &mut report);
    decisions::check(&tree, &mut report);
    pages::check(&packages, &tree, &mut report);
    links::check(&tree, &mut report);
    words::check(&tree, &mut report);
    let deny = std::fs::read_to_string(root.join("deny.toml"));
    let deny = deny.map_err(|error| format!("deny.toml: {error}"))?;
    outside::check(&outside::all(root)?, &outside::allowed(&deny)?, &mut report);
    Ok(report)
}
