//! Acts and questions on bookmarks.

use aquifer_api::{
    ApiError, BookmarkInfo, BookmarksDone, DestroyBookmarks, MakeBookmark, SnapshotQuery, guid_text,
};

use super::datasets::act_on;
use super::serving::Serving;
use super::{Control, Scope};

impl Control {
    /// Makes a bookmark of a snapshot. When this returns it is on disk.
    ///
    /// # Errors
    /// There is no such snapshot, it has one, the name is taken or is none.
    pub async fn make_bookmark(&self, request: MakeBookmark) -> Result<BookmarksDone, ApiError> {
        let MakeBookmark { snapshot, bookmark } = request;
        let (_act, serving) = self.act_of_one(&snapshot, "bookmark").await?;
        if serving.service().files.names_files(&snapshot) {
            return Err(ApiError::invalid(format!(
                "{snapshot:?} is a snapshot of a file, which has no bookmarks: hold it as long as \
                 what changed since is to be sent"
            )));
        }
        let datasets = serving.service().datasets.clone();
        let make = async move { datasets.bookmark(&snapshot, &bookmark).await };
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
        let (datasets, doomed) = (serving.service().datasets.clone(), names.clone());
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
                all.extend(list(&serving, serving.name(), true)?);
            }
            all.retain(is_seen);
            return Ok(all);
        };
        let serving = self.pool_of_one(name)?;
        let dataset = name.split('#').next().unwrap_or_default();
        let mut found = list(&serving, dataset, *recursive)?;
        found.retain(is_seen);
        if name.contains('#') {
            found.retain(|of| of.name == *name);
            if found.is_empty() {
                return Err(ApiError::not_found(format!("there is no bookmark {name:?}")));
            }
        }
        Ok(found)
    }
}

fn list(serving: &Serving, name: &str, recursive: bool) -> Result<Vec<BookmarkInfo>, ApiError> {
    let service = serving.service();
    let committed = service.pool.committed_txg();
    let mut infos = Vec::new();
    for of in super::snapshots::list(serving, name, recursive)? {
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
    Ok(infos)
}
