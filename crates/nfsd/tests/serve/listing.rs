//! READDIR and READDIRPLUS of small and large directories, and the file system's own procedures.

use std::collections::BTreeMap;

use aquifer_nfs::proto::v3::*;

use crate::client::Client;
use crate::fixture::Fixture;

/// One reply: entries (name, cookie, fileid), whether it reached the end, bytes of the resok.
struct Listed {
    entries: Vec<(String, u64, u64)>,
    eof: bool,
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

fn readdir(client: &mut Client, dir: NfsFh3, cookie: u64, count: u32) -> Result<Listed, Nfsstat3> {
    let args = Readdir3Args { dir, cookie, cookieverf: [0; 8], count };
    let results = client.nfs(&Args3::Readdir(args));
    match results.decode::<Readdir3Res<'_>>() {
        Res3::Ok(list) => {
            let mut encoded = aquifer_rpc::xdr::EncodeBuf::new();
            encoded.put(&list);
            assert!(encoded.len() <= count as usize, "{} bytes of {count}", encoded.len());
            assert_eq!(list.cookieverf, [0; 8]);
            assert!(list.dir_attributes.is_some());
            let entry = |entry: &Entry3<'_>| (text(entry.name), entry.cookie, entry.fileid);
            Ok(Listed { entries: list.entries.iter().map(entry).collect(), eof: list.eof })
        }
        Res3::Fail { status, .. } => Err(status),
    }
}

fn readdirplus(
    client: &mut Client,
    dir: NfsFh3,
    cookie: u64,
    (dircount, maxcount): (u32, u32),
) -> Result<(Listed, Vec<NfsFh3>), Nfsstat3> {
    let args = Readdirplus3Args { dir, cookie, cookieverf: [0; 8], dircount, maxcount };
    let results = client.nfs(&Args3::Readdirplus(args));
    match results.decode::<Readdirplus3Res<'_>>() {
        Res3::Ok(list) => {
            let mut encoded = aquifer_rpc::xdr::EncodeBuf::new();
            encoded.put(&list);
            assert!(encoded.len() <= maxcount as usize, "{} of {maxcount}", encoded.len());
            let names: usize = list.entries.iter().map(|entry| 24 + entry.name.len()).sum();
            assert!(list.entries.len() == 1 || names <= dircount as usize);
            let entry = |entry: &EntryPlus3<'_>| (text(entry.name), entry.cookie, entry.fileid);
            for entry in &list.entries {
                assert_eq!(entry.name_attributes.unwrap().fileid, entry.fileid);
            }
            let handles = list.entries.iter().map(|entry| entry.name_handle.unwrap()).collect();
            let entries = list.entries.iter().map(entry).collect();
            Ok((Listed { entries, eof: list.eof }, handles))
        }
        Res3::Fail { status, .. } => Err(status),
    }
}

/// The whole directory, in replies of `count` bytes.
fn all(client: &mut Client, dir: NfsFh3, count: u32, plus: bool) -> Vec<(String, u64, u64)> {
    let mut list: Vec<(String, u64, u64)> = Vec::new();
    loop {
        let cookie = list.last().map_or(0, |(_, cookie, _)| *cookie);
        let listed = match plus {
            false => readdir(client, dir, cookie, count).unwrap(),
            true => readdirplus(client, dir, cookie, (count, count)).unwrap().0,
        };
        assert!(listed.eof || !listed.entries.is_empty(), "no progress");
        list.extend(listed.entries);
        if listed.eof {
            return list;
        }
    }
}

#[test]
fn an_empty_directory_has_its_dots() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    let (own, parent) = (client.attributes(dir).fileid, client.attributes(root).fileid);
    let dots = [(".".to_owned(), 1, own), ("..".to_owned(), 2, parent)];
    // The smallest replies that hold one entry: 108 of attributes, verifier, end; 28 to 32 each.
    for count in [132, 136, 140, 160, 200, 512, 4096, 65_536, u32::MAX] {
        assert_eq!(all(&mut client, dir, count, false), dots, "{count}");
    }
    for count in [0, 50, 103, 107, 120] {
        let said = readdir(&mut client, dir, 0, count).map(|listed| listed.entries.len());
        assert_eq!(said, Err(Nfsstat3::TooSmall), "{count}");
    }
    for count in [260, 300, 1024, 65_536] {
        assert_eq!(all(&mut client, dir, count, true), dots, "{count}");
    }
    let said = readdirplus(&mut client, dir, 0, (4096, 200)).map(|_| ());
    assert_eq!(said, Err(Nfsstat3::TooSmall));
    let file = client.file(dir, "file");
    assert_eq!(readdir(&mut client, file, 0, 4096).map(|_| ()), Err(Nfsstat3::NotDir));
}

