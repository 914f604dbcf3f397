//! A client of libnfs while the only disk of its pool hangs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::clients::{Call, Clients};
use aquifer_conformance::{Error, Result, pattern};
use aquifer_rig::netns::NetNs;
use aquifer_rig::removable::Removable;
use serde_json::Value;

use crate::place::{Aquifer, SOON, Setup, json, text};

/// A change that was begun waits. One that was not, and each later one, hears "later"
/// (NFS3ERR_JUKEBOX): nothing of it was done. All go on when the disk is back, and what was copied
/// before and through the silence is whole.
#[test]
fn client_of_a_disk_that_hangs_is_asked_to_come_back_and_does() -> Result<()> {
    if !Removable::can_be() {
        eprintln!("SKIPPED: disks that hang need root and /dev/fuse");
        return Ok(());
    }
    let mut disk = None;
    let setup = Setup { sides: 1, disk_bytes: 1 << 30, ..Setup::DEFAULT };
    let mut aquifer = Aquifer::start_on("silent", setup, |netns, disks| {
        disk = Some(removable(netns, &disks[0], setup.disk_bytes)?);
        Ok(())
    })?;
    let disk = disk.ok_or_else(|| Error::Malformed("no disk was laid".into()))?;
    let (clients, local) = (aquifer.clients(), aquifer.scratch().join("local"));
    let mut content = vec![0; 1_000_001];
    pattern::fill(3, 0, &mut content);
    fs::write(&local, &content).map_err(Error::at("write", &local))?;
    let from = text(&local);
    clients.nfs_cp(&from, &aquifer.url("before")).done()?;

    let [caught, late] = ["caught", "late"].map(|name| aquifer.url(name));
    let (heard, before) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let hangs = disk.hang();
    let (caught, late) = thread::scope(|scope| {
        let waiting = scope.spawn(|| copy_until_done(&clients, &from, &caught, &before));
        let silent = until(|| Ok(is_silent(&aquifer.status()?)));
        let copying = scope.spawn(|| copy_until_done(&clients, &from, &late, &heard));
        let asked = until(|| Ok(heard.lock().unwrap().len() > 2));
        // Another client comes, and sees what is in memory.
        let begun = Instant::now();
        let listed = clients.nfs_ls(&aquifer.url("")).done();
        let took = begun.elapsed();
        let is_done = waiting.is_finished() || copying.is_finished();
        disk.come_back();
        let copied = (waiting.join().unwrap(), copying.join().unwrap());
        assert!(!is_done, "nothing is acknowledged without the disk: {copied:?}");
        silent?;
        asked.map_err(|error| Error::Mismatch(format!("{error}: {heard:?}, {before:?}")))?;
        assert!(listed?.text().contains("before") && took < AT_ONCE, "{took:?}");
        Ok::<_, Error>((copied.0?, copied.1?))
    })?;
    drop(hangs);
    let heard = [heard, before].map(|heard| heard.into_inner().unwrap()).concat();
    assert!(heard.iter().all(|said| said.contains("JUKEBOX")), "{heard:?}");
    // What libnfs says does not tell which: after CREATE it sends LOOKUP, and calls both "CREATE".
    let listed = clients.nfs_ls(&aquifer.url("")).done()?.text();
    let there = listed.lines().filter(|line| line.starts_with('-')).count();
    let created = created(&aquifer)?;
    assert_eq!(there as u64, created, "a CREATE heard \"later\", and made a file: {listed}");
    for name in [aquifer.url("before"), caught, late] {
        let found = clients.nfs_cat(&name).done()?.stdout;
        assert!(found == content, "{name}: {} bytes", found.len());
    }
    until(|| Ok(!is_silent(&aquifer.status()?)))?;
    // The disk is seen from the daemon's namespace alone; its image from here.
    aquifer.stop()?;
    let report = aquifer.inspect(&[PathBuf::from(&disk.image)])?;
    assert_eq!(report["errors"], 0, "{report:#}");
    aquifer.judged();
    Ok(())
}

/// The CREATEs that heard that they made a file.
fn created(aquifer: &Aquifer) -> Result<u64> {
    let counts = json(&aquifer.ask(&["--json", "nfsstat"], SOON)?)?;
    let procedures = counts["procedures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let create = procedures.iter().find(|one| one["name"] == "create");
    let numbers = create.and_then(|create| {
        Some((create["latency"]["count"].as_u64()?, create["errors"].as_u64()?))
    });
    let (calls, refused) = numbers.ok_or_else(|| Error::Malformed(counts.to_string()))?;
    assert!(refused > 0, "some were asked to come back");
    Ok(calls - refused)
}

/// Whether a pool's changes wait for its disks.
fn is_silent(status: &Value) -> bool {
    let problems = status["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    problems.iter().any(|problem| problem["code"] == "pool-silent")
}

/// Waits until something is so.
fn until(mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is()? {
        if begun.elapsed() > SOON {
            return Err(Error::Mismatch("it did not come to that".into()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Copies a file until that succeeds, each time under another name, since nfs-cp gives up where a
/// client in a kernel asks again. Returns the last name; `heard` gets what libnfs says meanwhile.
fn copy_until_done(
    clients: &Clients,
    from: &str,
    url: &str,
    heard: &Mutex<Vec<String>>,
) -> Result<String> {
    loop {
        let name = format!("{url}{}", heard.lock().unwrap().len());
        let copied = clients.nfs_cp(from, &name)?;
        if copied.status.success() {
            return Ok(name);
        }
        heard.lock().unwrap().push(copied.said());
        thread::sleep(Duration::from_millis(200));
    }
}

/// A disk at this path, as the namespace shows it. Its image lies beside its directory.
fn removable(netns: &NetNs, path: &Path, bytes: u64) -> Result<Removable> {
    let dir = path.parent().unwrap_or(path);
    let image = dir.with_file_name(path.file_name().unwrap_or_default());
    let sized = File::create(&image).and_then(|file| file.set_len(bytes));
    sized.map_err(Error::at("create", &image))?;
    // It makes its directory itself.
    fs::remove_dir(dir).map_err(Error::at("remove", dir))?;
    let (netns, dir) = (netns.clone(), dir.to_path_buf());
    // The mount is seen from the namespace, and goes with it.
    let mounted = thread::spawn(move || {
        netns.enter_mounts()?;
        Removable::new(&image, &dir)
    });
    mounted.join().map_err(|_| Error::Malformed("the disk panicked".into()))?
}

/// A mount and a listing take far less on an idle machine.
const AT_ONCE: Duration = Duration::from_secs(10);
