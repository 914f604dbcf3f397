//! Hostile calls over a socket, on real files: each gets its error, and the server goes on.

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, MountStat3, Path};
use aquifer_nfs::proto::v3::*;
use aquifer_rpc::auth::AuthStat;
use aquifer_rpc::message::{Accepted, Rejection, Reply};
use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf};

use crate::client::{Client, Refusal};
use crate::files::status;
use crate::fixture::Fixture;

/// The largest file, from FSINFO.
const FILE_BYTES_MAX: u64 = 1 << 60;

fn getattr(client: &mut Client, handle: &[u8]) -> Nfsstat3 {
    let object = NfsFh3::new(handle).unwrap();
    status(&client.nfs(&Args3::Getattr(Getattr3Args { object })).decode::<Getattr3Res>())
}

/// A handle is three words: file system, object, generation. The server trusts none of them.
#[test]
fn handles_that_were_not_given_open_nothing() {
    let fixture = Fixture::new();
    let other_pool = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let (mut elsewhere, foreign_root) = other_pool.mounted();
    let file = client.file(root, "file");
    let foreign = elsewhere.file(foreign_root, "file");
    let good = file.bytes();
    assert_eq!(getattr(&mut client, good), Nfsstat3::Ok);
    for (handle, from) in [(foreign, &mut client), (file, &mut elsewhere)] {
        assert_eq!(getattr(from, handle.bytes()), Nfsstat3::Stale, "of another pool");
    }
    for length in (0..good.len()).chain([25, 32, 63, 64]) {
        let mut bytes = good.to_vec();
        bytes.resize(length, 0);
        assert_eq!(getattr(&mut client, &bytes), Nfsstat3::BadHandle, "{length} bytes");
    }
    for at in 0..good.len() {
        for flipped in [1, 0x80] {
            let mut bytes = good.to_vec();
            bytes[at] ^= flipped;
            let said = getattr(&mut client, &bytes);
            assert_eq!(said, Nfsstat3::Stale, "byte {at} with {flipped:#x} flipped");
        }
    }
    for word in [0, 8, 16] {
        for value in [0, 1, u64::MAX, i64::MAX.cast_unsigned()] {
            let mut bytes = good.to_vec();
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
            if bytes != good {
                assert_eq!(getattr(&mut client, &bytes), Nfsstat3::Stale, "{value} at {word}");
            }
        }
    }
    client.remove(root, "file");
    assert_eq!(getattr(&mut client, good), Nfsstat3::Stale, "of a file that is gone");
    // 65 bytes cannot be a handle of the protocol.
    let mut args = EncodeBuf::new();
    args.opaque(&[1; 65]);
    let said = client.call((PROGRAM, VERSION, 1), &Raw(args.to_vec())).map(|_| ()).unwrap_err();
    assert_eq!(said, Refusal::Accepted(Accepted::GarbageArgs));
    client.ping();
}

/// Arguments as bytes.
struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, to: &mut EncodeBuf) {
        for word in self.0.chunks(4) {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            to.u32(u32::from_be_bytes(padded));
        }
    }
}

#[test]
fn names_of_every_kind() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let home = client.dir(root, "home");
    let (long, too_long) = ([b'n'; 255], [b'n'; 256]);
    let how = CreateHow3::Guarded(Sattr3::NONE);
    let names: [(&[u8], Nfsstat3); 13] = [
        (b"", Nfsstat3::Acces),
        (b"/", Nfsstat3::Acces),
        (b"a/b", Nfsstat3::Acces),
        (b"../home", Nfsstat3::Acces),
        (b"\0", Nfsstat3::Acces),
        (b"a\0b", Nfsstat3::Acces),
        (b".", Nfsstat3::Exist),
        (b"..", Nfsstat3::Exist),
        (&too_long, Nfsstat3::NameTooLong),
        (&[b'n'; 65_536], Nfsstat3::NameTooLong),
        (&long, Nfsstat3::Ok),
        (b"\xff\xfe\xc3(", Nfsstat3::Ok),
        (b"...", Nfsstat3::Ok),
    ];
    for (name, expected) in names {
        let place = DirOpArgs3 { dir: home, name };
        let made = client.nfs(&Args3::Create(Create3Args { place, how }));
        let shown = name.escape_ascii().to_string();
        assert_eq!(status(&made.decode::<Create3Res>()), expected, "CREATE {shown:.40}");
        if expected != Nfsstat3::Ok {
            continue;
        }
        let found = client.nfs(&Args3::Lookup(place));
        assert_eq!(status(&found.decode::<Lookup3Res>()), Nfsstat3::Ok, "LOOKUP {shown:.40}");
        let listed = client.nfs(&Args3::Readdir(Readdir3Args {
            dir: home,
            cookie: 0,
            cookieverf: [0; 8],
            count: 8192,
        }));
        let Res3::Ok(listed) = listed.decode::<Readdir3Res<'_>>() else { panic!("READDIR") };
        assert!(listed.entries.iter().any(|entry| entry.name == name), "READDIR {shown:.40}");
    }
    let up = client.lookup(home, "..").unwrap().object;
    assert_eq!(client.lookup(up, "..").unwrap().object, root, "the export's root is the end");
}

