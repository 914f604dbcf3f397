//! Disks to test on: image files and loop devices, each through both engines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use aquifer_blockio::{Disk, Engine, FileDisk, OpenOptions, Page, PageMut, create_image};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A path to open, cleaned up when dropped.
pub struct Medium {
    pub name: &'static str,
    pub path: PathBuf,
    // Dropped in this order: the device goes before the file behind it.
    _device: Option<LoopDevice>,
    _folder: tempfile::TempDir,
}

impl Medium {
    pub fn image(sectors: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        create_image(&path, sectors).unwrap();
        Medium { name: "image", path, _device: None, _folder: folder }
    }

    /// `None`, with a message, where there are no loop devices.
    pub fn device(sectors: u64) -> Option<Self> {
        let image = Medium::image(sectors);
        let device = LoopDevice::attach(&image.path)?;
        Some(Medium {
            name: "loop device",
            path: device.0.clone(),
            _device: Some(device),
            _folder: image._folder,
        })
    }

    pub fn open(&self, engine: Engine) -> Arc<FileDisk> {
        let options = OpenOptions::exclusive().with_engine(engine);
        let disk = FileDisk::open(&self.path, options).unwrap();
        assert_eq!(disk.engine(), engine, "the kernel refuses io_uring: cannot test it here");
        Arc::new(disk)
    }
}

/// Every medium of `sectors` sectors that is available here.
pub fn media(sectors: u64) -> Vec<Medium> {
    let image = Medium::image(sectors);
    std::iter::once(image).chain(Medium::device(sectors)).collect()
}

/// Runs `test` on every medium with every engine.
pub fn on_all(sectors: u64, test: impl Fn(Arc<FileDisk>)) {
    for medium in media(sectors) {
        for engine in [Engine::Uring, Engine::Pread] {
            println!("-- {} with {engine:?}", medium.name);
            test(medium.open(engine));
        }
    }
}

/// An attached loop device, detached when dropped.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    pub fn attach(image: &Path) -> Option<Self> {
        LoopDevice::attach_with(image, &[])
    }

    pub fn attach_with(image: &Path, options: &[&str]) -> Option<Self> {
        if !Path::new("/dev/loop-control").exists() {
            eprintln!("SKIPPED: no /dev/loop-control here, so no loop devices");
            return None;
        }
        let losetup = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(image)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .output();
        match losetup {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8(output.stdout).unwrap();
                Some(LoopDevice(name.trim().into()))
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                eprintln!("SKIPPED: losetup {options:?} fails here: {said}");
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: losetup cannot be run here: {error}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be detached", self.0.display());
        }
    }
}

/// A current-thread runtime, as a daemon has one per core.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn random(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

pub fn below(random: &mut impl RngCore, limit: u64) -> u64 {
    random.next_u64() % limit
}

/// A page whose every word contains its place and version.
pub fn page(sector: u64, version: u64) -> Page {
    let mut page = PageMut::zeroed();
    let (words, _) = page.as_chunks_mut::<8>();
    for (index, word) in words.iter_mut().enumerate() {
        *word = mix(sector, version, index as u64).to_le_bytes();
    }
    page.freeze()
}

pub fn pages(sector: u64, count: u64, version: u64) -> Vec<Page> {
    (sector..sector + count).map(|at| page(at, version)).collect()
}

pub fn mix(sector: u64, version: u64, index: u64) -> u64 {
    (sector << 40 | version << 12 | index).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Fails unless `count` sectors from `sector` on hold `version`.
pub async fn expect(disk: &dyn Disk, sector: u64, count: u64, version: u64) {
    let found = disk.read(sector, usize::try_from(count).unwrap()).await.unwrap();
    assert_eq!(found.len() as u64, count);
    for (at, found) in (sector..).zip(found) {
        assert!(*found == *page(at, version), "sector {at} does not hold version {version}");
    }
}
