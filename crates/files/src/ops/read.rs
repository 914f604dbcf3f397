//! Reading: attributes, names, links, content, space.

use aquifer_ondisk::Corruption;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::PoolError;

use crate::core::{Files, Target, permits, require};
use crate::error::FsError;
use crate::limits::TARGET_BYTES_MAX;
use crate::ops::names::check_name;
use crate::snapdir;
use crate::types::{Attributes, Credentials, FileHandle, FsSpace, ReadData, access, zero_page};

impl Files {
    /// Attributes.
    pub async fn getattr(&self, file: FileHandle) -> Result<Attributes, FsError> {
        Ok(self.target(file).await?.attributes())
    }

    /// Finds a name (`.` and `..` too). The second value is the directory.
    pub async fn lookup(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
    ) -> (Result<Attributes, FsError>, Option<Attributes>) {
        let directory = match self.directory(dir).await {
            Ok(directory) => directory,
            Err(error) => return (Err(error), None),
        };
        let found = self.lookup_in(cred, &directory, name).await;
        (found, Some(directory.attributes()))
    }

    async fn lookup_in(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        check_name(name)?;
        let inode = directory.inode();
        require(cred, &inode, 1)?;
        if name == b"." {
            return Ok(directory.attributes());
        }
        if name == b".." {
            return Ok(self.parent(directory).await?.attributes());
        }
        let Some(mut entry) = self.find(cred, directory, name).await?.entry else {
            // Rare, and large: not a part of every LOOKUP's future.
            return Box::pin(self.lookup_hidden(cred, directory, name)).await;
        };
        if snapdir::is_name(directory, name) {
            self.tell_covered(directory);
        }
        loop {
            match self.object(&directory.dataset, entry.object).await {
                // The entry was there. If its object is gone by now, the name is gone too, or it
                // names another object that was moved there.
                Err(FsError::Stale) => {}
                target => return Ok(target?.attributes()),
            }
            let now = Box::pin(self.find(cred, directory, name)).await?;
            let now = now.entry.ok_or(FsError::NotFound)?;
            if now == entry {
                return Err(FsError::NotFound);
            }
            entry = now;
        }
    }

    /// Which of the wanted kinds of access are granted.
    pub async fn access(
        &self,
        cred: &Credentials,
        file: FileHandle,
        wanted: u32,
    ) -> Result<(u32, Attributes), FsError> {
        let target = self.target(file).await?;
        let inode = target.inode();
        let directory = inode.kind == FileKind::Directory;
        let can = |bits: u32| permits(cred, &inode, bits);
        let mut granted = 0;
        if can(4) {
            granted |= access::READ;
        }
        if can(2) {
            granted |= access::MODIFY | access::EXTEND;
            if directory {
                granted |= access::DELETE;
            }
        }
        if can(1) {
            granted |= if directory { access::LOOKUP } else { access::EXECUTE };
        }
        if target.is_read_only() && !snapdir::may_control(cred, &target) {
            granted &= access::READ | access::LOOKUP | access::EXECUTE;
        }
        Ok((granted & wanted, target.attributes()))
    }

    /// The target of a symbolic link.
    pub async fn readlink(
        &self,
        _cred: &Credentials,
        file: FileHandle,
    ) -> Result<(Vec<u8>, Attributes), FsError> {
        let target = self.target(file).await?;
        let inode = target.inode();
        if inode.kind != FileKind::Symlink {
            return Err(FsError::Invalid);
        }
        target.object.check()?;
        if inode.size > TARGET_BYTES_MAX as u64 {
            let (object, bytes) = (inode.object, inode.size);
            return Err(PoolError::from(Corruption::SymlinkTarget { object, bytes }).into());
        }
        let pages = inode.size.div_ceil(4096);
        let pages = match target.object.read_pages(&self.pool, 0, pages).await {
            Err(error) => return Err(self.unreadable_pages(&target, (0, pages), error).await),
            Ok(pages) => pages,
        };
        let mut text = Vec::new();
        for page in pages {
            text.extend_from_slice(page.unwrap_or_else(zero_page).as_slice());
        }
        text.truncate(usize::try_from(inode.size).unwrap_or(usize::MAX));
        Ok((text, target.attributes()))
    }

    /// Reads up to `count` bytes.
    pub async fn read(
        &self,
        cred: &Credentials,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<ReadData, FsError> {
        let target = self.target(file).await?;
        let inode = target.inode();
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
        // As in every NFS server, the owner may read whatever the mode says: the owner had access
        // when opening the file. A caller that may execute must read to do so.
        if cred.uid != inode.uid && !permits(cred, &inode, 4) && !permits(cred, &inode, 1) {
            return Err(FsError::AccessDenied);
        }
        if snapdir::orders::is_control(file) {
            return Ok(self.read_control(&target, (offset, count)));
        }
        target.object.check()?;
        let end = offset.saturating_add(count.into()).min(inode.size);
        let attributes = target.attributes();
        let eof = end >= inode.size;
        if offset >= end {
            return Ok(ReadData { pages: Vec::new(), skip: 0, count: 0, eof, attributes });
        }
        let (first, last) = (offset / 4096, end.div_ceil(4096));
        let pages = match target.object.read_pages(&self.pool, first, last).await {
            Err(error) => return Err(self.unreadable_pages(&target, (first, last), error).await),
            Ok(pages) => pages,
        };
        let skip = usize::try_from(offset % 4096).unwrap_or(0);
        let count = usize::try_from(end - offset).unwrap_or(0);
        Ok(ReadData { pages, skip, count, eof, attributes })
    }

    /// Space of the file's dataset; of a snapshot what it refers to, of which nothing is free.
    pub async fn fsstat(&self, file: FileHandle) -> Result<(FsSpace, Attributes), FsError> {
        let target = self.target(file).await?;
        if target.dataset.snapshot().is_some() {
            let total_bytes = target.dataset.refer_bytes();
            let full = FsSpace { total_bytes, total_files: total_bytes / 4096, ..FsSpace::NONE };
            return Ok((full, target.attributes()));
        }
        let available = self.datasets.available_bytes(&target.dataset);
        // What is kept free for it is available to it.
        let kept = target.dataset.lacking_bytes();
        let used = self.datasets.used_bytes(&target.dataset).saturating_sub(kept);
        // An object takes at least its share of a leaf, so no more objects fit.
        let free_files = available / 512;
        let space = FsSpace {
            total_bytes: used + available,
            free_bytes: available,
            available_bytes: available,
            total_files: free_files + used / 4096,
            free_files,
        };
        Ok((space, target.attributes()))
    }
}
