//! Acts and questions on bookmarks.

use std::sync::Arc;

use aquifer_api::{
    ApiError, BookmarkInfo, BookmarksDone, DestroyBookmarks, MakeBookmark, SnapshotQuery, guid_text,
};
use aquifer_dataset::Dataset;
use aquifer_files::Subject;

use super::datasets::act_on;
use super::serving::Serving;
use super::snapshots::{self, SnapshotsOf};
use super::{Control, Scope, subjects};

impl Control {
    /// Makes a bookmark of a snapshot. When this returns it is on disk.
    ///
    /// # Errors
    /// There is no such snapshot, it has one, the name is taken or is none.
    pub async fn make_bookmark(&self, request: MakeBookmark) -> Result<BookmarksDone, ApiError> {
        let MakeBookmark { snapshot, bookmark } = request;
        let (_act, serving) = self.act_of_one(&snapshot, "bookmark").await?;
        let subject = subjects::subject(&serving.service().datasets, &snapshot)?;
        if let Subject::FileSnapshots(_) = subject {
            return Err(ApiError::invalid(format!(
                "{snapshot:?} is a snapshot of a file, which has no bookmarks: hold it as long as \
                 what changed since is to be sent"
            )));
        }
        let one = subject.one_snapshot(&snapshot).map_err(subjects::api_error)?;
        let datasets = serving.service().datasets.clone();
        let make = async move { datasets.bookmark(&one.full, &bookmark).await };
        let full = act_on(&serving, make).await?;
        let pool = serving.name();
        tracing::info!(class = "bookmark.made", pool, bookmark = %full, "bookmark made");
        Ok(BookmarksDone { names: vec![full] })
    }

    /// Destroys bookmarks, all in one txg. When this returns they are gone, on disk.
    ///
    /// # Errors
    /// One does not exist: then none is destroyed.
    pub async fn destroy_bookmarks(
        &self,
        request: DestroyBookmarks,
    ) -> Result<BookmarksDone, ApiError> {
        let DestroyBookmarks { names } = request;
        let (_act, serving) = self.act_of_all(&names, "destroy").await?;
        let mut doomed = Vec::new();
        for name in &names {
            let of = subjects::subject(&serving.service().datasets, name)?
                .bookmark(name)
                .map_err(subjects::api_error)?;
            doomed.push(of.full);
        }
        let datasets = serving.service().datasets.clone();
        act_on(&serving, async move { datasets.destroy_bookmarks(&doomed).await }).await?;
        tracing::info!(
            class = "bookmark.destroyed",
            pool = serving.name(),
            bookmarks = names.join(" "),
            "bookmarks destroyed"
        );
        Ok(BookmarksDone { names })
    }

    /// Bookmarks: one, those of a dataset, also those of datasets below it, or all of all pools.
    ///
    /// # Errors
    /// There is no dataset or bookmark with that name.
    pub async fn bookmarks(
        &self,
        query: &SnapshotQuery,
        scope: &Scope,
    ) -> Result<Vec<BookmarkInfo>, ApiError> {
        let SnapshotQuery { name, recursive, .. } = query;
        self.check_question(scope, name.as_deref(), *recursive)?;
        let is_seen = |of: &BookmarkInfo| scope.covers(&of.dataset);
        let Some(name) = name else {
            let mut all = Vec::new();
            for serving in self.all_serving() {
                let all_of = snapshots::list(&serving, serving.name(), true)?;
                all.extend(infos(&serving, all_of));
            }
            all.retain(is_seen);
            return Ok(all);
        };
        let serving = self.pool_of_one(name)?;
        let (dataset, one) = match subjects::subject(&serving.service().datasets, name)? {
            Subject::Dataset(dataset) => (dataset, None),
            other => {
                let one = other.bookmark(name).map_err(subjects::api_error)?;
                (one.dataset, Some(one.full))
            }
        };
        let mut found = list_of(&serving, &dataset, *recursive);
        found.retain(is_seen);
        if let Some(one) = one {
            found.retain(|of| of.name == one);
            if found.is_empty() {
                return Err(ApiError::not_found(format!("there is no bookmark {name:?}")));
            }
        }
        Ok(found)
    }
}

fn list_of(serving: &Serving, dataset: &Arc<Dataset>, recursive: bool) -> Vec<BookmarkInfo> {
    infos(serving, snapshots::list_of(serving, dataset, recursive))
}

fn infos(serving: &Serving, all: Vec<SnapshotsOf>) -> Vec<BookmarkInfo> {
    let committed = serving.service().pool.committed_txg();
    let mut infos = Vec::new();
    for of in all {
        let all = of.dataset.bookmarks(committed).into_iter();
        infos.extend(all.map(|bookmark| BookmarkInfo {
            name: format!("{}#{}", of.name, bookmark.record.name),
            dataset: of.name.clone(),
            created_ns: bookmark.record.created.since_1970_ns(),
            txg: bookmark.txg.0,
            guid: guid_text(bookmark.record.guid.0),
            refer_bytes: bookmark.record.refer_bytes,
        }));
    }
    infos
}
