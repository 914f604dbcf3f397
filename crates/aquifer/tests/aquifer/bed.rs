//! Set-up of tests of served pools.

use aquifer_rig::removable::Removable;

use crate::eyes::client::Client;
use crate::support::{Daemon, Place};

/// A daemon with a pool on one disk, and a client that has a file there.
pub struct Served {
    pub place: Place,
    pub disk: String,
    pub daemon: Daemon,
    pub client: Client,
    /// The handle of the root directory of `tank/vms`.
    pub root: Vec<u8>,
    /// That of the file `disk.raw`.
    pub file: Vec<u8>,
}

pub fn served() -> Served {
    let place = Place::new();
    let disk = place.image("a");
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    Served { place, disk, daemon, client, root, file }
}

/// A pool with a file system that is exported, and a file there: its handle.
pub fn with_file(place: &Place, pool: &str, disks: &[&str]) -> Vec<u8> {
    place.must(&[&["pool", "create", pool], disks].concat());
    let dataset = format!("{pool}/vms");
    place.must(&["create", "-o", "sharenfs=insecure", &dataset]);
    let mut client = Client::new(place, "127.0.0.1");
    let root = client.mount(&format!("/{dataset}"));
    client.create(&root, "disk.raw")
}

/// A disk that can vanish and hang; `None`, and a message, where there can be none.
pub fn removable(place: &Place, name: &str) -> Option<Removable> {
    if !Removable::can_be() {
        eprintln!("SKIPPED: disks that vanish need root and /dev/fuse");
        return None;
    }
    let image = place.image(&format!("{name}.img"));
    Some(Removable::new(image.as_ref(), &place.path(name)).unwrap())
}

/// Content that nothing compresses, another for each number.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

const MIB: usize = 1 << 20;

/// Writes noise of this seed to a file, from so many MiB on.
pub fn fill(client: &mut Client, file: &[u8], seed: u64, from: usize, mib: usize) {
    let content = noise(seed, mib * MIB);
    for (at, piece) in content.chunks(65536).enumerate() {
        client.write(file, (from * MIB + at * 65536) as u64, piece, false);
    }
    client.commit(file);
}

/// Compares what [`fill`] wrote.
#[track_caller]
pub fn has(client: &mut Client, file: &[u8], seed: u64, from: usize, mib: usize) {
    let content = noise(seed, mib * MIB);
    for (at, piece) in content.chunks(65536).enumerate() {
        let offset = (from * MIB + at * 65536) as u64;
        assert!(client.read_bytes(file, offset, 65536).unwrap() == piece, "{at}");
    }
}
