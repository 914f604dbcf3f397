//! A file alone is sent, whole and what changed of it, and received as a dataset of its own.

use std::time::Duration;

use aquifer_dataset::RollbackOptions;
use aquifer_files::{
    FileHandle, ReceiveOptions, Receiver, SendError, SendWanted, Service, SetAttributes, Stability,
    Token,
};
use aquifer_ondisk::codec::checksum64;
use aquifer_pool::Turns;
use aquifer_sim::Rng;
use aquifer_stream::{Decoder, Record};

use crate::bed::{Bed, find, make, noise, read, root, snapshots_named, write};
use crate::by_text::ByText;
use crate::receive::{STANDBY, changes, content, receive, snapshot, stream};

const COPY: &str = "tank/copy";
const FILE_PAGES: u64 = 600;

async fn take(service: &Service, name: &str) {
    service.files.take_named(&[name.to_string()]).await.unwrap();
}

async fn resize(service: &Service, file: FileHandle, pages: u64) {
    let size = SetAttributes { size: Some(pages * 4096), ..SetAttributes::default() };
    service.files.setattr(&root(), file, &size, None).await.kept().await.0.unwrap();
}

/// A file, where it is, and its pages as they were written.
struct Disk {
    file: FileHandle,
    directory: FileHandle,
    path: String,
    pages: Vec<Vec<u8>>,
}

impl Disk {
    async fn change(&mut self, service: &Service, rng: &mut Rng) {
        match rng.below(8) {
            0 => {
                let pages = rng.below(FILE_PAGES);
                resize(service, self.file, pages).await;
                self.pages.resize(pages as usize, vec![0; 4096]);
            }
            1 => {
                let last = format!("disk{}", rng.below(3));
                let path = format!("vm/{last}");
                let from = self.path.rsplit('/').next().unwrap().to_string();
                let both = ((self.directory, from.as_bytes()), (self.directory, last.as_bytes()));
                let done = service.files.rename(&root(), both.0, both.1).await.kept().await.0;
                done.unwrap();
                self.path = path;
            }
            _ => {
                let at = rng.below(FILE_PAGES);
                let count = 1 + rng.index(40);
                let bytes = noise(rng.below(1 << 40), count);
                write(service, self.file, at, &bytes, Stability::FileSync).await.unwrap();
                let end = at as usize + count;
                if self.pages.len() < end {
                    self.pages.resize(end, vec![0; 4096]);
                }
                for (page, bytes) in self.pages[at as usize..end].iter_mut().zip(bytes.chunks(4096))
                {
                    *page = bytes.to_vec();
                }
            }
        }
    }

    /// The copy has the file under its last name, with its content, and nothing else.
    async fn is_copied(&self, service: &Service, at: &str) {
        // It stands by, and a clone of it does not.
        let (copied, look) = (format!("{COPY}@{at}"), format!("tank/look-{at}"));
        service.datasets.clone_snapshot(&copied, &look, &[]).await.unwrap();
        let top = service.files.root(&look).unwrap();
        let list = service.files.readdir(&root(), top, 2, 100, false).await.unwrap().0;
        let names: Vec<_> = list.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names, [self.path.rsplit('/').next().unwrap().as_bytes()], "{at}");
        let copy = list[0].handle;
        let id = |of: FileHandle| (of.object, of.generation);
        assert_eq!(id(copy), id(self.file));
        let attributes = service.files.getattr(copy).await.unwrap();
        assert_eq!((attributes.size, attributes.nlink), (self.pages.len() as u64 * 4096, 1));
        for (page, bytes) in self.pages.iter().enumerate() {
            assert!(read(service, copy, page as u64).await.unwrap() == *bytes, "{at}: {page}");
        }
        let differs = service.files.changed_names((&copied, COPY), None, 10).await.unwrap();
        assert!(differs.names.is_empty(), "{at}: {:?}", differs.names);
    }
}

