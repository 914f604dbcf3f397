//! The directory that replays work in: new, with a hidden name, and removed in the end.
//!
//! What holds:
//! - Nothing is written or removed outside of it. MKDIR makes it, which fails if the name is there.
//! - It goes whatever happens to the replays: also after errors, and over a new connection if the
//!   old one is lost. One that a killed doctor left goes with the next one, after [`OLD_S`].

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aquifer_client::random::Random;
use aquifer_client::wire::call::Source;
use aquifer_nfs::proto::v3::{
    Args3, Create3ResOk, DirOpArgs3, Fattr3, Lookup3ResOk, Mkdir3Args, NfsFh3, Nfsstat3,
    PostOpAttr, Sattr3, WccData,
};

use crate::session::{Session, Wrong};

/// The directory.
#[derive(Debug)]
pub(crate) struct Scratch {
    from: Source,
    to: SocketAddr,
    /// The export's root.
    root: NfsFh3,
    pub handle: NfsFh3,
    pub name: String,
    /// How far the server's clock is ahead of ours, in milliseconds.
    pub ahead_ms: i64,
}

impl Scratch {
    /// Makes it.
    pub fn make(from: Source, to: SocketAddr, path: &str) -> Result<Scratch, Wrong> {
        let mut session = Session::open(from, to)?;
        let root = session.mount(path)?;
        let name = format!("{PREFIX}{:016x}", Random::of_clock().next_u64());
        let attributes = Sattr3 { mode: Some(0o700), ..Sattr3::NONE };
        let place = DirOpArgs3 { dir: root, name: name.as_bytes() };
        let before = now_ms();
        let made = session
            .nfs::<Create3ResOk, WccData>(&Args3::Mkdir(Mkdir3Args { place, attributes }))?;
        let after = now_ms();
        let handle = match made.obj {
            Some(handle) => handle,
            None => looked_up(&mut session, root, name.as_bytes())?.0,
        };
        let mut scratch = Scratch { from, to, root, handle, name, ahead_ms: 0 };
        let made = match made.obj_attributes {
            Some(made) => made,
            None => session.attributes(handle)?,
        };
        let seconds = i64::from(made.ctime.seconds);
        let server = seconds * 1000 + i64::from(made.ctime.nseconds) / 1_000_000;
        // The server's time lies between ours, unless clocks differ.
        scratch.ahead_ms = if server < before { server - before } else { (server - after).max(0) };
        scratch.remove_old(&mut session, seconds);
        Ok(scratch)
    }

    /// Removes what killed doctors left. What cannot be removed stays.
    fn remove_old(&self, session: &mut Session, now_s: i64) {
        for name in session.names(self.root).unwrap_or_default() {
            if name == self.name.as_bytes() || !is_ours(&name) {
                continue;
            }
            let Ok((handle, Some(found))) = looked_up(session, self.root, &name) else { continue };
            if i64::from(found.mtime.seconds) + OLD_S < now_s {
                let _ = empty(session, handle);
                let _ = session.do_nfs(&Args3::Rmdir(DirOpArgs3 { dir: self.root, name: &name }));
            }
        }
    }

    /// Removes it with all that is in it.
    pub fn remove(self) -> Result<(), Wrong> {
        let limit = Instant::now() + REMOVE_LIMIT;
        loop {
            match self.try_remove() {
                Err(Wrong::Silent(_) | Wrong::Nfs(Nfsstat3::Jukebox)) if Instant::now() < limit => {
                    std::thread::sleep(AGAIN);
                }
                ended => return ended,
            }
        }
    }

    fn try_remove(&self) -> Result<(), Wrong> {
        let mut session = Session::open(self.from, self.to)?;
        empty(&mut session, self.handle)?;
        let place = DirOpArgs3 { dir: self.root, name: self.name.as_bytes() };
        match session.status(&Args3::Rmdir(place))? {
            // An earlier try may have gone through unheard.
            Nfsstat3::Ok | Nfsstat3::NoEnt => Ok(()),
            status => Err(Wrong::Nfs(status)),
        }
    }
}

/// Removes the files in a directory of ours; directories in it are not, and stay.
fn empty(session: &mut Session, dir: NfsFh3) -> Result<(), Wrong> {
    let names = match session.names(dir) {
        Err(Wrong::Nfs(Nfsstat3::Stale)) => return Ok(()),
        names => names?,
    };
    for name in &names {
        match session.status(&Args3::Remove(DirOpArgs3 { dir, name }))? {
            Nfsstat3::Ok | Nfsstat3::NoEnt => {}
            status => return Err(Wrong::Nfs(status)),
        }
    }
    Ok(())
}

fn looked_up(
    session: &mut Session,
    dir: NfsFh3,
    name: &[u8],
) -> Result<(NfsFh3, Option<Fattr3>), Wrong> {
    let args = Args3::Lookup(DirOpArgs3 { dir, name });
    let found = session.nfs::<Lookup3ResOk, PostOpAttr>(&args)?;
    Ok((found.object, found.obj_attributes))
}

/// Whether a name is one that [`Scratch::make`] gives.
fn is_ours(name: &[u8]) -> bool {
    let rest = name.strip_prefix(PREFIX.as_bytes());
    rest.is_some_and(|rest| {
        rest.len() == 16 && rest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Beginning of the directory's name.
pub(crate) const PREFIX: &str = ".aquifer-doctor-";
/// A doctor at work is never that old.
const OLD_S: i64 = 600;
/// A daemon that restarts is back by then.
const REMOVE_LIMIT: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_ours() {
        assert!(is_ours(b".aquifer-doctor-0123456789abcdef"));
        for other in
            [&b".aquifer-doctor-0123"[..], b".aquifer-doctor-0123456789abcdeF", b"disk.vhd", b""]
        {
            assert!(!is_ours(other));
        }
    }
}
