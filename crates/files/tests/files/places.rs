//! A name in the top directory of a dataset means an entry, or a dataset below.

use aquifer_dataset::DatasetError;
use aquifer_files::{FsError, Service, SetAttributes};
use aquifer_sim::Rng;
use futures_util::future::join;

use crate::bed::{Bed, find, make, root};
use crate::receive::{receive, snapshot, stream};

async fn mkdir(service: &Service, name: &str) -> Result<(), FsError> {
    let top = service.files.root("tank").unwrap();
    let set = SetAttributes::default();
    service.files.mkdir(&root(), top, name.as_bytes(), &set).await.kept().await.0.map(drop)
}

fn is_taken(done: Result<(), DatasetError>) -> bool {
    matches!(done, Err(DatasetError::BadName { why, .. }) if why.contains("file or directory"))
}

/// No dataset comes over what clients may have mounted, in any way.
#[test]
pub fn no_dataset_is_made_over_an_entry() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        mkdir(&service, "iso").await.unwrap();
        make(&service, service.files.root("tank").unwrap(), "file").await;
        datasets.create("tank/d", &[]).await.unwrap();
        snapshot(&service, "tank/d@a").await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        for name in ["tank/iso", "tank/file"] {
            assert!(is_taken(datasets.create(name, &[]).await), "{name}");
            assert!(is_taken(datasets.rename("tank/d", name).await), "{name}");
            assert!(is_taken(datasets.clone_snapshot("tank/d@a", name, &[]).await), "{name}");
            let refused = receive(&service, name, &sent, Default::default()).await.unwrap_err();
            assert!(refused.to_string().contains("file or directory"), "{refused}");
            assert!(datasets.by_name(name).is_none());
        }
        // Below another dataset, and when it is gone, the name is free.
        datasets.create("tank/d/iso", &[]).await.unwrap();
        let top = service.files.root("tank").unwrap();
        service.files.rmdir(&root(), top, b"iso").await.kept().await.0.unwrap();
        datasets.create("tank/iso", &[]).await.unwrap();
    });
    bed.assert_clean();
}

/// Nor is anything made where a dataset is.
#[test]
pub fn no_entry_gets_the_name_of_a_dataset() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        service.datasets.create("tank/d", &[]).await.unwrap();
        let file = make(&service, top, "file").await;
        mkdir(&service, "other").await.unwrap();
        let other = find(&service, "tank", "other").await.unwrap();
        assert_eq!(mkdir(&service, "d").await, Err(FsError::Exists));
        let linked = service.files.link(&root(), file, top, b"d").await.kept().await.0;
        assert_eq!(linked.map(drop), Err(FsError::Exists));
        let moved = service.files.rename(&root(), (top, b"file"), (top, b"d")).await.kept().await.0;
        assert_eq!(moved, Err(FsError::Exists));
        // Only in the top directory.
        let moved = service.files.rename(&root(), (top, b"file"), (other, b"d")).await;
        moved.kept().await.0.unwrap();
        service.datasets.rename("tank/d", "tank/e").await.unwrap();
        mkdir(&service, "d").await.unwrap();
        assert_eq!(mkdir(&service, "e").await, Err(FsError::Exists));
        service.datasets.destroy("tank/e", false).await.unwrap();
        mkdir(&service, "e").await.unwrap();
    });
    bed.assert_clean();
}

/// Of two that come at once, one has the name.
#[test]
fn one_of_two_has_the_name() {
    let mut bed = Bed::new(1, 65536);
    let won = bed.life(async |service| {
        let mut rng = Rng::stream(1, "places");
        let mut won = [0; 2];
        for at in 0..40 {
            let (name, full) = (format!("n{at}"), format!("tank/n{at}"));
            let wait = [rng.below(60), rng.below(60)].map(std::time::Duration::from_micros);
            let world = service.pool.world();
            let directory = async {
                world.sleep(wait[0]).await;
                mkdir(&service, &name).await
            };
            let dataset = async {
                world.sleep(wait[1]).await;
                service.datasets.create(&full, &[]).await
            };
            let (directory, dataset) = join(directory, dataset).await;
            assert_ne!(directory.is_ok(), dataset.is_ok(), "{directory:?} and {dataset:?}");
            won[usize::from(dataset.is_ok())] += 1;
        }
        won
    });
    assert!(won.into_iter().min() > Some(0), "{won:?}: only one came first");
    bed.assert_clean();
}
