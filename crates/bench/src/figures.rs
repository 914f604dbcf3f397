//! Figures that are no load's rate: what was measured, and against what.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::{Error, Result};

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of what was measured.
    pub what: String,
    /// The figure, and its unit.
    pub value: f64,
    /// See `value`.
    pub unit: &'static str,
    /// Its ratio to something, which `to` names.
    pub ratio: f64,
    /// See `ratio`.
    pub to: &'static str,
}

/// Figures that are printed as they come.
#[derive(Debug, Default)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    /// Adds one.
    pub fn add(
        &mut self,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        (ratio, to): (f64, &'static str),
    ) {
        let figure = Figure { what: what.into(), value, unit, ratio, to };
        eprint!("{}", text(std::slice::from_ref(&figure)));
        self.0.push(figure);
    }
}

/// The figures as a table.
#[must_use]
pub fn text(figures: &[Figure]) -> String {
    let mut out = String::new();
    for Figure { what, value, unit, ratio, to } in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{what:<58} {value:>9.1} {unit:<5} {ratio:>5.2} of {to}");
    }
    out
}

/// A number in what a command answered in JSON.
///
/// # Errors
/// [`Error::Malformed`] if there is none.
pub fn number(answer: &Value, path: &str) -> Result<f64> {
    let found = answer.pointer(path).and_then(Value::as_f64);
    found.ok_or_else(|| Error::Malformed(format!("no {path:?} in the answer: {answer}")))
}

/// The median, if there are any.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
