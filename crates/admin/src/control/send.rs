//! Sending snapshots.

use aquifer_api::{ApiError, SendQuery, SentPart};
use aquifer_files::{SendCursor, SendError, SendWanted};

use super::{Control, properties, snapshots};

impl Control {
    /// Some bytes of the stream of a snapshot, and where the next ones begin.
    ///
    /// # Errors
    /// Names that do not exist, a cursor of another stream, a snapshot that was destroyed
    /// meanwhile, damage.
    pub async fn send_part(&self, query: SendQuery) -> Result<SentPart, ApiError> {
        let SendQuery { snapshot, from, size_only, after } = query;
        let cursor: Option<SendCursor> =
            after.map(|after| after.parse()).transpose().map_err(api_error)?;
        let serving = self.serving(snapshots::pool_name(&snapshot))?;
        let files = serving.service().files.clone();
        let page = async move {
            let (snapshot, from) = (snapshot.as_str(), from.as_deref());
            files.send_page(SendWanted { snapshot, from, size_only }, cursor).await
        };
        let page = serving.run(page).await.map_err(|error| ApiError::failed(error.to_string()))?;
        let page = page.map_err(api_error)?;
        let (bytes, stream_bytes) = (page.bytes, page.stream_bytes);
        Ok(SentPart { bytes, stream_bytes, next: page.next.map(|next| next.to_string()) })
    }
}

fn api_error(error: SendError) -> ApiError {
    let message = error.to_string();
    match error {
        SendError::Dataset(error) => properties::api_error(error),
        SendError::BadCursor(_) | SendError::NotOlder { .. } | SendError::AnotherDataset { .. } => {
            ApiError::invalid(message)
        }
        SendError::Others(_) | SendError::Look(_) => ApiError::conflict(message),
        SendError::Damaged { .. } | SendError::AnotherFile { .. } | SendError::Pool(_) => {
            ApiError::failed(message)
        }
    }
}
