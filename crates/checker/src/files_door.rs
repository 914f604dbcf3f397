//! A door straight to the files: no wire, no protocol.

use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_files::{
    Around, Attributes, CreateHow, Credentials, FileHandle, FsError, Made, Piece, Service,
    SetAttributes, Stability, Time,
};

use crate::content::{CELL_BYTES, bytes_of};
use crate::op::{Cells, Door, Listed, Node, Op, Place, Position, Reply};
use crate::tree::MODE;

/// Here no call outlives its server.
const VERIFIER: u64 = 0;

/// Straight to the files.
pub struct FilesDoor {
    service: Service,
    cred: Credentials,
}

fn changed(
    around: &Around,
    attributes: Option<Attributes>,
    stability: Stability,
) -> Result<Reply, FsError> {
    let after = around.after.expect("a change that succeeded tells what is after it");
    let ctime_ns = nanoseconds(after.ctime);
    Ok(Reply::Changed { ctime_ns, attributes, stability, verifier: VERIFIER })
}

fn nanoseconds(time: Time) -> u64 {
    u64::try_from(time.seconds).unwrap() * 1_000_000_000 + u64::from(time.nanoseconds)
}

fn tagged(tag: u32) -> SetAttributes {
    SetAttributes { uid: Some(tag), mode: Some(MODE), ..SetAttributes::default() }
}

fn at(place: &Place) -> (FileHandle, &[u8]) {
    (place.directory.handle, place.name.as_bytes())
}

impl FilesDoor {
    /// A door with all permissions.
    pub fn new(service: &Service) -> FilesDoor {
        FilesDoor { service: service.clone(), cred: Credentials::root() }
    }

    async fn made(&self, made: Made<Attributes>) -> Result<Reply, FsError> {
        let (made, around) = made.kept().await;
        changed(&around, Some(made?), Stability::FileSync)
    }

    async fn plain(&self, made: Made<()>) -> Result<Reply, FsError> {
        let (done, around) = made.kept().await;
        done.and_then(|()| changed(&around, None, Stability::FileSync))
    }

    async fn write(&self, op: &Op) -> Result<Reply, FsError> {
        let Op::Write { file, cells, stability } = op else { unreachable!() };
        let (files, handle) = (&self.service.files, file.handle);
        let data = |c: &Cells| bytes_of(c.first, c.count, c.cell);
        if let [cells] = cells.as_slice() {
            let offset = cells.first * CELL_BYTES;
            let (written, around) =
                files.write(&self.cred, handle, offset, &data(cells), *stability).await;
            return changed(&around, around.after, written?);
        }
        let pieces: Vec<_> =
            cells.iter().map(|c| (c.first * CELL_BYTES, pages_of(&data(c)))).collect();
        let pieces: Vec<Piece<'_>> =
            pieces.iter().map(|(at, pages)| Piece::of_pages(*at, pages)).collect();
        match files.write_batch(&self.cred, handle, &pieces, *stability).await {
            Ok(made) => {
                made.promised.kept().await?;
                changed(made.arounds.last().unwrap(), None, made.stability)
            }
            // Nothing was changed; one of the writes would have to run alone.
            Err(_) => Err(FsError::NotSupported),
        }
    }

    async fn list(&self, directory: &Node, limit: usize) -> Result<Reply, FsError> {
        let (mut entries, mut from) = (Vec::new(), Position::default());
        loop {
            let listed = self.list_from(directory, from, limit).await?;
            entries.extend(listed.entries);
            from = listed.next;
            if listed.eof {
                return Ok(Reply::Listed(entries));
            }
        }
    }
}

impl Door for FilesDoor {
    async fn call(&self, op: &Op, _: Option<usize>) -> Result<Reply, FsError> {
        let (files, cred) = (&self.service.files, &self.cred);
        match op {
            Op::Create(place, tag) => {
                let ((dir, name), how) = (at(place), CreateHow::Guarded(tagged(*tag)));
                self.made(files.create(cred, dir, name, how).await).await
            }
            Op::Mkdir(place, tag) => {
                let (dir, name) = at(place);
                self.made(files.mkdir(cred, dir, name, &tagged(*tag)).await).await
            }
            Op::Symlink(place, tag) => {
                let ((dir, name), text, set) = (at(place), tag.to_string(), tagged(*tag));
                self.made(files.symlink(cred, dir, name, text.as_bytes(), &set).await).await
            }
            Op::Remove(place) => {
                let (dir, name) = at(place);
                self.plain(files.remove(cred, dir, name).await).await
            }
            Op::Rmdir(place) => {
                let (dir, name) = at(place);
                self.plain(files.rmdir(cred, dir, name).await).await
            }
            Op::Rename(from, to) => {
                let (renamed, (around, _)) =
                    files.rename(cred, at(from), at(to)).await.kept().await;
                renamed?;
                let before = around.before.unwrap().ctime;
                match before == around.after.unwrap().ctime {
                    true => Ok(Reply::Nothing),
                    false => changed(&around, None, Stability::FileSync),
                }
            }
            Op::Link(node, place) => {
                let (dir, name) = at(place);
                let (linked, (_, around)) =
                    files.link(cred, node.handle, dir, name).await.kept().await;
                linked.and_then(|_| changed(&around, None, Stability::FileSync))
            }
            Op::Set { file, size, mode } => {
                let set = SetAttributes { size: *size, mode: *mode, ..SetAttributes::default() };
                let (set, around) = files.setattr(cred, file.handle, &set, None).await.kept().await;
                set.and_then(|()| changed(&around, around.after, Stability::FileSync))
            }
            Op::Write { .. } => self.write(op).await,
            Op::Commit { file, offset, count } => {
                files.commit(cred, file.handle, *offset, *count).await.kept().await.0?;
                Ok(Reply::Committed(VERIFIER))
            }
            Op::Read { file, first, count } => {
                let (offset, count) = (first * CELL_BYTES, (count * CELL_BYTES) as u32);
                let read = files.read(cred, file.handle, offset, count).await?;
                let (eof, mut bytes) = (read.eof, Vec::new());
                for (page, range) in read.into_pieces() {
                    bytes.extend_from_slice(&page[range]);
                }
                Ok(Reply::Read(bytes, eof))
            }
            Op::Getattr(node) => Ok(Reply::Attributes(files.getattr(node.handle).await?)),
            Op::Readlink(node) => Ok(Reply::Text(files.readlink(cred, node.handle).await?.0)),
            Op::Lookup(place) => {
                let (dir, name) = at(place);
                Ok(Reply::Attributes(files.lookup(cred, dir, name).await.0?))
            }
            Op::List(directory, limit) => self.list(directory, *limit).await,
        }
    }

    async fn list_from(
        &self,
        directory: &Node,
        mut from: Position,
        limit: usize,
    ) -> Result<Listed, FsError> {
        let (files, cookie) = (&self.service.files, from.cookie);
        let (found, eof, _) =
            files.readdir(&self.cred, directory.handle, cookie, limit, true).await?;
        let mut entries = Vec::new();
        for entry in found {
            from.cookie = entry.cookie;
            if entry.cookie > 2 {
                entries.push((String::from_utf8(entry.name).unwrap(), entry.attributes));
            }
        }
        Ok(Listed { entries, next: from, eof })
    }

    fn nudge(&self) {
        self.service.pool.request_txg();
    }

    async fn pause(&self, microseconds: u64) {
        self.service.pool.world().sleep(Duration::from_micros(microseconds)).await;
    }
}
