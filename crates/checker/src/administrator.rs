//! An administrator: datasets come and go beside the one that clients share, and that one is
//! `sync=always` now and then.

use aquifer_files::{CreateHow, Credentials, FileHandle, Service, SetAttributes, Stability};
use aquifer_sim::Rng;

use crate::lives::DATASET;

/// Acts so often.
///
/// # Errors
/// An act that should have succeeded.
pub(crate) async fn administer(service: &Service, mut rng: Rng, acts: u64) -> Result<(), String> {
    for _ in 0..acts {
        let name = format!("tank/other{}", rng.below(3));
        let datasets = &service.datasets;
        let done = match (rng.below(4), datasets.by_name(&name).is_some()) {
            (0, _) => {
                let sync = if rng.coin() { "always" } else { "standard" };
                datasets.set(DATASET, "sync", Some(sync)).await
            }
            (1, true) => datasets.destroy(&name, true).await,
            (_, true) => Ok(()),
            (_, false) => datasets.create(&name, &[]).await,
        };
        done.map_err(|error| format!("administrator: {name}: {error}"))?;
        if let Some(top) = service.files.root(&name) {
            populate(service, top, &mut rng).await?;
        }
    }
    Ok(())
}

/// Some files, so that there is something to be freed.
async fn populate(service: &Service, top: FileHandle, rng: &mut Rng) -> Result<(), String> {
    let cred = Credentials::root();
    for _ in 0..rng.below(6) {
        let name = format!("f{}", rng.below(1000));
        let how = CreateHow::Unchecked(SetAttributes::default());
        let made = service.files.create(&cred, top, name.as_bytes(), how).await.0;
        let made = made.map_err(|error| format!("administrator: {name}: {error}"))?;
        let mut data = vec![0; 4096 * (1 + rng.index(12))];
        rng.fill(&mut data);
        let stability = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
        let written = service.files.write(&cred, made.handle, 0, &data, stability).await.0;
        written.map_err(|error| format!("administrator: {name}: {error}"))?;
    }
    Ok(())
}
