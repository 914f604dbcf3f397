//! Times as people read them.

/// RFC 3339, UTC, with milliseconds.
pub fn text(wall_ns: u64) -> String {
    let (days, ns) = (wall_ns / DAY_NS, wall_ns % DAY_NS);
    let (year, month, day) = date(days);
    let (seconds, ms) = (ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The civil date of a day since 1970-01-01: years counted from March, so that the leap day is the
/// last (Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const DAY_NS: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// By `date -u -d @SECONDS`.
    #[test]
    fn times_are_civil() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (1_795_246_380, "2026-11-21T07:33:00.007Z"),
        ] {
            assert_eq!(text(seconds * 1_000_000_000 + 7_000_000), expected);
        }
    }
}
