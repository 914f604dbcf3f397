//! Several properties are set in one txg or not at all; limits below what is used are refused.

use std::pin::pin;
use std::time::Duration;

use aquifer_dataset::{DatasetError, Property};
use aquifer_files::{Service, Stability};
use futures_util::future::select;

use crate::bed::{Bed, find, make, noise, root, write};

const VMS: &str = "tank/vms";

fn changes(of: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    of.iter().map(|(name, value)| ((*name).into(), value.map(String::from))).collect()
}

async fn set_all(service: &Service, of: &[(&str, Option<&str>)]) -> Result<(), DatasetError> {
    service.datasets.set_all(VMS, &changes(of)).await
}

fn values(service: &Service) -> Vec<(String, String)> {
    service.datasets.by_name(VMS).unwrap().local_values()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

#[test]
fn one_refused_value_leaves_all_as_they_were() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create(VMS, &pairs(&[("compression", "zstd")])).await.unwrap();
        let before = values(&service);
        let quota = ("quota", Some("1G"));
        for refused in [
            [quota, ("compression", Some("lzma"))],
            [quota, ("nonsense", Some("on"))],
            [quota, ("scrub", Some("off"))],
            [quota, ("quota", Some("2G"))],
            [("compression", None), ("reservation", Some("10G"))],
            // More than the quota that comes with it.
            [quota, ("reservation", Some("2G"))],
        ] {
            set_all(&service, &refused).await.unwrap_err();
            assert_eq!(values(&service), before, "{refused:?}");
        }
        // Txgs of one act, and not of one for each.
        let txg = service.pool.committed_txg().0;
        let three = [("compression", None), ("quota", Some("64M")), ("reservation", Some("32M"))];
        set_all(&service, &three).await.unwrap();
        assert!(service.pool.committed_txg().0 <= txg + 2);
        assert_eq!(values(&service), pairs(&[("quota", "67108864"), ("reservation", "33554432")]));
        // They fit together, though not with what was set before.
        let both = [("quota", Some("16M")), ("reservation", Some("8M"))];
        set_all(&service, &both).await.unwrap();
        assert_eq!(values(&service), pairs(&[("quota", "16777216"), ("reservation", "8388608")]));
        set_all(&service, &[("quota", Some("32M")), ("reservation", Some("32M"))]).await.unwrap();
    });
    bed.assert_clean();
}

/// A change that is refused at the end leaves the dataset unlogged, as its property says.
#[test]
fn sync_stays_as_it_was_if_another_value_is_refused() {
    let mut bed = Bed::new(1, 65536);
    let disabled = Some("disabled:a test");
    bed.life(async |service| {
        service.datasets.create(VMS, &[]).await.unwrap();
        let both = [("sync", disabled), ("reservation", Some("10G"))];
        set_all(&service, &both).await.unwrap_err();
        let dataset = service.datasets.by_name(VMS).unwrap();
        service.pool.sync().await.unwrap();
        assert!(dataset.is_logged(&service.pool));
        set_all(&service, &[("sync", disabled), ("readonly", Some("off"))]).await.unwrap();
        assert!(!dataset.is_logged(&service.pool));
        let both = [("sync", Some("standard")), ("reservation", Some("10G"))];
        set_all(&service, &both).await.unwrap_err();
        assert!(!dataset.is_logged(&service.pool));
        set_all(&service, &[("sync", None), ("readonly", None)]).await.unwrap();
        assert!(dataset.is_logged(&service.pool));
    });
    bed.assert_clean();
}

#[test]
fn a_cut_leaves_all_values_or_none() {
    let old = pairs(&[("compression", "off"), ("quota", "1073741824"), ("readonly", "off")]);
    let new = pairs(&[("quota", "2147483648"), ("readonly", "on"), ("snapdir", "visible")]);
    let (mut before, mut after) = (0, 0);
    for at in 0..40 {
        let mut bed = Bed::new(1, 65536);
        let world = bed.world();
        bed.life(async |service| service.datasets.create(VMS, &old).await.unwrap());
        bed.cut_life(async |service| {
            let four = [
                ("compression", None),
                ("quota", Some("2G")),
                ("readonly", Some("on")),
                ("snapdir", Some("visible")),
            ];
            let set = async { set_all(&service, &four).await.unwrap() };
            let cut = world.sleep(Duration::from_micros(at * at * 20));
            select(pin!(set), pin!(cut)).await;
        });
        bed.life(async |service| match values(&service) {
            found if found == old => before += 1,
            found => {
                assert_eq!(found, new, "after {at}");
                after += 1;
            }
        });
        bed.assert_clean();
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after");
}

#[test]
fn a_quota_below_what_is_used_is_refused_with_what_is() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let off = pairs(&[("compression", "off")]);
        service.datasets.create("tank/up", &off).await.unwrap();
        for name in [VMS, "tank/up/a"] {
            service.datasets.create(name, &off).await.unwrap();
            let file = make(&service, service.files.root(name).unwrap(), "file").await;
            write(&service, file, 0, &noise(1, 512), Stability::Unstable).await.unwrap();
        }
        let set = async |name: &str, value: &str| {
            service.datasets.set(name, "quota", Some(value)).await.map_err(|why| why.to_string())
        };
        // What is not on disk yet counts, and so does what lies below.
        for name in [VMS, "tank/up"] {
            let why = set(name, "1M").await.unwrap_err();
            assert!(why.contains("1M (1048576 bytes) is less than the 2"), "{why}");
            assert!(why.contains(&format!("aquifer list -r -t all {name}")), "{why}");
            let dataset = service.datasets.by_name(name).unwrap();
            assert_eq!(service.datasets.value(&dataset, Property::Quota).0, "none");
            set(name, "3M").await.unwrap();
        }
        // What only a snapshot shows is used, too.
        service.datasets.snapshot(&[format!("{VMS}@x")], false).await.unwrap();
        let top = service.files.root(VMS).unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        set(VMS, "1M").await.unwrap_err();
        // Room that is being freed is waited for.
        let vms = service.datasets.by_name(VMS).unwrap();
        let taken = vms.snapshots(service.pool.committed_txg());
        let taken = taken.iter().map(|snapshot| snapshot.txg).collect();
        service.datasets.destroy_snapshots(&[(vms, taken)], false).await.unwrap();
        set(VMS, "1M").await.unwrap();
        assert!(find(&service, VMS, "file").await.is_err());
        // A reservation below it counts; none is larger than its quota.
        service.datasets.set("tank/up/a", "reservation", Some("2560K")).await.unwrap();
        let why = set("tank/up", "2304K").await.unwrap_err();
        assert!(why.contains("used or reserved") && why.contains("2.50M (2621440"), "{why}");
        let both = pairs(&[("quota", "1M"), ("reservation", "2M")]);
        let why = service.datasets.create("tank/new", &both).await.unwrap_err().to_string();
        assert!(why.contains("reservation") && why.contains("its quota"), "{why}");
        // A larger one always fits, and `none`.
        set("tank/up", "4M").await.unwrap();
        set("tank/up", "none").await.unwrap();
    });
    bed.assert_clean();
}
