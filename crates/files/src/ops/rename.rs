//! RENAME.

use std::sync::Arc;

use aquifer_object::Object;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{Files, Target, attributes, before, lock_all, require, unchanged};
use crate::error::FsError;
use crate::limits::LINKS_MAX;
use crate::made::{Made, Promised};
use crate::ops::create::touched;
use crate::ops::names::{check_name, is_dot};
use crate::ops::remove::{check_sticky, same_dataset, unlink};
use crate::types::{Around, Credentials, FileHandle};

/// Most directories above one another that the check for cycles follows.
const DEPTH_MAX: usize = 4096;

/// The state that a rename found under its locks.
struct Plan {
    source: Dirent,
    replaced: Option<(Dirent, Inode)>,
    moved: Inode,
    key: u64,
}

impl Files {
    /// Renames, and replaces an existing target if POSIX allows it. Returns the attributes around
    /// both directories.
    pub async fn rename(
        &self,
        cred: &Credentials,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Made<(), (Around, Around)> {
        if from.0 == to.0
            && let Some(list) = self.list_of_snapshots(from.0)
        {
            return Box::pin(self.rename_snapshot(cred, &list, from.1, to.1)).await;
        }
        let from_dir = match self.directory(from.0).await {
            Ok(directory) => directory,
            Err(error) => return Made::failed(error, Default::default()),
        };
        let to_dir = match self.directory(to.0).await {
            Ok(directory) => directory,
            Err(error) => return Made::failed(error, (unchanged(&from_dir), Around::default())),
        };
        // Large, beside the other calls of names.
        let renamed = Box::pin(self.rename_in(cred, (&from_dir, from.1), (&to_dir, to.1))).await;
        Made::new(renamed, || (unchanged(&from_dir), unchanged(&to_dir)))
    }

    async fn rename_in(
        &self,
        cred: &Credentials,
        from: (&Target, &[u8]),
        to: (&Target, &[u8]),
    ) -> Result<((), (Around, Around), Promised), FsError> {
        check_name(from.1)?;
        check_name(to.1)?;
        if is_dot(from.1) || is_dot(to.1) {
            return Err(FsError::Invalid);
        }
        let (from_dir, to_dir) = (from.0, to.0);
        same_dataset(&from_dir.dataset, &to_dir.dataset)?;
        self.check_directory(from_dir)?;
        self.check_directory(to_dir)?;
        let orphans = self.orphans(&from_dir.dataset).await?;
        let admission =
            self.admit_names(&from_dir.dataset, (SpaceClass::Remove, self.lane(from_dir))).await?;
        // Directories move one at a time: two moves at once could make a cycle together.
        let source = self.find(cred, from_dir, from.1).await?.entry;
        let source = source.ok_or_else(|| self.no_entry(from_dir, from.1))?;
        let move_lock = match source.kind {
            FileKind::Directory => Some(self.directory_moves.lock().await),
            _ => None,
        };
        loop {
            let source = self.find(cred, from_dir, from.1).await?.entry.ok_or(FsError::NotFound)?;
            let replaced = self.find(cred, to_dir, to.1).await?.entry;
            if source.kind == FileKind::Directory && move_lock.is_none() {
                // Meanwhile the name became a directory's: the client may try again.
                return Err(FsError::TryLater);
            }
            let moved = self.object(&from_dir.dataset, source.object).await?;
            let over = match &replaced {
                Some(entry) => Some(self.object(&to_dir.dataset, entry.object).await?),
                None => None,
            };
            let mut objects: Vec<&Arc<Object>> =
                vec![&from_dir.object, &to_dir.object, &moved.object, &orphans];
            objects.extend(over.iter().map(|over| &over.object));
            let locks = lock_all(&objects).await;
            let again = self.find(cred, from_dir, from.1).await?.entry.ok_or(FsError::NotFound)?;
            let target = self.find(cred, to_dir, to.1).await?;
            if again != source || target.entry != replaced {
                continue;
            }
            let before_both = (from_dir.inode(), to_dir.inode());
            if before_both.0.nlink == 0 || before_both.1.nlink == 0 {
                return Err(FsError::Stale);
            }
            if replaced.as_ref().is_some_and(|entry| entry.object == source.object) {
                // Both names are of one file: POSIX says to do nothing.
                drop((locks, admission));
                let promised = self.nothing_changed(cred, (&from_dir.dataset, None)).await?;
                return Ok(((), (unchanged(from_dir), unchanged(to_dir)), promised));
            }
            let plan = Plan {
                key: match &replaced {
                    Some(entry) => entry.key,
                    None => target.free_key?,
                },
                source,
                replaced: replaced.zip(over.as_ref().map(Target::inode)),
                moved: moved.inode(),
            };
            self.check_rename(cred, from_dir, to_dir, &plan).await?;
            let changes = self.rename_changes(from_dir, (to_dir, to.1), plan);
            let promised = self.change(cred, (&from_dir.dataset, None), admission, &changes)?;
            let around = |old: &Inode, target: &Target| Around {
                before: Some(before(old)),
                after: Some(attributes(&target.dataset, &target.inode())),
            };
            let arounds = (around(&before_both.0, from_dir), around(&before_both.1, to_dir));
            drop(locks);
            return Ok(((), arounds, promised));
        }
    }

    async fn check_rename(
        &self,
        cred: &Credentials,
        from_dir: &Target,
        to_dir: &Target,
        plan: &Plan,
    ) -> Result<(), FsError> {
        let (from_inode, to_inode) = (from_dir.inode(), to_dir.inode());
        require(cred, &from_inode, 3)?;
        require(cred, &to_inode, 3)?;
        check_sticky(cred, &from_inode, &plan.moved)?;
        let directory = plan.moved.kind == FileKind::Directory;
        if let Some((_, over)) = &plan.replaced {
            check_sticky(cred, &to_inode, over)?;
            match (directory, over.kind == FileKind::Directory) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) if over.entries > 0 => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        if !directory || from_dir.object.id == to_dir.object.id {
            return Ok(());
        }
        if plan.replaced.is_none() && to_inode.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        // A directory must not be moved below itself.
        let mut above = to_dir.object.id;
        for _ in 0..DEPTH_MAX {
            if above == plan.moved.object {
                return Err(FsError::Invalid);
            }
            if above == aquifer_dataset::ROOT_DIRECTORY {
                return Ok(());
            }
            above = self.object(&to_dir.dataset, above).await?.inode().parent;
        }
        Err(FsError::Invalid)
    }

    fn rename_changes(&self, from_dir: &Target, to: (&Target, &[u8]), plan: Plan) -> Vec<Change> {
        let (to_dir, name) = to;
        let now = self.now();
        let directory = plan.moved.kind == FileKind::Directory;
        let same = from_dir.object.id == to_dir.object.id;
        let mut from_inode = touched(&from_dir.inode(), now);
        let mut to_inode = if same { from_inode.clone() } else { touched(&to_dir.inode(), now) };
        from_inode.entry_removed();
        from_inode.nlink = from_inode.nlink.saturating_sub(u32::from(directory));
        if same {
            to_inode = from_inode.clone();
        }
        to_inode.entry_added();
        // The limit was checked, unless a hostile disk made up the number: saturate.
        to_inode.nlink = to_inode.nlink.saturating_add(u32::from(directory));
        let mut unlinked = Vec::new();
        if let Some((_, over)) = &plan.replaced {
            to_inode.entry_removed();
            to_inode.nlink = to_inode.nlink.saturating_sub(u32::from(directory));
            unlinked = unlink(over, now);
        }
        let mut moved = plan.moved;
        moved.touch(now);
        if directory {
            moved.parent = to_dir.object.id;
        }
        // The order in which others may see the changes. The new name comes first, in the place of
        // the replaced one (it has that key). So every object that still has a name can be found
        // throughout.
        let entry = Dirent { key: plan.key, name: name.to_vec(), ..plan.source };
        let mut changes = vec![Change::Entry(to_dir.object.id, entry)];
        changes.push(Change::Inode(to_inode));
        changes.push(Change::Drop(from_dir.object.id, plan.source.key));
        if !same {
            changes.push(Change::Inode(from_inode));
        }
        changes.push(Change::Inode(moved));
        changes.extend(unlinked);
        changes
    }
}
