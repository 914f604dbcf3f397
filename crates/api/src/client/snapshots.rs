//! The client's part for snapshots.

use super::{Answer, Client, named};
use crate::{
    BookmarkInfo, BookmarksDone, DestroyBookmarks, DestroySnapshots, HoldInfo, HoldSnapshots,
    MakeBookmark, ReleaseSnapshots, RenameSnapshot, SnapshotInfo, SnapshotQuery,
    SnapshotsDestroyed, SnapshotsDone, TakeSnapshots,
};

impl Client {
    /// Lists snapshots.
    pub async fn snapshots(&self, query: &SnapshotQuery) -> Answer<Vec<SnapshotInfo>> {
        let SnapshotQuery { name, recursive, used } = query;
        let mut path = named("/snapshots", name.as_deref(), *recursive);
        // Not said unless it is wanted: an older daemon counts always, and does not know the word.
        if *used {
            path.push_str(if path.contains('?') { "&used=true" } else { "?used=true" });
        }
        self.get(&path).await
    }

    /// Takes snapshots.
    pub async fn take_snapshots(&self, request: &TakeSnapshots) -> Answer<SnapshotsDone> {
        self.post("/snapshots", request).await
    }

    /// Destroys snapshots, or says which it would.
    pub async fn destroy_snapshots(
        &self,
        request: &DestroySnapshots,
    ) -> Answer<SnapshotsDestroyed> {
        self.post("/snapshots/destroy", request).await
    }

    /// Places a hold on snapshots.
    pub async fn hold_snapshots(&self, request: &HoldSnapshots) -> Answer<SnapshotsDone> {
        self.post("/snapshots/hold", request).await
    }

    /// Releases a hold on snapshots.
    pub async fn release_snapshots(&self, request: &ReleaseSnapshots) -> Answer<SnapshotsDone> {
        self.post("/snapshots/release", request).await
    }

    /// Lists the holds on snapshots.
    pub async fn holds(&self, query: &SnapshotQuery) -> Answer<Vec<HoldInfo>> {
        let SnapshotQuery { name, recursive, .. } = query;
        self.get(&named("/snapshots/holds", name.as_deref(), *recursive)).await
    }

    /// Lists bookmarks.
    pub async fn bookmarks(&self, query: &SnapshotQuery) -> Answer<Vec<BookmarkInfo>> {
        let SnapshotQuery { name, recursive, .. } = query;
        self.get(&named("/bookmarks", name.as_deref(), *recursive)).await
    }

    /// Makes a bookmark of a snapshot.
    pub async fn make_bookmark(&self, request: &MakeBookmark) -> Answer<BookmarksDone> {
        self.post("/bookmarks", request).await
    }

    /// Destroys bookmarks.
    pub async fn destroy_bookmarks(&self, request: &DestroyBookmarks) -> Answer<BookmarksDone> {
        self.post("/bookmarks/destroy", request).await
    }

    /// Renames a snapshot.
    pub async fn rename_snapshot(&self, request: &RenameSnapshot) -> Answer<SnapshotsDone> {
        self.post("/snapshots/rename", request).await
    }
}
