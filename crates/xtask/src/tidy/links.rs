//! Links between pages: the page is there, and so is the section.

use std::collections::{BTreeMap, BTreeSet};

use super::report::Report;
use super::tree::{File, Tree};

/// Checks every link to a page in every page.
pub fn check(tree: &Tree, report: &mut Report) {
    let pages = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.clone().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    for page in pages {
        for (line, target) in links(page) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains(':') || !(file.is_empty() || file.ends_with(".md")) {
                continue;
            }
            let path = if file.is_empty() { page.path.clone() } else { beside(&page.path, file) };
            match anchors.get(path.as_str()) {
                None => report.error(&page.path, line, format!("links to {target}: no such page")),
                Some(known) if !anchor.is_empty() && !known.contains(anchor) => {
                    report.error(&page.path, line, format!("links to {target}: no such section"));
                }
                Some(_) => {}
            }
        }
    }
}

/// The lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Targets, with their lines.
fn links(page: &File) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    for (number, line) in prose(&page.text) {
        for rest in line.split("](").skip(1) {
            all.extend(rest.split_once(')').map(|(target, _)| (number, target)));
        }
    }
    all
}

/// Returns the anchors of the sections of a page, by GitHub's rule: a second one of a name has a
/// number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    let heads = prose(text).map(|(_, line)| line).filter(|line| line.starts_with('#'));
    for head in heads.map(|line| line.trim_start_matches('#').trim()) {
        let anchor = anchor(head);
        let count = counts.entry(anchor.clone()).or_default();
        all.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    all
}

fn anchor(head: &str) -> String {
    // Of a link in a title, its text counts.
    let mut title = String::new();
    let mut rest = head;
    while let Some((before, after)) = rest.split_once("](") {
        title.push_str(&before.replace('[', ""));
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    title.push_str(rest);
    let kept = title.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// The path of a file as a page names it.
fn beside(page: &str, file: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}
