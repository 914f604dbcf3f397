//! Routes of snapshots, holds and bookmarks.

use aquifer_api::{
    BookmarkQuery, DestroyBookmarks, DestroySnapshots, HoldQuery, HoldSnapshots, MakeBookmark,
    ReleaseSnapshots, RenameSnapshot, RollBack, SnapshotQuery, TakeSnapshots,
};

use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, query: SnapshotQuery| {
            at.control.snapshots(&query, &at.caller.principal(), at.scope()).await
        })
        .question(async |at, BookmarkQuery(query)| at.control.bookmarks(&query, at.scope()).await)
        .question(async |at, HoldQuery(query)| at.control.holds(&query, at.scope()).await)
        .operation(async |at, take: TakeSnapshots| at.control.take_snapshots(take).await)
        .operation(async |at, to: RenameSnapshot| at.control.rename_snapshot(to).await)
        .operation(async |at, of: DestroySnapshots| at.control.destroy_snapshots(of).await)
        .operation(async |at, to: RollBack| at.control.roll_back(to).await)
        .operation(async |at, hold: HoldSnapshots| at.control.hold_snapshots(hold).await)
        .operation(async |at, of: ReleaseSnapshots| at.control.release_snapshots(of).await)
        .operation(async |at, mark: MakeBookmark| at.control.make_bookmark(mark).await)
        .operation(async |at, of: DestroyBookmarks| at.control.destroy_bookmarks(of).await)
}
