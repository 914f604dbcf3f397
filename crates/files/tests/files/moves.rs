//! Datasets with another name, and in another place.

use aquifer_dataset::DatasetError;
use aquifer_files::{FsError, Service, Stability};

use crate::bed::{Bed, find, make, noise, write};

async fn create(service: &Service, names: &[&str]) {
    for name in names {
        service.datasets.create(name, &[]).await.unwrap();
    }
}

async fn set(service: &Service, name: &str, property: &str, value: &str) {
    service.datasets.set(name, property, Some(value)).await.unwrap();
}

fn names(service: &Service) -> Vec<String> {
    service.datasets.list().into_iter().map(|info| info.name).collect()
}

async fn rename(service: &Service, name: &str, new: &str) -> Result<(), DatasetError> {
    service.datasets.rename(name, new).await
}

#[test]
fn a_dataset_moves_with_all_below_and_its_handles() {
    let mut bed = Bed::new(1, 65536);
    let file = bed.cut_life(async |service| {
        // Those below are older than what they come under.
        create(&service, &["tank/a", "tank/a/child", "tank/b", "tank/b/deep"]).await;
        let root = service.files.root("tank/a").unwrap();
        let file = make(&service, root, "disk").await;
        write(&service, file, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        service.datasets.snapshot(&["tank/a@s".into()], false).await.unwrap();
        let inside = service.files.root("tank/a@s").unwrap();
        set(&service, "tank/b", "compression", "zstd").await;
        rename(&service, "tank/a", "tank/b/deep/c").await.unwrap();
        service.files.getattr(inside).await.unwrap();
        file
    });
    bed.assert_clean();
    bed.cut_life(async |service| {
        let all = ["tank", "tank/b", "tank/b/deep", "tank/b/deep/c", "tank/b/deep/c/child"];
        assert_eq!(names(&service), all, "it is on disk");
        let read = service.files.read(&aquifer_files::Credentials::root(), file, 0, 4096).await;
        assert!(read.is_ok(), "handles stay");
        assert_eq!(find(&service, "tank/b/deep/c", "disk").await.unwrap(), file);
        service.files.root("tank/b/deep/c@s").unwrap();
        let child = service.datasets.by_name("tank/b/deep/c/child").unwrap();
        let (value, source) =
            service.datasets.value(&child, aquifer_dataset::Property::Compression);
        assert_eq!((value.as_str(), source.as_str()), ("zstd", "inherited from tank/b"));
        let [b, deep, c] = ["tank/b", "tank/b/deep", "tank/b/deep/c"]
            .map(|name| service.datasets.used_bytes(&service.datasets.by_name(name).unwrap()));
        assert_eq!((b, deep), (c, c), "the others have nothing of their own");
        assert!(c >= 4096, "{c}");
        rename(&service, "tank/b/deep/c", "tank/b/deep/d").await.unwrap();
        for (name, new, why) in [
            ("tank/b", "tank/b/deep/x", "below the dataset itself"),
            ("tank/b", "tank/b/x", "below the dataset itself"),
            ("tank/b", "tank/b", "exists already"),
            ("tank/b/deep", "tank/b", "exists already"),
            ("tank/b", "dozer/b", "another pool"),
            ("tank/b", "dozer", "is a pool's name"),
            ("tank/b", "tank/none/b", "does not exist"),
            ("tank/none", "tank/c", "does not exist"),
            ("tank/b", "tank/x@y", "may hold letters"),
            ("tank", "tank/b/tank", "keeps its name"),
        ] {
            let said = rename(&service, name, new).await.unwrap_err().to_string();
            assert!(said.contains(why), "{name} {new}: {said}");
        }
    });
    bed.life(async |service| {
        assert!(names(&service).contains(&"tank/b/deep/d/child".to_string()));
        let refused = service.datasets.destroy("tank/b", false).await;
        assert!(matches!(refused, Err(DatasetError::HasChildren(_))));
        service.datasets.destroy("tank/b", true).await.unwrap();
        assert_eq!(names(&service), ["tank"], "those that are older go with it, too");
    });
    bed.assert_clean();
}

#[test]
fn a_dataset_takes_room_from_what_it_comes_under() {
    let mut bed = Bed::new(1, 65536);
    let mib = 256;
    bed.life(async |service| {
        create(&service, &["tank/a", "tank/small", "tank/kept"]).await;
        set(&service, "tank/small", "quota", "8M").await;
        let root = service.files.root("tank/a").unwrap();
        let file = make(&service, root, "disk").await;
        let bytes = noise(1, 6 * mib);
        write(&service, file, 0, &bytes, Stability::FileSync).await.unwrap();
        set(&service, "tank/small", "quota", "4M").await;
        let said = rename(&service, "tank/a", "tank/small/a").await.unwrap_err().to_string();
        assert!(said.contains("quota") && said.contains("too many in \"tank/small\""), "{said}");
        assert_eq!(names(&service), ["tank", "tank/a", "tank/kept", "tank/small"]);
        set(&service, "tank/small", "quota", "8M").await;
        rename(&service, "tank/a", "tank/small/a").await.unwrap();
        let more = noise(9, 4 * mib);
        let full = write(&service, file, 6 * mib as u64, &more, Stability::FileSync).await;
        assert_eq!(full.unwrap_err(), FsError::Quota);
        // A reservation above has what is below it: when that leaves, it lacks as much.
        rename(&service, "tank/small/a", "tank/kept/a").await.unwrap();
        let free = service.pool.writable_bytes();
        let keeps = (free + 4 * 1024 * 1024).to_string();
        set(&service, "tank/kept", "reservation", &keeps).await;
        let said = rename(&service, "tank/kept/a", "tank/a").await.unwrap_err().to_string();
        assert!(said.contains("reservation"), "{said}");
        assert!(names(&service).contains(&"tank/kept/a".to_string()));
        set(&service, "tank/kept", "reservation", "none").await;
        rename(&service, "tank/kept/a", "tank/a").await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn a_move_does_not_change_what_is_logged() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        create(&service, &["tank/a", "tank/fast"]).await;
        set(&service, "tank/fast", "sync", "disabled:a test").await;
        let said = rename(&service, "tank/a", "tank/fast/a").await.unwrap_err().to_string();
        assert!(said.contains("set it on \"tank/a\" itself first"), "{said}");
        set(&service, "tank/a", "sync", "standard").await;
        rename(&service, "tank/a", "tank/fast/a").await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn snapshots_are_renamed_everywhere_at_once_or_nowhere() {
    let mut bed = Bed::new(1, 65536);
    bed.cut_life(async |service| {
        create(&service, &["tank/a", "tank/b"]).await;
        service.datasets.snapshot(&["tank@old".into()], true).await.unwrap();
        service.datasets.snapshot(&["tank/b@taken".into()], false).await.unwrap();
        let all = ["tank@old", "tank/a@old", "tank/b@old"].map(|name| {
            let (dataset, snapshot) = service.datasets.snapshot_by_name(name).unwrap();
            (dataset, snapshot.txg)
        });
        assert!(service.datasets.rename_snapshots(&all, "taken").await.is_err());
        service.datasets.snapshot_by_name("tank/a@old").unwrap();
        service.datasets.rename_snapshots(&all, "new").await.unwrap();
    });
    bed.life(async |service| {
        for name in ["tank@new", "tank/a@new", "tank/b@new", "tank/b@taken"] {
            service.datasets.snapshot_by_name(name).unwrap();
        }
    });
    bed.assert_clean();
}
