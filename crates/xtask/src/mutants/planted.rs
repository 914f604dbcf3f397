//! Mistakes planted by hand, of the kinds that programmers make.
//!
//! `crates/xtask/planted.json` is a list of `{mistake, file, old, new}`: `old` is in the file
//! exactly once.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::mutant::Mutant;

const LIST: &str = "crates/xtask/planted.json";

/// The mistakes whose file or words contain `only`, in their order.
///
/// # Errors
/// A list of another shape, or an `old` that is not in its file any more.
pub fn read(root: &Path, only: &str) -> Result<Vec<Mutant>, String> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let list: Value =
        serde_json::from_str(&read(LIST)?).map_err(|error| format!("{LIST}: {error}"))?;
    let list = list.as_array().ok_or_else(|| format!("{LIST}: no list"))?;
    let of_entry = |entry: &Value| {
        let text = |name: &str| {
            let value = entry.get(name).and_then(Value::as_str);
            value.ok_or_else(|| format!("{LIST}: no {name} in {entry}"))
        };
        let (file, change) = (text("file")?, [text("old")?, text("new")?]);
        planted(&read(file)?, file.to_string(), text("mistake")?, change)
    };
    let all = list.iter().map(of_entry).collect::<Result<Vec<_>, String>>()?;
    Ok(all.into_iter().filter(|mutant| mutant.name.contains(only)).collect())
}

/// A planted mistake as a mutant of its source.
pub fn planted(
    source: &str,
    file: String,
    mistake: &str,
    [old, new]: [&str; 2],
) -> Result<Mutant, String> {
    let places: Vec<usize> = source.match_indices(old).map(|(at, _)| at).collect();
    let [start] = places.as_slice() else {
        return Err(format!("{file}: {} times, not once: {old}", places.len()));
    };
    let line = 1 + source.get(..*start).unwrap_or_default().matches('\n').count();
    Ok(Mutant {
        name: format!("{file}:{line}: {mistake}"),
        replaced: *start..start + old.len(),
        replacement: new.to_string(),
        diff: format!("- {}\n+ {}", old.replace('\n', "\n- "), new.replace('\n', "\n+ ")),
        file,
    })
}
