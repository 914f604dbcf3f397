//! Decisions: each states whether it is in force, and since when.

use super::report::Report;
use super::tree::{File, Tree};

const DIRECTORY: &str = "docs/decisions/";
const STATUSES: [&str; 2] = ["Accepted", "Rejected"];

/// Checks all decisions.
pub fn check(tree: &Tree, report: &mut Report) {
    let mut last = None;
    for file in &tree.files {
        let Some(name) = file.path.strip_prefix(DIRECTORY).filter(|name| *name != "README.md")
        else {
            continue;
        };
        let Some(number) = number_of(name) else {
            report.error(&file.path, 0, "a decision is called NNNN-what-it-says.md");
            continue;
        };
        if last == Some(number) {
            report.error(&file.path, 0, format!("there is another decision {number}"));
        }
        last = Some(number);
        check_head(file, report);
    }
}

/// The number of a decision's file.
fn number_of(name: &str) -> Option<&str> {
    let (number, rest) = name.split_once('-')?;
    let what = rest.strip_suffix(".md")?;
    let digits = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (digits && !what.is_empty() && what.bytes().all(plain)).then_some(number)
}

fn check_head(file: &File, report: &mut Report) {
    // The head ends where the first section begins; prose may use the words freely.
    let head = file.text.lines().take_while(|line| !line.starts_with("## "));
    let value = |field: &str| head.clone().find_map(|line| line.strip_prefix(field)).map(str::trim);
    if !value("Status:").is_some_and(|status| STATUSES.contains(&status)) {
        report.error(&file.path, 0, "lacks `Status: Accepted` or `Status: Rejected`");
    }
    if !value("Date:").is_some_and(is_date) {
        report.error(&file.path, 0, "lacks `Date: YYYY-MM-DD`");
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let number = |part: &str, digits: usize| {
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u32>().ok().filter(|_| plain)
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}