#[test]
fn paths_of_every_kind() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let longest = client.dir(root, &"n".repeat(255));
    let odd = MknodData3::Fifo(Sattr3::NONE);
    client.mknod(root, "fifo", odd).unwrap();
    let with = |name: &[u8]| [b"/vms/", name].concat();
    let paths = [
        (with(&[b'n'; 255]), Ok(longest)),
        (with(&[b'n'; 256]), Err(MountStat3::NameTooLong)),
        (with(b".."), Err(MountStat3::Inval)),
        (with(b"../vms"), Err(MountStat3::Inval)),
        (with(b"./../../etc"), Err(MountStat3::Inval)),
        (with(b"a\0b"), Err(MountStat3::Acces)),
        (with(b"\xff\xfe"), Err(MountStat3::NoEnt)),
        (with(b"fifo"), Err(MountStat3::NotDir)),
        (b"vms".to_vec(), Err(MountStat3::NoEnt)),
        (b"".to_vec(), Err(MountStat3::NoEnt)),
        (b"/vms\0".to_vec(), Err(MountStat3::NoEnt)),
        ([b"/vms".to_vec(), vec![b'/'; 1020]].concat(), Ok(root)),
    ];
    for (path, expected) in paths {
        let what = (mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.wire());
        let said = client.call(what, &DirPath { path: Path(&path) }).unwrap();
        let said = match said.decode::<MountRes3>() {
            MountRes3::Ok { fhandle, .. } => Ok(fhandle),
            MountRes3::Fail(status) => Err(status),
        };
        assert_eq!(said, expected, "{:.40}", path.escape_ascii().to_string());
    }
    let mut args = EncodeBuf::new();
    args.opaque(&[b'/'; 1025]);
    let what = (mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.wire());
    let said = client.call(what, &Raw(args.to_vec())).map(|_| ()).unwrap_err();
    assert_eq!(said, Refusal::Accepted(Accepted::GarbageArgs), "longer than MNTPATHLEN");
}

#[test]
fn offsets_and_counts_at_every_edge() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let data = [7; 5000];
    assert_eq!(status(&client.write(file, 0, &data, StableHow::FileSync)), Nfsstat3::Ok);
    let offsets = [0, 1, 4999, 5000, 5001, FILE_BYTES_MAX - 1, FILE_BYTES_MAX, 1 << 63, u64::MAX];
    for offset in offsets {
        for count in [0, 1, 4096, 1 << 20, (1 << 20) + 1, 1 << 31, u32::MAX] {
            let (read, eof) = client.read(file, offset, count).unwrap();
            let there = 5000_u64.saturating_sub(offset).min(u64::from(count));
            assert_eq!(read.len() as u64, there, "{count} bytes from {offset}");
            assert!(read.iter().all(|byte| *byte == 7));
            assert_eq!(eof, offset.saturating_add(there) >= 5000, "{count} bytes from {offset}");
            assert_eq!(status(&client.commit(file, offset, count)), Nfsstat3::Ok);
        }
    }
    let end = FILE_BYTES_MAX;
    let writes: [(u64, usize, Nfsstat3); 8] = [
        (u64::MAX, 1, Nfsstat3::Fbig),
        (u64::MAX - 4095, 4096, Nfsstat3::Fbig),
        (u64::MAX, 0, Nfsstat3::Fbig),
        (end, 1, Nfsstat3::Fbig),
        (end - 1, 2, Nfsstat3::Fbig),
        (end, 0, Nfsstat3::Ok),
        (0, 0, Nfsstat3::Ok),
        (end - 1, 1, Nfsstat3::Ok),
    ];
    for (offset, length, expected) in writes {
        let before = client.attributes(file).size;
        let said = status(&client.write(file, offset, &data[..length], StableHow::Unstable));
        assert_eq!(said, expected, "{length} bytes at {offset}");
        let wrote = expected == Nfsstat3::Ok && length > 0;
        let size = if wrote { offset + length as u64 } else { before };
        assert_eq!(client.attributes(file).size, size, "{length} bytes at {offset}");
    }
    assert_eq!(client.read(file, end - 1, 100).unwrap(), (vec![7], true));
    for (size, expected) in [
        (u64::MAX, Nfsstat3::Fbig),
        (end + 1, Nfsstat3::Fbig),
        (end, Nfsstat3::Ok),
        (0, Nfsstat3::Ok),
    ] {
        let set = Sattr3 { size: Some(size), ..Sattr3::NONE };
        let args = Setattr3Args { object: file, new_attributes: set, guard: None };
        let said = client.nfs(&Args3::Setattr(args)).decode::<Setattr3Res>();
        assert_eq!(status(&said), expected, "size {size}");
    }
}