async fn disk(service: &Service) -> Disk {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let top = service.files.root("tank/d").unwrap();
    make(service, top, "disk0").await;
    let attributes = SetAttributes::default();
    let made = service.files.mkdir(&root(), top, b"vm", &attributes).await.kept().await.0;
    let directory = made.unwrap().handle;
    let file = make(service, directory, "disk0").await;
    Disk { file, directory, path: "vm/disk0".into(), pages: Vec::new() }
}

async fn steps(service: &Service, seed: u64) {
    let mut rng = Rng::stream(seed, "sent files");
    let mut disk = disk(service).await;
    let mut sent: Option<String> = None;
    for at in 0..8 {
        for _ in 0..1 + rng.below(12) {
            disk.change(service, &mut rng).await;
        }
        let name = format!("s{at}");
        let full = format!("tank/d:{}@{name}", disk.path);
        match rng.below(3) {
            0 => snapshot(service, &format!("tank/d@{name}")).await,
            _ => take(service, &full).await,
        }
        if sent.is_some() && rng.below(4) == 0 {
            continue;
        }
        let from = sent.as_ref().map(|sent| format!("@{sent}"));
        let bytes = changes(service, &full, from.as_deref()).await.unwrap();
        let dry = ReceiveOptions { dry: true, ..STANDBY };
        receive(service, COPY, &bytes, dry).await.unwrap();
        let received = receive(service, COPY, &bytes, STANDBY).await.unwrap();
        assert_eq!(received.snapshot, format!("{COPY}@{name}"));
        disk.is_copied(service, &name).await;
        // All of it is the same, whatever it came by.
        let whole = content(&stream(service, &full).await.unwrap());
        assert!(whole.len() >= 3, "a root, its entry, and the file");
        sent = Some(name);
        if rng.coin() {
            // Since this one: what was sent is no more in the file.
            let before = disk.pages.clone();
            for _ in 0..rng.below(5) {
                disk.change(service, &mut rng).await;
            }
            let full = format!("tank/d:{}@s{at}", disk.path);
            let versions = service.files.versions_named(&full).await.unwrap();
            let versions: Vec<_> = versions.1.into_iter().map(|(_, version)| version).collect();
            let dataset = service.datasets.by_name("tank/d").unwrap();
            let options = RollbackOptions { destroy_later: false, force: true };
            service.files.roll_back_named(&full, (&dataset, &versions), options).await.unwrap();
            disk.pages = before;
        }
    }
}

#[test]
fn a_file_is_sent_by_itself_and_what_changed_of_it() {
    let first = std::env::var("AQUIFER_FIRST_SEED").map_or(1, |text| text.parse().unwrap());
    let seeds = std::env::var("AQUIFER_SEEDS").map_or(6, |text| text.parse().unwrap());
    for seed in first..first + seeds {
        let mut bed = Bed::new(1, 131_072);
        bed.life(async |service| steps(&service, seed).await);
        bed.assert_clean();
    }
}

/// Two snapshots of a file, one of its dataset between them, and another file.
async fn three(service: &Service) -> Disk {
    let mut disk = disk(service).await;
    let mut rng = Rng::stream(7, "three");
    for name in ["tank/d:vm/disk0@a", "tank/d@b", "tank/d:vm/disk0@c"] {
        write(service, disk.file, 0, &noise(rng.below(1 << 30), 500), Stability::FileSync)
            .await
            .unwrap();
        match name.contains(':') {
            true => take(service, name).await,
            false => snapshot(service, name).await,
        }
    }
    disk.pages = vec![vec![0; 4096]; 500];
    take(service, "tank/d:disk0@a").await;
    disk
}

