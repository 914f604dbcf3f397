//! Messages about streams that come: how they ended, and why.

use aquifer_api::{ApiError, ReceiveSummary};
use aquifer_files::{BundleProgress, ReceiveError, Received, TreeReceiver};

use super::super::errors;

/// A stream ends early, by an error or since its client leaves. Returns what to say: what came is
/// given up, or waits for the rest.
pub(super) async fn left(
    receiver: &mut Option<TreeReceiver>,
    error: Option<ReceiveError>,
) -> ApiError {
    let progress = receiver.as_ref().and_then(TreeReceiver::progress);
    let said = |error: Option<ReceiveError>| {
        let error = error.map_or_else(|| ApiError::conflict("it was given up"), api_error);
        match &progress {
            Some(progress) => in_bundle(progress, error),
            None => error,
        }
    };
    let Some(mut receiver) = receiver.take() else { return said(error) };
    match receiver.leave(error.as_ref()).await {
        Ok(false) => said(error),
        Ok(true) => {
            let ApiError { kind, message, .. } = said(error);
            let name = receiver.name();
            ApiError::new(
                kind,
                format!(
                    "{message}. What came waits for the rest: `aquifer get receive_resume_token \
                     {name}` says the token for `aquifer send -t`, and `aquifer receive -A {name}` \
                     gives it up"
                ),
            )
        }
        Err(failed) => {
            tracing::warn!(
                class = "receive.left",
                error = %failed,
                "what came of a stream cannot be settled now: the next import of the pool does"
            );
            said(error)
        }
    }
}

/// An error in a bundle says of which dataset, and what stays.
fn in_bundle(progress: &BundleProgress, error: ApiError) -> ApiError {
    let BundleProgress { name, came, of, has_rows } = progress;
    let what = if *has_rows { "streams" } else { "datasets" };
    let ApiError { kind, message, .. } = error;
    let stays = match came {
        0 => String::new(),
        came => format!(
            ". {came} of {of} {what} came before it, and stay: send all again, and what is there \
             is passed over"
        ),
    };
    ApiError::new(kind, format!("{name}: {message}{stays}"))
}

pub(super) fn summary(received: Received) -> ReceiveSummary {
    let Received { snapshot, sent, since, counts, was_there, later } = received;
    let notes = match later {
        Some(later) => vec![format!("{snapshot} is passed over, since {later} is there already")],
        None if was_there => vec![format!("{snapshot} was there already, and stays as it is")],
        None => Vec::new(),
    };
    if !was_there {
        tracing::info!(class = "dataset.received", %snapshot, %sent, "snapshot received");
    }
    ReceiveSummary {
        snapshot,
        sent,
        since,
        objects: counts.objects,
        removed: counts.removed,
        bytes: counts.pages.saturating_mul(4096),
        notes,
        below: Vec::new(),
    }
}

pub(super) fn unfinished(error: impl std::fmt::Display) -> ApiError {
    ApiError::failed(error.to_string())
}

pub(super) fn unknown() -> ApiError {
    ApiError::not_found(
        "the stream is not being received any more: it failed, or its client was silent for too \
         long; send it again",
    )
}

fn api_error(error: ReceiveError) -> ApiError {
    let message = error.to_string();
    match error {
        ReceiveError::Dataset(error) => errors::api_error(error),
        ReceiveError::Stream(_)
        | ReceiveError::Contradicts(_)
        | ReceiveError::NewHandles(_)
        | ReceiveError::DryRow
        | ReceiveError::DryRest
        | ReceiveError::Cut(_) => ApiError::invalid(message),
        ReceiveError::Quota(_) | ReceiveError::NoSpace(_) | ReceiveError::Left => {
            ApiError::conflict(message)
        }
        ReceiveError::Pool(_) => ApiError::failed(message),
    }
}
