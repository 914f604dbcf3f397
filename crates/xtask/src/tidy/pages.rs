//! Pages that must name every crate, if they exist.

use super::crates::Package;
use super::report::Report;
use super::tree::Tree;

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "README.md"];

/// Checks the pages that exist.
pub fn check(packages: &[Package], tree: &Tree, report: &mut Report) {
    for page in PAGES.iter().filter_map(|page| tree.file(page)) {
        for package in packages {
            if !names(&page.text, package) {
                report.error(
                    &page.path,
                    0,
                    format!("does not name the crate `{}`", package.room()),
                );
            }
        }
    }
}

/// Whether a page names a crate explicitly: a plain word could mean anything.
fn names(text: &str, package: &Package) -> bool {
    let room = package.room();
    let forms = [format!("`{room}`"), format!("`{}`", package.name), format!("crates/{room}")];
    forms.iter().any(|form| {
        text.match_indices(form.as_str()).any(|(at, _)| {
            let after = text.get(at + form.len()..).and_then(|rest| rest.chars().next());
            form.ends_with('`')
                || !after.is_some_and(|after| after.is_alphanumeric() || after == '_')
        })
    })
}