#[test]
fn what_cannot_be_sent_says_why() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = three(&service).await;
        let refused = async |snapshot: &str, from: Option<&str>| {
            let wanted = SendWanted { snapshot, from, ..SendWanted::default() };
            service.files.send_page(wanted, None).await.unwrap_err()
        };
        for (snapshot, from, said) in [
            ("tank/d:vm/*@*", None, "several snapshots"),
            ("tank/d:vm/disk0@none", None, "no snapshot"),
            ("tank/d:vm@b", None, "no regular file"),
            ("tank/d:vm/disk0@a", Some("@c"), "is not older"),
            ("tank/d:vm/disk0@c", Some("@c"), "is not older"),
            ("tank/d:vm/disk0@c", Some("#a"), "no bookmarks"),
            ("tank/d:vm/disk0@c", Some("@none"), "no snapshot"),
            ("tank/d:vm/disk0@c", Some("tank/d:disk0@a"), "no snapshot of the file"),
        ] {
            let error = refused(snapshot, from).await;
            assert!(error.to_string().contains(said), "{snapshot} {from:?}: {error}");
        }
        // A second name does not travel; of several, which one was sent is not known.
        let top = service.files.root("tank/d").unwrap();
        service.files.link(&root(), disk.file, top, b"other").await.kept().await.0.unwrap();
        snapshot(&service, "tank/d@e").await;
        let [old, new] = ["disk0", "disk1"].map(|name| (disk.directory, name.as_bytes()));
        service.files.rename(&root(), old, new).await.kept().await.0.unwrap();
        take(&service, "tank/d:vm/disk1@f").await;
        let error = refused("tank/d:vm/disk1@f", Some("@e")).await;
        assert!(error.to_string().contains("another path in \"tank/d@e\", and several"), "{error}");
        let since = Some("tank/d:vm/disk0@e");
        let bytes = changes(&service, "tank/d:vm/disk1@f", since).await;
        assert!(matches!(content(&bytes.unwrap())[..], [_, Record::Drops { .. }, _, ..]));
        service.files.rename(&root(), new, old).await.kept().await.0.unwrap();
        // A stream of the file does not fit into a copy of its dataset, or of another file, and
        // neither way round.
        for (copy, name) in [("tank/whole", "tank/d@b"), (COPY, "tank/d:vm/disk0@b")] {
            receive(&service, copy, &stream(&service, name).await.unwrap(), STANDBY).await.unwrap();
        }
        snapshot(&service, "tank/d@d").await;
        let of_file = changes(&service, "tank/d:vm/disk0@c", Some("@b")).await.unwrap();
        let of_all = changes(&service, "tank/d@d", Some("@b")).await.unwrap();
        for (copy, bytes) in [("tank/whole", &of_file), (COPY, &of_all)] {
            let refused = receive(&service, copy, bytes, STANDBY).await;
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("whose file handles are not those of"), "{copy}: {error}");
        }
        // A snapshot that goes meanwhile.
        let wanted = SendWanted { snapshot: "tank/d:vm/disk0@a", ..SendWanted::default() };
        let page = service.files.send_page(wanted, None).await.unwrap();
        assert!(page.next.is_none(), "one page");
        let (dataset, found) = snapshots_named(&service.files, "tank/d:vm/disk0@a").await.unwrap();
        let ids = found.iter().map(|of| of.id).collect();
        service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
        assert!(matches!(refused("tank/d:vm/disk0@a", None).await, SendError::Name(_)));
        // The copy goes on, and is cloned back into place.
        receive(&service, COPY, &of_file, STANDBY).await.unwrap();
        let back = "tank/d:back".to_string();
        service.files.clone_named(&format!("{COPY}:disk0@c"), &[back]).await.unwrap();
        let back = find(&service, "tank/d", "back").await.unwrap();
        for page in [0, 499] {
            let [is, was] = [back, disk.file].map(|file| read(&service, file, page));
            assert_eq!(is.await.unwrap(), was.await.unwrap());
        }
    });
    bed.assert_clean();
}

