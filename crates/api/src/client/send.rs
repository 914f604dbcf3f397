//! The client's part for streams.

use hyper::Method;

use super::{Answer, Client, JSON, broken, named, parsed};
use crate::send::{NEXT, SIZE};
use crate::{
    DatasetDone, GiveUpReceive, ReceiveBegun, ReceiveEnd, ReceiveInfo, ReceiveRequest,
    ReceiveSummary, ReceivedPart, ReceivesQuery, SendQuery, SentPart,
};

/// The type of a stream's bytes.
const STREAM: &str = "application/octet-stream";

impl Client {
    /// Some bytes of the stream of a snapshot.
    pub async fn send_part(&self, query: &SendQuery) -> Answer<SentPart> {
        let body = serde_json::to_vec(query).map_err(broken)?.into();
        let (headers, bytes) = self.ask(Method::POST, "/send", JSON, body).await?;
        let next = headers.get(NEXT).and_then(|next| next.to_str().ok()).map(Into::into);
        let size = headers.get(SIZE).and_then(|size| size.to_str().ok()?.parse().ok());
        let bytes: Vec<u8> = bytes.into();
        let stream_bytes = size.unwrap_or(bytes.len() as u64);
        Ok(SentPart { bytes, stream_bytes, next })
    }

    /// Begins to receive a stream.
    pub async fn begin_receive(&self, request: &ReceiveRequest) -> Answer<ReceiveBegun> {
        self.post("/receive", request).await
    }

    /// Gives bytes of a stream.
    pub async fn receive_part(&self, id: u64, bytes: Vec<u8>) -> Answer<ReceivedPart> {
        let path = format!("/receive/{id}");
        let (_, answer) = self.ask(Method::POST, &path, STREAM, bytes.into()).await?;
        parsed(&answer)
    }

    /// What came of streams that may go on.
    pub async fn receives(&self, query: &ReceivesQuery) -> Answer<Vec<ReceiveInfo>> {
        self.get(&named("/receives", query.name.as_deref(), query.recursive)).await
    }

    /// Drops what came of a stream that broke off.
    pub async fn give_up_receive(&self, request: &GiveUpReceive) -> Answer<DatasetDone> {
        self.post("/receives/give-up", request).await
    }

    /// Ends a stream.
    pub async fn end_receive(&self, id: u64, request: &ReceiveEnd) -> Answer<ReceiveSummary> {
        self.post(&format!("/receive/{id}/end"), request).await
    }
}