#[test]
fn five_thousand_names_are_listed_once_each_in_replies_of_any_size() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "many");
    let name = |number: usize| format!("{number}{}", "-".repeat(number * 7 % 40));
    let mut made = BTreeMap::new();
    for number in 0..5000 {
        let file = client.file(dir, &name(number));
        made.insert(name(number), (file, client.attributes(file).fileid));
    }
    for (count, plus) in [
        (1024, false),
        (8192, false),
        (65_536, false),
        (1 << 20, false),
        (4096, true),
        (65_536, true),
    ] {
        let list = all(&mut client, dir, count, plus);
        assert_eq!(list.len(), 5002);
        assert_eq!((list[0].0.as_str(), list[1].0.as_str()), (".", ".."));
        let listed: BTreeMap<_, _> =
            list.iter().skip(2).map(|(name, _, fileid)| (name.clone(), *fileid)).collect();
        let expected: BTreeMap<_, _> =
            made.iter().map(|(name, (_, fileid))| (name.clone(), *fileid)).collect();
        assert!(listed == expected, "{count} {plus}");
        let mut cookies: Vec<_> = list.iter().map(|(_, cookie, _)| *cookie).collect();
        cookies.sort_unstable();
        cookies.dedup();
        assert_eq!(cookies.len(), 5002, "cookies are unique");
    }
    let (listed, handles) = readdirplus(&mut client, dir, 2, (8192, 32_768)).unwrap();
    assert!(listed.entries.len() > 50);
    for ((name, _, _), handle) in listed.entries.iter().zip(handles) {
        assert_eq!(handle, made[name].0);
    }
}

/// Removing what was listed, as `rm -r` does, neither skips nor repeats; cookies survive a restart.
#[test]
fn cookies_survive_changes_and_restarts() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    for number in 0..300 {
        client.file(dir, &format!("file-{number}"));
    }
    let (mut seen, mut cookie, mut replies) = (Vec::new(), 0, 0);
    loop {
        let listed = readdir(&mut client, dir, cookie, 1000).unwrap();
        for (name, at, _) in &listed.entries {
            cookie = *at;
            if name.starts_with("file") {
                assert!(matches!(client.remove(dir, name), Res3::Ok(_)));
                seen.push(name.clone());
            }
        }
        replies += 1;
        if replies == 3 {
            fixture.stop();
            fixture.open();
            let exports = vec![aquifer_nfs::Export::new("/vms", "tank/vms")];
            fixture.serve(crate::fixture::config(), exports);
            client = fixture.client();
        }
        if listed.eof {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), replies > 5), (300, true));
    assert_eq!(all(&mut client, dir, 4096, false).len(), 2);
    assert!(matches!(client.rmdir(root, "dir"), Res3::Ok(_)));
}

/// XCP-ng and ESXi take the capacity from here.
#[test]
fn fsstat_tells_the_truth() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let mut fsstat = || {
        let results = client.nfs(&Args3::Fsstat(Getattr3Args { object: root }));
        match results.decode::<Fsstat3Res>() {
            Res3::Ok(space) => space,
            Res3::Fail { status, .. } => panic!("{status:?}"),
        }
    };
    let before = fsstat();
    assert!(before.tbytes > 800 << 20 && before.tbytes <= 1 << 30, "{before:?}");
    assert!(before.fbytes <= before.tbytes && before.abytes <= before.fbytes);
    assert!(before.ffiles <= before.tfiles && before.afiles <= before.ffiles);
    let (mut writer, root) = fixture.mounted();
    let file = writer.file(root, "file");
    let data: Vec<u8> =
        (0..1_u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    for at in 0..32 {
        let written = writer.write(file, at << 20, &data, StableHow::FileSync);
        assert!(matches!(written, Res3::Ok(_)));
    }
    fixture.block_on(fixture.pool().pool.sync()).unwrap();
    let after = fsstat();
    let used = before.abytes - after.abytes;
    assert!((32 << 20..48 << 20).contains(&used), "{used} for 32 MiB");
    let total = before.tbytes.abs_diff(after.tbytes);
    assert!(total < 16 << 20, "the size changed by {total}");
}

#[test]
fn fsinfo_and_pathconf_tell_the_limits() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let results = client.nfs(&Args3::Fsinfo(Getattr3Args { object: root }));
    let Res3::Ok(info) = results.decode::<Fsinfo3Res>() else { panic!("FSINFO") };
    let expected = Fsinfo3ResOk {
        obj_attributes: Some(client.attributes(root)),
        rtmax: 1 << 20,
        rtpref: 1 << 20,
        rtmult: 4096,
        wtmax: 1 << 20,
        wtpref: 1 << 20,
        wtmult: 4096,
        dtpref: 65_536,
        maxfilesize: 1 << 60,
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: 0x1b,
    };
    assert_eq!(info, expected);
    let results = client.nfs(&Args3::Pathconf(Getattr3Args { object: root }));
    let Res3::Ok(limits) = results.decode::<Pathconf3Res>() else { panic!("PATHCONF") };
    let expected = Pathconf3ResOk {
        obj_attributes: Some(client.attributes(root)),
        linkmax: 65_000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    assert_eq!(limits, expected);
}
