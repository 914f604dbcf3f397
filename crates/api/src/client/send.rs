//! The client's part for streams.

use hyper::StatusCode;
use hyper::body::Bytes;

use super::remote::Coming;
use super::{Answer, Client, JSON, broken, parsed, refused};
use crate::send::{NEXT, SIZE};
use crate::{Method, ReceivedPart, SendQuery, SentPart};

/// The type of a stream's bytes.
const STREAM: &str = "application/octet-stream";

/// Bytes of a stream that are on their way. Where the next ones begin is known before they have
/// come, so that the daemon can make those meanwhile.
pub struct ComingPart {
    coming: Coming,
    next: Option<String>,
    stream_bytes: Option<u64>,
}

impl ComingPart {
    /// Where the next ones begin; `None` after the last ones.
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// All of it.
    pub async fn whole(self) -> Answer<SentPart> {
        let (_, _, bytes) = self.coming.whole().await?;
        let bytes: Vec<u8> = bytes.into();
        let stream_bytes = self.stream_bytes.unwrap_or(bytes.len() as u64);
        Ok(SentPart { bytes, stream_bytes, next: self.next })
    }
}

impl Client {
    /// Asks for some bytes of the stream of a snapshot, on a connection of its own.
    pub async fn begin_part(&self, query: &SendQuery) -> Answer<ComingPart> {
        let body = serde_json::to_vec(query).map_err(broken)?.into();
        let coming = self.begin(self.request(Method::Post, "/send", JSON, body)?).await?;
        let (status, headers) = coming.head();
        if status != StatusCode::OK {
            let (status, _, body) = coming.whole().await?;
            return Err(refused(status, &body));
        }
        let next = headers.get(NEXT).and_then(|next| next.to_str().ok()).map(Into::into);
        let stream_bytes = headers.get(SIZE).and_then(|size| size.to_str().ok()?.parse().ok());
        Ok(ComingPart { coming, next, stream_bytes })
    }

    /// Gives bytes of a stream.
    pub async fn receive_part(&self, id: u64, part: Bytes) -> Answer<ReceivedPart> {
        let path = format!("/receive/{id}");
        let (_, answer) = self.exchange(Method::Post, &path, STREAM, part).await?;
        parsed(&answer)
    }
}
