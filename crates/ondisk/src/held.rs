//! Until when holds with an end stand in a pool, as its labels say it.
//!
//! Such a hold is to stand against every right. One who writes over the disks would end it all the
//! same, so the labels carry the time: software that takes disks for something else reads no more
//! of a pool than its labels. It is the feature `held-until-SECONDS` among `features_write`, in
//! decimal, the latest end of all holds, rounded up to [`ROUND_S`]. A pool names one at a time. It
//! stays when its time has passed, and means nothing then.

/// The beginning of the feature's name.
const PREFIX: &str = "held-until-";
/// Labels are written again when the time rises by so much, not for each hold.
pub const ROUND_S: u64 = 3600;

/// The feature that says a time, in seconds since 1970.
pub fn held_feature(until_s: u64) -> String {
    format!("{PREFIX}{until_s}")
}

/// The time that a feature says; `None`: it is another one.
pub fn held_until_of(feature: &str) -> Option<u64> {
    let until_s = feature.strip_prefix(PREFIX)?.parse().ok()?;
    // In one form alone.
    (held_feature(until_s) == feature).then_some(until_s)
}

/// The time until which holds stand, by the features of a label.
pub fn held_until(features: &[String]) -> Option<u64> {
    features.iter().filter_map(|feature| held_until_of(feature)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_one_form() {
        for until_s in [0, 1, 1_795_726_800, u64::MAX] {
            assert_eq!(held_until_of(&held_feature(until_s)), Some(until_s));
        }
        let others = [
            "held-until-",
            "held-until-01",
            "held-until--1",
            "held-until-+1",
            "held-until-1 ",
            "held-until-18446744073709551616",
            "keeping",
            "",
        ];
        for other in others {
            assert_eq!(held_until_of(other), None, "{other:?}");
        }
        let features = ["keeping".into(), held_feature(7), held_feature(9)];
        assert_eq!(held_until(&features), Some(9));
        assert_eq!(held_until(&features[..1]), None);
    }
}
