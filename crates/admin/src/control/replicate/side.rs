//! The side that has the copy: a peer over its API, or this daemon.

use std::sync::Arc;

use aquifer_api::{
    ApiError, DatasetInfo, DatasetQuery, ErrorKind, GiveUpReceive, On, ReceiveBegun, ReceiveEnd,
    ReceiveInfo, ReceiveRequest, ReceiveSummary, ReceivesQuery, RollBack, SnapshotInfo,
    SnapshotName, SnapshotQuery,
};
use aquifer_files::Expected;
use bytes::Bytes;

use super::super::receive::Bringer;
use super::super::{Control, Scope};
use super::jobs::Wish;
use super::line::{ACT, END, Line, PART, QUESTION};

/// Where a copy is.
#[derive(Debug)]
pub(super) enum Side {
    /// Here, and brought by this one.
    Here(Arc<Control>, Bringer),
    There(Line),
}

impl Side {
    /// The side of a copy.
    ///
    /// # Errors
    /// The configuration has no such peer; its files cannot be used.
    pub fn of(control: &Arc<Control>, wish: &Wish) -> Result<Side, ApiError> {
        match &wish.target.peer {
            Some(peer) => Ok(Side::There(Line::to(control, peer, "receive")?)),
            None => {
                // What another server sends is a stranger's, whoever asked for it.
                let bringer = wish.source.as_deref().map_or_else(Bringer::itself, Bringer::peer);
                Ok(Side::Here(Arc::clone(control), bringer))
            }
        }
    }

    /// Whether it did not answer the last time: others need not try it now.
    pub fn is_away(&self) -> bool {
        match self {
            Side::Here(..) => false,
            Side::There(line) => line.is_away(),
        }
    }

    /// A dataset, if it is there, perhaps with all below it.
    pub async fn datasets(
        &self,
        name: &str,
        recursive: bool,
    ) -> Result<Vec<DatasetInfo>, ApiError> {
        let query = DatasetQuery { name: Some(name.into()), recursive };
        let found = match self {
            Side::Here(control, _) => control.datasets(&query, &Scope::default()),
            Side::There(line) => line.asked(QUESTION, line.client.ask(&query)).await,
        };
        match found {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Vec::new()),
            found => found,
        }
    }

    /// The snapshots of a dataset, without those of files, as they were taken.
    pub async fn snapshots(&self, dataset: &str) -> Result<Vec<SnapshotInfo>, ApiError> {
        let query =
            SnapshotQuery { name: Some(dataset.into()), recursive: false, ..Default::default() };
        let found = match self {
            Side::Here(control, _) => control.snapshots(&query, "daemon", &Scope::default()).await,
            Side::There(line) => line.asked(QUESTION, line.client.snapshots(&query)).await,
        };
        Ok(found?.into_iter().filter(|of| of.path.is_none()).collect())
    }

    pub async fn roll_back(&self, snapshot: String) -> Result<(), ApiError> {
        let request = RollBack { name: snapshot, destroy_later: true, force: true };
        match self {
            Side::Here(control, _) => control.roll_back(request).await.map(drop),
            Side::There(line) => line.asked(ACT, line.client.ask(&request)).await.map(drop),
        }
    }

    /// Lists what came of a stream into a dataset, if it may go on; `None`: the side is of an
    /// earlier release, which keeps nothing.
    pub async fn receives(&self, dataset: &str) -> Result<Option<Vec<ReceiveInfo>>, ApiError> {
        let query = ReceivesQuery { name: Some(dataset.into()), ..Default::default() };
        let found = match self {
            Side::Here(control, _) => control.receives(&query, &Scope::default()),
            Side::There(line) => line.asked(QUESTION, line.client.ask(&query)).await,
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops what came of a stream that broke off.
    pub async fn give_up_receive(&self, name: String) -> Result<(), ApiError> {
        let request = GiveUpReceive { name };
        match self {
            Side::Here(control, bringer) => {
                control.give_up_receive(request, bringer).await.map(drop)
            }
            Side::There(line) => line.asked(ACT, line.client.ask(&request)).await.map(drop),
        }
    }

    /// Begins a stream, which is of these snapshots and of nothing else.
    pub async fn begin_receive(
        &self,
        request: ReceiveRequest,
        expected: Expected,
    ) -> Result<ReceiveBegun, ApiError> {
        match self {
            Side::Here(control, bringer) => {
                control.begin_expected(request, bringer, Some(expected)).await
            }
            Side::There(line) => line.asked(ACT, line.client.ask(&request)).await,
        }
    }

    pub async fn receive_part(&self, id: u64, part: Bytes) -> Result<(), ApiError> {
        match self {
            Side::Here(control, bringer) => {
                let leave = control.admit_part(id, bringer, part.len()).await?;
                control.receive_part(leave, part.into()).await.map(drop)
            }
            Side::There(line) => {
                line.asked(PART, line.client.receive_part(id, part)).await.map(drop)
            }
        }
    }

    /// The copy has the snapshot when this returns; older ones of these names are destroyed.
    pub async fn end_receive(
        &self,
        id: u64,
        prune: Vec<SnapshotName>,
    ) -> Result<ReceiveSummary, ApiError> {
        let end = ReceiveEnd { give_up: false, prune };
        match self {
            Side::Here(control, bringer) => control.end_receive(id, end, bringer).await,
            Side::There(line) => {
                line.asked(END, line.client.ask(&On::new(id.to_string(), end))).await
            }
        }
    }

    /// Leaves a stream before its end: what came waits for the rest there. If the side does not
    /// hear it, it finds out by itself in a minute.
    pub async fn give_up(&self, id: u64) {
        let end = ReceiveEnd { give_up: true, prune: Vec::new() };
        let _ = match self {
            Side::Here(control, bringer) => control.end_receive(id, end, bringer).await.map(drop),
            Side::There(line) => {
                line.asked(QUESTION, line.client.ask(&On::new(id.to_string(), end))).await.map(drop)
            }
        };
    }
}
