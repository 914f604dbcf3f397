//! Label configs.

use aquifer_ondisk::config::{
    FEATURE_BYTES_MAX, Label, LeafConfig, PATH_BYTES_MAX, POOL_NAME_BYTES_MAX, PoolConfig,
    Redundancy, Stands, VDEV_SEGMENTS_MAX, VdevClass, VdevConfig,
};
use aquifer_ondisk::layout::{LEAVES_MAX, metaslab_segments};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{guid, sequence, text, txg};

pub fn label() -> impl Strategy<Value = Label> {
    let config = (
        sequence(),
        guid(),
        text(POOL_NAME_BYTES_MAX),
        vec(text(FEATURE_BYTES_MAX), 0..5),
        vec(text(FEATURE_BYTES_MAX), 0..5),
        vec(vdev(), 0..=8),
        (vec(any_leaf(), 0..=3), vec(any_leaf(), 0..=2)),
    );
    let config = config.prop_map(
        |(config_sequence, pool_guid, name, features_read, features_write, vdevs, disks)| {
            let (spares, caches) = disks;
            PoolConfig {
                config_sequence,
                pool_guid,
                name,
                features_read,
                features_write,
                vdevs,
                spares,
                caches,
            }
        },
    );
    (guid(), 0u8..4, config).prop_map(|(leaf_guid, index, config)| Label {
        leaf_guid,
        index,
        config,
    })
}

fn vdev() -> impl Strategy<Value = VdevConfig> {
    let class = prop_oneof![Just(VdevClass::Data), Just(VdevClass::Log)];
    let redundancy = prop_oneof![Just(Redundancy::Single), Just(Redundancy::Mirror)];
    let leaves = vec(any_leaf(), 1..=LEAVES_MAX / 9);
    let sizes = (0..=VDEV_SEGMENTS_MAX, prop_oneof![Just(None), (4u32..=12).prop_map(Some)]);
    (guid(), class, redundancy, sizes, txg(), leaves).prop_map(
        |(guid, class, redundancy, (segments, shift), birth, leaves)| VdevConfig {
            guid,
            class,
            redundancy,
            segments,
            birth,
            metaslab_segments: shift.map_or(metaslab_segments(segments), |shift| 1 << shift),
            grown_from_segments: shift.map_or(0, |shift| segments >> shift),
            leaves,
        },
    )
}

fn any_leaf() -> impl Strategy<Value = LeafConfig> {
    let stands = prop_oneof![
        3 => Just(Stands::ForItself),
        1 => guid().prop_map(Stands::Replaces),
        1 => guid().prop_map(Stands::SpareFor),
    ];
    (guid(), any::<u64>(), text(PATH_BYTES_MAX), any::<bool>(), stands).prop_map(
        |(guid, sectors, path, offline, stands)| LeafConfig {
            guid,
            sectors,
            path,
            offline,
            stands,
        },
    )
}
