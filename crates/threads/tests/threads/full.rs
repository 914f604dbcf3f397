//! A full pool, and many threads at once whose changes need no more room than there was; and
//! admission beside it.

use std::sync::LazyLock;

use aquifer_checker::bed::Shape;
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;
use aquifer_threads::bed::{Base, Bed, DATASET, base};
use aquifer_threads::block_on;
use aquifer_threads::run::permute;
use aquifer_threads::schedule::seed;

const FILES: u64 = 6;

/// Files, and no room for more.
pub static BASE: Base = LazyLock::new(|| {
    base(Shape::FullSingle, async |service| {
        let root = service.files.root(DATASET).unwrap();
        for at in 0..FILES {
            let file = make(service, root, &format!("f{at}")).await.unwrap();
            let data = noise(at, 64 << 10);
            write(service, file, 0, &data).await.unwrap();
        }
        let filler = make(service, root, "filler").await.unwrap();
        let mut offset = 0;
        for size in [1 << 20, 64 << 10, 4096] {
            let data = noise(size, size as usize);
            while write(service, filler, offset, &data).await.is_ok() {
                offset += size;
                // Changes under way count with their worst case.
                service.pool.sync().await.unwrap();
            }
        }
    })
});

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Rng::stream(seed, "noise").fill(&mut data);
    data
}

async fn make(service: &Service, root: FileHandle, name: &str) -> Result<FileHandle, FsError> {
    let how = CreateHow::Unchecked(SetAttributes::default());
    let made =
        service.files.create(&Credentials::root(), root, name.as_bytes(), how).await.kept().await.0;
    made.map(|made| made.handle)
}

async fn write(
    service: &Service,
    file: FileHandle,
    offset: u64,
    data: &[u8],
) -> Result<(), FsError> {
    let (cred, how) = (Credentials::root(), Stability::Unstable);
    service.files.write(&cred, file, offset, data, how).await.0.map(drop)
}

pub fn all_get_their_turn() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let root = bed.service.files.root(DATASET).unwrap();
        let thread = |at: u64| {
            let service = bed.service.clone();
            bed.world.thread(async move || {
                let (cred, files) = (Credentials::root(), &service.files);
                let mut rng = Rng::stream(seed(), &format!("full {at}"));
                let name = format!("f{at}");
                let file = files.lookup(&cred, root, name.as_bytes()).await.0.unwrap().handle;
                for turn in 0..8 {
                    match rng.below(4) {
                        0 => {
                            let mode = Some(0o400 | turn);
                            let set = SetAttributes { mode, ..SetAttributes::default() };
                            files.setattr(&cred, file, &set, None).await.kept().await.0.unwrap();
                        }
                        1 => {
                            let other = format!("g{at}");
                            let there = (root, name.as_bytes());
                            let here = (root, other.as_bytes());
                            files.rename(&cred, there, here).await.kept().await.0.unwrap();
                            files.rename(&cred, here, there).await.kept().await.0.unwrap();
                        }
                        2 => {
                            // Overwrites need no more room, either.
                            let data = noise(rng.next_u64(), 16 << 10);
                            write(&service, file, 0, &data).await.unwrap();
                        }
                        _ => {
                            let refused = write(&service, file, 1 << 20, &noise(9, 1 << 20)).await;
                            assert_eq!(refused, Err(FsError::NoSpace));
                        }
                    }
                }
            })
        };
        let threads: Vec<_> = (0..FILES / 2).map(thread).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(bed.service.pool.suspended(), None);
        bed.close_full().await;
    });
}

#[test]
fn what_needs_no_room_gets_it_in_turn() {
    permute(&[&BASE], all_get_their_turn, 5);
}
