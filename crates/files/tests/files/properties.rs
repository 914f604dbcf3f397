//! Properties: several are set in one txg or not at all, users have some of their own, and limits
//! below what is used are refused. What is being freed is counted.

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

/// Properties of users: many, long, and set together with others.
#[test]
fn properties_of_users_are_kept_inherited_and_changed_in_one_txg() {
    let mut bed = Bed::new(2, 65536);
    let long = "x\u{e9}\n".repeat(2048);
    let value = |service: &Service, name: &str, property: &str| {
        let dataset = service.datasets.by_name(name).unwrap();
        let all = service.datasets.user_values(&dataset);
        all.into_iter().find(|(of, ..)| of == property).map(|(_, value, source)| (value, source))
    };
    let is = |value: &str, source: &str| Some((value.to_string(), source.to_string()));
    bed.life(async |service| {
        service.datasets.create(VMS, &pairs(&[("a:made", "with it")])).await.unwrap();
        service.datasets.create("tank/vms/deep", &[]).await.unwrap();
        let three = [("a:long", Some(long.as_str())), ("a:empty", Some("")), ("quota", Some("1G"))];
        set_all(&service, &three).await.unwrap();
        service.datasets.set("tank", "a:made", Some("above")).await.unwrap();
    });
    bed.assert_clean();
    // All that was long goes with a short value, and with the name.
    bed.cut_life(async |service| {
        assert_eq!(value(&service, VMS, "a:long"), is(&long, "local"));
        assert_eq!(value(&service, VMS, "a:empty"), is("", "local"));
        assert_eq!(
            value(&service, "tank/vms/deep", "a:long"),
            is(&long, "inherited from tank/vms")
        );
        let refused = [("a:long", None), ("quota", Some("1")), ("compression", Some("lzma"))];
        set_all(&service, &refused).await.unwrap_err();
        set_all(&service, &[("a:made", None), ("a:long", Some("short"))]).await.unwrap();
    });
    bed.assert_clean();
    bed.cut_life(async |service| {
        assert_eq!(value(&service, VMS, "a:long"), is("short", "local"));
        assert_eq!(value(&service, VMS, "a:made"), is("above", "inherited from tank"));
        let many: Vec<(String, Option<String>)> =
            (0..126).map(|at| (format!("b:{at}"), Some("y".repeat(400)))).collect();
        service.datasets.set_all(VMS, &many).await.unwrap();
        let why = service.datasets.set(VMS, "c:c", Some("z")).await.unwrap_err().to_string();
        assert!(why.contains("at most 128"), "{why}");
        let gone: Vec<_> = many.iter().skip(1).map(|(name, _)| (name.clone(), None)).collect();
        service.datasets.set_all(VMS, &gone).await.unwrap();
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name(VMS).unwrap();
        let names: Vec<String> =
            service.datasets.user_values(&dataset).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["a:empty", "a:long", "a:made", "b:0"]);
        service.datasets.destroy(VMS, true).await.unwrap();
        for _ in 0..20 {
            service.pool.sync().await.unwrap();
        }
    });
    // Nothing of it is left: `inspect` knows items without a dataset.
    bed.assert_clean();
}

/// Bytes that the background still frees: of removed files, destroyed snapshots, destroyed
/// datasets.
#[test]
fn what_is_being_freed_is_counted_until_it_is_free() {
    const PAGES: u64 = 4096;
    let mut bed = Bed::new(1, 131_072);
    // Freed piece by piece.
    bed.options.scale.reap_entries_max = 12;
    bed.life(async |service| {
        let off = pairs(&[("compression", "off")]);
        service.datasets.create(VMS, &off).await.unwrap();
        let top = service.files.root(VMS).unwrap();
        let fill = async |name: &str| {
            let file = make(&service, top, name).await;
            // One extent for each page.
            for page in (0..PAGES).map(|at| at * 2) {
                write(&service, file, page, &noise(page, 1), Stability::Unstable).await.unwrap();
            }
            service.pool.sync().await.unwrap();
        };
        let remove = async |name: &str| {
            service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
            service.pool.sync().await.unwrap();
        };
        let freeing = async || {
            let waits = service.datasets.waiting_bytes().await.unwrap();
            assert!(waits == 0 || service.datasets.are_any_freed());
            waits + service.datasets.freeing_bytes()
        };
        // Less and less, to nothing.
        let goes = async |from: u64| {
            assert!((PAGES * 4096 * 9 / 10..=PAGES * 4096 * 11 / 10).contains(&from), "{from}");
            let mut before = from;
            for _ in 0..2000 {
                service.pool.sync().await.unwrap();
                let now = freeing().await;
                assert!(now <= before, "{now} after {before}");
                before = now;
                if now == 0 {
                    return;
                }
            }
            panic!("{before} bytes are left");
        };
        assert_eq!(freeing().await, 0);
        fill("a").await;
        remove("a").await;
        goes(freeing().await).await;

        fill("b").await;
        service.datasets.snapshot(&[format!("{VMS}@x")], false).await.unwrap();
        remove("b").await;
        for _ in 0..2000 {
            if freeing().await == 0 {
                break;
            }
            service.pool.sync().await.unwrap();
        }
        let vms = service.datasets.by_name(VMS).unwrap();
        let taken = vms.snapshots(service.pool.committed_txg());
        let taken = taken.iter().map(|snapshot| snapshot.txg).collect();
        service.datasets.destroy_snapshots(&[(vms, taken)], false).await.unwrap();
        goes(freeing().await).await;

        fill("c").await;
        service.datasets.destroy(VMS, false).await.unwrap();
        goes(freeing().await).await;
    });
    bed.assert_clean();
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
