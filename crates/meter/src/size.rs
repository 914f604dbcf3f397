//! Sizes as people write and read them.

/// A size in the syntax of `zfs`: a number followed by K, M, G, T or P, in powers of 1024.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['B', 'b', 'i']);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let exponent = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    let unit = 1u64 << (10 * exponent);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let digits = u32::try_from(fraction.len()).ok().filter(|count| *count <= 6)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)? / 10u64.pow(digits);
    whole.checked_add(part)
}

/// Bytes with a unit of 1024 and three significant digits: `10G`, `1.50G`, `512M`, `0B`.
pub fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P", "E"];
    let mut shift = 0u32;
    let mut unit = "B";
    for (step, name) in (1u32..).zip(units) {
        if bytes >> (10 * step) == 0 {
            break;
        }
        (shift, unit) = (10 * step, name);
    }
    let whole = bytes >> shift;
    // In hundredths, rounded down: never more than there is.
    let rest = bytes - (whole << shift);
    let hundredths = u64::try_from((u128::from(rest) * 100) >> shift).unwrap_or(0);
    match (hundredths, whole) {
        (0, _) => format!("{whole}{unit}"),
        (_, 0..10) => format!("{whole}.{hundredths:02}{unit}"),
        (_, 10..100) => format!("{whole}.{}{unit}", hundredths / 10),
        _ => format!("{whole}{unit}"),
    }
}

/// How many times as large content was before compression, in hundredths, rounded down. 100 if
/// there is none.
pub fn ratio_hundredths(stored_bytes: u64, logical_bytes: u64) -> u64 {
    let ratio = (u128::from(logical_bytes) * 100).checked_div(u128::from(stored_bytes));
    ratio.map_or(100, |ratio| u64::try_from(ratio).unwrap_or(u64::MAX))
}

/// A ratio as `zfs` writes it: `1.53x`.
pub fn ratio(hundredths: u64) -> String {
    format!("{}.{:02}x", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_two_digits_behind_the_point() {
        for (stored, logical, text) in [
            (0, 0, "1.00x"),
            (4096, 4096, "1.00x"),
            (4096, 8 * 4096, "8.00x"),
            (3, 4, "1.33x"),
            (1000, 1999, "1.99x"),
            (1, u64::MAX, "184467440737095516.15x"),
        ] {
            assert_eq!(ratio(ratio_hundredths(stored, logical)), text);
        }
    }

    #[test]
    fn sizes_have_three_digits_that_count() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10 << 30, "10G"),
            ((10 << 30) + (256 << 20), "10.2G"),
            ((1 << 40) - 1, "1023G"),
            (256 << 20, "256M"),
            (u64::MAX, "15.9E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse("512"), Some(512));
        assert_eq!(parse("1K"), Some(1024));
        assert_eq!(parse("1.5G"), Some(3 << 29));
        assert_eq!(parse("10GiB"), Some(10 << 30));
        for bad in ["", "G", "1X", "-1", "1.2.3", "99999999P", "1.1234567G"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