/// Identities of a file in a stream are checksums that `stream.md` names.
#[test]
fn a_file_has_the_same_identity_in_each_stream() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = three(&service).await;
        let of = |guid: u64| {
            checksum64(&[guid.to_le_bytes(), disk.file.object.0.to_le_bytes()].concat())
        };
        let (dataset, of_all) = service.datasets.snapshot_by_name("tank/d@b").unwrap();
        let of_file = snapshots_named(&service.files, "tank/d:vm/disk0@c").await.unwrap().1;
        for (name, guid) in [("b", of(of_all.record.guid.0)), ("c", of_file[0].record.guid.0)] {
            let bytes = stream(&service, &format!("tank/d:vm/disk0@{name}")).await.unwrap();
            let mut decoder = Decoder::default();
            decoder.push(bytes.clone());
            let Some(Record::Begin(begin)) = decoder.next_record().unwrap() else {
                panic!("it begins with what it is")
            };
            assert_eq!(begin.fs_guid.0, of(dataset.fs_guid.0));
            assert_eq!((begin.to.guid.0, begin.next_object), (guid, disk.file.object.0 + 1));
            assert_eq!(
                (begin.dataset.as_str(), &begin.properties[..]),
                ("tank/d:vm/disk0", &[][..])
            );
            let Some(Record::Object(root)) = decoder.next_record().unwrap() else {
                panic!("the root")
            };
            assert_eq!((root.object.0, root.hash_seed), (1, begin.fs_guid.0));
        }
    });
}

/// A stream that broke off goes on where it was, of both kinds of snapshots, also renamed ones.
#[test]
fn a_stream_of_a_file_goes_on_where_it_broke_off() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        three(&service).await;
        let keeps = ReceiveOptions { resumable: true, ..STANDBY };
        for (name, from) in [("b", None), ("c", Some("@b"))] {
            let full = format!("tank/d:vm/disk0@{name}");
            let bytes = changes(&service, &full, from).await.unwrap();
            let mut receiver = Receiver::new(&service.files, COPY.into(), keeps);
            for piece in bytes[..bytes.len() * 2 / 3].chunks(70_000) {
                receiver.push(piece.to_vec()).await.unwrap();
            }
            let error = receiver.finish().await.unwrap_err();
            assert!(receiver.leave(Some(&error)).await.unwrap());
            drop(receiver);
            let of = service.datasets.partials().pop().unwrap().record;
            let token =
                Token { to: of.to, from: of.from, place: of.place, snapshot: of.sent.clone() };
            assert!(token.place.within.is_some(), "{token:?}");
            let mut now = full.clone();
            if name == "c" {
                let (dataset, found) = snapshots_named(&service.files, &full).await.unwrap();
                let ids = found.iter().map(|of| of.id).collect();
                service.datasets.rename_file_snapshots(&dataset, &ids, "e").await.unwrap();
                now = "tank/d:vm/disk0@e".into();
            }
            let named = service.datasets.named_by_guids(token.to, token.from, &token.snapshot);
            assert_eq!(named, None);
            let found = service.files.files_by_guids((token.to, token.from), &token.snapshot).await;
            let (to, old) = found.unwrap();
            assert_eq!(to, now);
            assert_eq!(old, from.map(|_| "tank/d:vm/disk0@b".into()));
            let start = Some(token.place);
            let wanted =
                SendWanted { snapshot: &to, from: old.as_deref(), start, ..SendWanted::default() };
            let page = service.files.send_page(wanted, None).await.unwrap();
            assert!(page.next.is_none() && page.bytes.len() < bytes.len() / 2);
            receive(&service, COPY, &page.bytes, STANDBY).await.unwrap();
            let copied = stream(&service, &now.replace("tank/d:vm/", "tank/copy:")).await;
            let sent = stream(&service, &now).await.unwrap();
            let [copied, sent] = [copied.unwrap(), sent].map(|bytes| content(&bytes).len());
            assert_eq!(copied, sent);
        }
        let find = service.files.files_by_guids((aquifer_files::Guid(5), None), "tank/d:none@x");
        assert_eq!(find.await, None);
    });
    bed.assert_clean();
}

