//! Times in a form for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// RFC 3339, UTC, with milliseconds.
pub fn text(wall_ns: u64) -> String {
    let ms = wall_ns / 1_000_000 % 1000;
    format!("{}.{ms:03}Z", to_second(wall_ns / 1_000_000_000))
}

/// RFC 3339, UTC, from seconds since 1970.
pub fn text_s(seconds: u64) -> String {
    format!("{}Z", to_second(seconds))
}

fn to_second(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY_S);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds of a time span as people write it: `90d`, `12h`, `30m`, `45s`, `2w`.
pub fn parse_span(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY_S,
        "w" => 7 * DAY_S,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds)
}

/// The first second of a day, `2027-01-31`, in UTC.
pub fn parse_date(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    first_second((parts.next()??, parts.next()??, parts.next()??))
}

/// A moment, in UTC: `2027-01-31T03:20`, with seconds or without, with a space for `T`, with `Z`
/// or without; a day alone is its first second; a time alone (`03:20`) is the last such before
/// `now_s`.
pub fn parse_moment(text: &str, now_s: u64) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    if let Some((day, time)) = text.split_once(['T', ' ']) {
        return parse_date(day)?.checked_add(second_of_day(time)?);
    }
    if !text.contains(':') {
        return parse_date(text);
    }
    let (today, second) = (now_s - now_s % DAY_S, second_of_day(text)?);
    let day = if today + second > now_s { today.checked_sub(DAY_S)? } else { today };
    Some(day + second)
}

fn second_of_day(text: &str) -> Option<u64> {
    let parts: Option<Vec<u64>> = text.split(':').map(|part| part.parse().ok()).collect();
    let (hour, minute, second) = match parts?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

/// The first second of a day, given by year, month and day, in UTC.
pub fn first_second(wanted: (u64, u64, u64)) -> Option<u64> {
    // Finds the day by converting each to its date: there is only one conversion, and it is tested.
    let first = wanted.0.checked_sub(1970)?.checked_mul(365)?;
    (wanted.0 < 10_000).then_some(())?;
    (first..first + YEAR_DAYS_SLACK).find(|day| date(*day) == wanted).map(|day| day * DAY_S)
}

/// Year, month and day of a time in seconds since 1970, in UTC.
pub fn date_of(seconds: u64) -> (u64, u64, u64) {
    date(seconds / DAY_S)
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

const DAY_S: u64 = 86_400;
/// Days of a year, and the leap days of 8,000.
const YEAR_DAYS_SLACK: u64 = 366 + 8000 / 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with `date -u -d @SECONDS`.
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

    #[test]
    fn spans_and_dates_are_read_as_people_write_them() {
        assert_eq!(parse_span("90d"), Some(7_776_000));
        assert_eq!(
            ["1h", "30m", "45s", "2w"].map(parse_span).map(Option::unwrap).to_vec(),
            [3600, 1800, 45, 1_209_600]
        );
        for wrong in ["", "d", "90", "-1d", "1y", "99999999999999999999d", "9999999999999999w"] {
            assert_eq!(parse_span(wrong), None, "{wrong}");
        }
        for (date, text) in [
            ("1970-01-01", "1970-01-01T00:00:00Z"),
            ("2027-01-31", "2027-01-31T00:00:00Z"),
            ("2028-02-29", "2028-02-29T00:00:00Z"),
            ("9999-12-31", "9999-12-31T00:00:00Z"),
        ] {
            assert_eq!(text_s(parse_date(date).unwrap()), text);
        }
        let now_s = parse_date("2027-01-31").unwrap() + 3600;
        for (moment, text) in [
            ("2027-01-31T03:20", "2027-01-31T03:20:00Z"),
            ("2027-01-31 23:59:59Z", "2027-01-31T23:59:59Z"),
            ("2027-01-31", "2027-01-31T00:00:00Z"),
            ("00:59", "2027-01-31T00:59:00Z"),
            ("01:01", "2027-01-30T01:01:00Z"),
        ] {
            assert_eq!(text_s(parse_moment(moment, now_s).unwrap()), text);
        }
        for wrong in ["24:00", "1:60", "", "now", "2027-01-31T", "1:2:3:4", "T12:00"] {
            assert_eq!(parse_moment(wrong, now_s), None, "{wrong}");
        }
        for wrong in ["2027-02-29", "2027-13-01", "1969-12-31", "2027-1", "soon", "10000-01-01"] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
    }
}
