//! Spans of holds: how long one may stand, and the values of the property `retain`.

use aquifer_meter::time::parse_span;

/// A hold ends within so many years. It cannot be taken back, also if its year was a slip.
pub const HOLD_YEARS_MAX: u64 = 10;
pub(crate) const YEAR_S: u64 = 366 * 86_400;

/// Reads a value of the property `retain`: `off`, or a span.
///
/// # Errors
/// Why it is none.
pub(crate) fn parse_retain(value: &str) -> Result<String, String> {
    if value == "off" {
        return Ok(value.into());
    }
    match parse_span(value) {
        Some(span_s) if span_s > HOLD_YEARS_MAX * YEAR_S => Err(format!(
            "{value:?} is more than {HOLD_YEARS_MAX} years, and no hold could be taken back"
        )),
        Some(span_s) if span_s > 0 && value.starts_with(|first: char| first.is_ascii_digit()) => {
            Ok(value.into())
        }
        _ => Err(format!("{value:?} is no span: say 30d, 12h or off")),
    }
}