/// Ranges of two snapshots of a file, of one and of one of its dataset, and of one and the file
/// now; and of a file whose name ends as that of a snapshot.
#[test]
fn ranges_are_those_of_snapshots_of_files() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = disk(&service).await;
        write(&service, disk.file, 0, &noise(1, 100), Stability::FileSync).await.unwrap();
        take(&service, "tank/d:vm/disk0@a").await;
        write(&service, disk.file, 10, &noise(2, 3), Stability::FileSync).await.unwrap();
        snapshot(&service, "tank/d@b").await;
        write(&service, disk.file, 50, &noise(3, 1), Stability::FileSync).await.unwrap();
        take(&service, "tank/d:vm/disk0@c").await;
        resize(&service, disk.file, 90).await;
        let both = ((disk.directory, &b"disk0"[..]), (disk.directory, &b"disk9"[..]));
        service.files.rename(&root(), both.0, both.1).await.kept().await.0.unwrap();
        let ranges = async |old: &str, new: &str| {
            let page = service.files.changed_ranges((old, new), None, 100).await?;
            assert!(page.is_same_file && page.next.is_none());
            let found = page.ranges.iter().map(|of| (of.offset / 4096, of.length / 4096));
            Ok::<_, aquifer_files::diff::DiffError>((
                page.new_bytes / 4096,
                found.collect::<Vec<_>>(),
            ))
        };
        let a = "tank/d:vm/disk0@a";
        for (old, new, wanted) in [
            (a, "tank/d:vm/disk0@c", (100, vec![(10, 3), (50, 1)])),
            (a, "tank/d:vm/disk9@b", (100, vec![(10, 3)])),
            (a, "tank/d@b:vm/disk0", (100, vec![(10, 3)])),
            ("tank/d@b:vm/disk0", "tank/d:vm/disk0@c", (100, vec![(50, 1)])),
            ("tank/d:vm/disk9@c", "tank/d:vm/disk9", (90, vec![])),
            (a, a, (100, vec![])),
        ] {
            assert_eq!(ranges(old, new).await.unwrap(), wanted, "{old} {new}");
        }
        let none = ranges(a, "tank/d:vm/disk0@none").await.unwrap_err();
        assert!(none.to_string().contains("no snapshot \"tank/d:vm/disk0@none\""), "{none}");
        assert!(ranges(a, "tank/d:vm/*@*").await.unwrap_err().to_string().contains("several"));
        let odd = make(&service, disk.directory, "disk9@none").await;
        write(&service, odd, 0, &noise(4, 1), Stability::FileSync).await.unwrap();
        let page =
            service.files.changed_ranges((a, "tank/d:vm/disk9@none"), None, 9).await.unwrap();
        assert!(!page.is_same_file);
        assert_eq!(page.new_bytes, 4096);
    });
    bed.assert_clean();
}

/// Long work rests beside clients, and what is sent and received counts as none.
#[test]
fn streams_rest_beside_clients() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = three(&service).await;
        let world = service.pool.world().clone();
        let rest_after = async |work: Duration| {
            let mut turns = Turns::new(&service.pool);
            world.sleep(work).await;
            let ended = world.now();
            assert!(turns.step(&service.pool).await);
            // Each turn of a task takes the simulator some microseconds.
            (world.now() - ended).as_micros() / 100 * 100
        };
        let (long, none) = (Duration::from_secs(1), 0);
        // What was asked before is seen at the first look.
        rest_after(long).await;
        assert_eq!(rest_after(long).await, none, "nobody asks");
        let bytes = stream(&service, "tank/d:vm/disk0@b").await.unwrap();
        receive(&service, COPY, &bytes, STANDBY).await.unwrap();
        // To name the copy is an act.
        rest_after(long).await;
        let mut receiver = Receiver::new(&service.files, "tank/other".into(), STANDBY);
        receiver.push(bytes[..100_000].to_vec()).await.unwrap();
        rest_after(long).await;
        world.sleep(long).await;
        receiver.push(bytes[100_000..].to_vec()).await.unwrap();
        assert_eq!(rest_after(Duration::from_millis(5)).await, none, "a stream is no client");
        receiver.abort().await.unwrap();
        write(&service, disk.file, 0, &noise(5, 1), Stability::FileSync).await.unwrap();
        assert_eq!(rest_after(Duration::from_millis(5)).await, 2000);
        assert_eq!(rest_after(Duration::from_micros(200)).await, 1800);
    });
}
