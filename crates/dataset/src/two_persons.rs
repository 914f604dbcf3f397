//! The property `two_persons` of a pool: whether acts over the network that lose something wait for
//! a second person.
//!
//! The engine keeps it. Who asks for acts, and who confirms them, is known above it.

use std::fmt;

use aquifer_meter::time::parse_span;

/// Longest delay, in seconds. An act that waits is kept in memory: a restart forgets it.
const DELAY_S_MAX: u64 = 30 * 86_400;

/// A value of the property. Each is stricter than those before it, and a longer delay than a
/// shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TwoPersons {
    /// Nothing waits.
    #[default]
    Off,
    /// An act is carried out after so many seconds, unless somebody refuses it.
    Delay(u64),
    /// An act is carried out once somebody else confirms it.
    On,
}

impl TwoPersons {
    /// Reads a value of the property: `off`, `on`, or `delay=SPAN`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(value: &str) -> Result<TwoPersons, String> {
        let none = || format!("{value:?} is not one of off, on, delay=24h");
        match value {
            "off" => return Ok(TwoPersons::Off),
            "on" => return Ok(TwoPersons::On),
            _ => {}
        }
        let span = value.strip_prefix("delay=").ok_or_else(none)?;
        let digits = span.starts_with(|first: char| first.is_ascii_digit());
        match parse_span(span).filter(|_| digits) {
            Some(0) | None => Err(none()),
            Some(span_s) if span_s > DELAY_S_MAX => Err(format!(
                "{value:?} is more than {} days: a restart forgets what waits",
                DELAY_S_MAX / 86_400
            )),
            Some(span_s) => Ok(TwoPersons::Delay(span_s)),
        }
    }
}

impl fmt::Display for TwoPersons {
    /// As [`TwoPersons::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TwoPersons::Off => f.write_str("off"),
            TwoPersons::Delay(seconds) => write!(f, "delay={seconds}s"),
            TwoPersons::On => f.write_str("on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_ordered_by_how_strict_they_are() {
        let values = ["off", "delay=1s", "delay=2m", "delay=24h", "delay=30d", "on"];
        let parsed = values.map(|value| TwoPersons::parse(value).unwrap());
        assert!(parsed.is_sorted() && parsed[1] != parsed[2]);
        assert_eq!(parsed[3], TwoPersons::Delay(86_400));
        assert_eq!(parsed.map(|value| TwoPersons::parse(&value.to_string()).unwrap()), parsed);
        for bad in ["", "On", "yes", "delay", "delay=", "delay=0s", "delay=5", "delay=+5d", "24h"] {
            let why = TwoPersons::parse(bad).unwrap_err();
            assert!(why.contains("delay=24h"), "{why}");
        }
        assert!(TwoPersons::parse("delay=31d").unwrap_err().contains("30 days"));
    }
}