#[test]
fn listings_with_every_count_and_cookie() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    for number in 0..20 {
        client.file(root, &format!("{number}{}", "n".repeat(number * 12)));
    }
    let cookieverf = [0xff; 8];
    for cookie in [0, 1, 2, 3, 1 << 31, 1 << 63, u64::MAX - 1, u64::MAX] {
        for count in [0, 1, 100, 103, 104, 128, 511, 4096, 1 << 20, 1 << 31, u32::MAX] {
            let args = Readdir3Args { dir: root, cookie, cookieverf, count };
            let listed = client.nfs(&Args3::Readdir(args));
            check(&listed.decode::<Readdir3Res<'_>>(), |ok| (ok.entries.len(), ok.eof), count);
            for dircount in [0, 1, 512, u32::MAX] {
                let maxcount = count;
                let dir = root;
                let args = Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount };
                let listed = client.nfs(&Args3::Readdirplus(args));
                let listed = listed.decode::<Readdirplus3Res<'_>>();
                check(&listed, |ok| (ok.entries.len(), ok.eof), count);
            }
        }
    }
}

/// A listing continues or ends; a size without room for an entry is "too small".
#[track_caller]
fn check<T, F>(said: &Res3<T, F>, of: impl Fn(&T) -> (usize, bool), count: u32) {
    match said {
        Res3::Ok(listed) => {
            let (entries, eof) = of(listed);
            assert!(entries > 0 || eof, "{count} bytes");
        }
        Res3::Fail { status, .. } => {
            assert!(*status == Nfsstat3::TooSmall && count < 600, "{status:?} for {count} bytes");
        }
    }
}

/// RFC 5531 appendix A: sixteen groups. The call with one more is refused, the connection stays.
#[test]
fn groups_of_auth_sys() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for (groups, name, good) in
        [(0, 4, true), (16, 255, true), (17, 4, false), (16, 256, false), (u32::MAX, 4, false)]
    {
        let listed = groups.min(17);
        let mut body = EncodeBuf::new();
        body.u32(0);
        body.opaque(&vec![b'm'; name]);
        [0, 0, groups].iter().for_each(|word| body.u32(*word));
        (0..listed).for_each(|gid| body.u32(gid));
        let mut call = EncodeBuf::new();
        [1, 0, 2, PROGRAM, VERSION, 0, 1].iter().for_each(|word| call.u32(*word));
        call.opaque(&body.to_vec());
        [0, 0].iter().for_each(|word| call.u32(*word));
        let call = call.to_vec();
        let mark = 0x8000_0000 | call.len() as u32;
        client.send(&[&mark.to_be_bytes()[..], &call].concat());
        let reply = client.receive();
        let denied = Reply::denied(1, Rejection::AuthError(AuthStat::BadCred));
        let expected = if good { Reply::accepted(1, Accepted::Success) } else { denied };
        assert_eq!(Reply::decode(&mut Decoder::new(&reply)), Ok(expected), "{groups} groups");
    }
    client.ping();
}
