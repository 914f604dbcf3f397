//! Sizes as people read them.

/// A size as `zfs` takes it: a number with K, M, G, T or P behind it, in powers of 1024.
pub use aquifer_dataset::property::parse_bytes as parse;

/// Bytes with a unit of 1024, three digits that count: `10G`, `1.50G`, `512M`, `0B`.
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
    // In hundredths, rounded down: what is shown is there.
    let rest = bytes - (whole << shift);
    let hundredths = u64::try_from((u128::from(rest) * 100) >> shift).unwrap_or(0);
    match (hundredths, whole) {
        (0, _) => format!("{whole}{unit}"),
        (_, 0..10) => format!("{whole}.{hundredths:02}{unit}"),
        (_, 10..100) => format!("{whole}.{}{unit}", hundredths / 10),
        _ => format!("{whole}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
