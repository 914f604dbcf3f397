//! A disk that can vanish, hang and come back: an image file that a process of its own shows by FUSE
//! (QEMU's storage daemon). Killed, it gives errors; stopped, it does not answer.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use aquifer_rig::process::{Invocation, Process};
use rustix::process::Signal;

use crate::support::{Place, has};

pub struct Removable {
    /// As the pool knows it.
    pub path: String,
    /// What it holds.
    pub image: String,
    log: std::path::PathBuf,
    process: Option<Process>,
}

impl Removable {
    /// A new disk; `None`, and a message, where there can be none.
    pub fn new(place: &Place, name: &str) -> Option<Removable> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: disks that vanish need root and /dev/fuse");
            return None;
        }
        if !has("qemu-storage-daemon") {
            return None;
        }
        let image = place.image(&format!("{name}.img"));
        let (path, log) = (place.text(name), place.path(&format!("{name}.log")));
        fs::File::create(&path).unwrap();
        let mut disk = Removable { path, image, log, process: None };
        disk.come_back();
        Some(disk)
    }

    /// From now on the disk gives errors.
    pub fn vanish(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill9();
        }
    }

    /// From now on it does not answer.
    pub fn hang(&self) {
        self.process.as_ref().unwrap().signal(Signal::STOP).unwrap();
    }

    /// It answers again.
    pub fn answer(&self) {
        self.process.as_ref().unwrap().signal(Signal::CONT).unwrap();
    }

    /// Nothing is at its path any more but an empty file.
    pub fn unmount(&self) {
        let _ = Command::new("umount").args(["--lazy", &self.path]).output();
    }

    /// It is there again, at the same path. For the kernel it is another disk.
    pub fn come_back(&mut self) {
        self.show(&self.image.clone());
    }

    /// Another disk is at its path.
    pub fn show(&mut self, image: &str) {
        self.vanish();
        self.unmount();
        let export = format!(
            "type=fuse,id=e,node-name=d,mountpoint={},writable=on,growable=off,allow-other=off",
            self.path
        );
        let blockdev = format!("driver=file,node-name=d,discard=unmap,filename={image}");
        let daemon = Invocation::new("qemu-storage-daemon")
            .args(["--blockdev", &blockdev])
            .args(["--export", &export]);
        self.process = Some(daemon.spawn(&self.log).unwrap());
        let limit = Instant::now() + Duration::from_secs(10);
        while fs::metadata(&self.path).map_or(0, |meta| meta.len()) == 0 {
            assert!(Instant::now() < limit, "{:?}", fs::read_to_string(&self.log));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Removable {
    fn drop(&mut self) {
        self.vanish();
        self.unmount();
    }
}
