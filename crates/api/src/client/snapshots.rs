//! The client's part for snapshots.

use super::{Answer, Client, escaped, named};
use crate::{
    BookmarkInfo, BookmarksDone, COUNTED_SNAPSHOTS_MAX, DestroyBookmarks, DestroySnapshots,
    HoldInfo, HoldSnapshots, MakeBookmark, ReleaseSnapshots, RenameSnapshot, SnapshotInfo,
    SnapshotQuery, SnapshotsDestroyed, SnapshotsDone, TakeSnapshots,
};

impl Client {
    /// Lists snapshots. Those of which is counted what they take come in pages, unless the query
    /// asks for one.
    pub async fn snapshots(&self, query: &SnapshotQuery) -> Answer<Vec<SnapshotInfo>> {
        if !query.used || query.limit.is_some() {
            return self.snapshot_page(query).await;
        }
        let limit = COUNTED_SNAPSHOTS_MAX;
        let mut query = SnapshotQuery { limit: Some(limit), ..query.clone() };
        let mut all: Vec<SnapshotInfo> = Vec::new();
        loop {
            let mut page = self.snapshot_page(&query).await?;
            query.after = page.last().map(|last| last.cursor.clone());
            let is_last = page.len() < limit;
            all.append(&mut page);
            if is_last {
                return Ok(all);
            }
        }
    }

    async fn snapshot_page(&self, query: &SnapshotQuery) -> Answer<Vec<SnapshotInfo>> {
        let SnapshotQuery { name, recursive, used, limit, after } = query;
        let mut path = named("/snapshots", name.as_deref(), *recursive);
        // Not said unless it is wanted: an older daemon does not know the words.
        let words = [
            used.then(|| "used=true".to_owned()),
            limit.map(|limit| format!("limit={limit}")),
            after.as_ref().map(|after| format!("after={}", escaped(after))),
        ];
        for word in words.into_iter().flatten() {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&word);
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
