//! Sending snapshots.

mod tree;

use aquifer_api::{ApiError, SendQuery, SentPart};
use aquifer_dataset::FullName;
use aquifer_files::{SendCursor, SendError, SendWanted, Token};
use aquifer_ondisk::resume::StreamPlace;

use super::{Control, Named, Scope, diff, errors, snapshots};

impl Control {
    /// Some bytes of the stream of a snapshot, or of a bundle of them, and where the next ones
    /// begin.
    ///
    /// # Errors
    /// Names that do not exist, a cursor of another stream, a snapshot that was destroyed
    /// meanwhile, damage.
    pub async fn send_part(&self, query: SendQuery, scope: &Scope) -> Result<SentPart, ApiError> {
        // With a token, its snapshots count, which are judged when they are found.
        let snapshot = query.token.is_none().then(|| query.snapshot.clone());
        let from = query.from.iter().filter(|from| !FullName::is_short(from)).cloned();
        let named: Vec<Named> = snapshot.into_iter().chain(from).map(Named::Within).collect();
        self.check_named(scope, &named)?;
        match query.recursive {
            true => self.send_tree_part(query).await,
            false => self.send_one_part(query, scope).await,
        }
    }

    async fn send_one_part(
        &self,
        mut query: SendQuery,
        scope: &Scope,
    ) -> Result<SentPart, ApiError> {
        if query.between {
            return Err(ApiError::invalid(
                "a stream of one dataset is from one snapshot to one: ask for each after the other",
            ));
        }
        let start = match query.token.take() {
            None => None,
            Some(token) => {
                let (snapshot, from, start) = self.rest_of(&token, scope).await?;
                (query.snapshot, query.from) = (snapshot, from);
                start
            }
        };
        self.send_part_from(query, start).await
    }

    /// Some bytes of the stream of the snapshots that a query names, which begins there. No token
    /// says which ones they are.
    pub(super) async fn send_part_from(
        &self,
        query: SendQuery,
        start: Option<StreamPlace>,
    ) -> Result<SentPart, ApiError> {
        let SendQuery { snapshot, from, size_only, after, .. } = query;
        let cursor: Option<SendCursor> =
            after.map(|after| after.parse()).transpose().map_err(api_error)?;
        let serving = self.pool_of_one(&snapshot)?;
        let files = serving.service().files.clone();
        let page = async move {
            let (snapshot, from) = (snapshot.as_str(), from.as_deref());
            files.send_page(SendWanted { snapshot, from, size_only, start }, cursor).await
        };
        let page = serving.run(page).await.map_err(|error| ApiError::failed(error.to_string()))?;
        let page = page.map_err(api_error)?;
        let (bytes, stream_bytes) = (page.bytes, page.stream_bytes);
        Ok(SentPart { bytes, stream_bytes, next: page.next.map(|next| next.to_string()) })
    }

    /// The stream of which a token says that it broke off: both snapshots, and where it goes on.
    async fn rest_of(&self, token: &str, scope: &Scope) -> Result<Rest, ApiError> {
        let token = token.parse::<Token>();
        let Token { to, from, place, snapshot } =
            token.map_err(|error| ApiError::invalid(error.to_string()))?;
        let mut all = Vec::new();
        for serving in self.all_serving() {
            let service = serving.service();
            let (files, datasets) = (service.files.clone(), service.datasets.clone());
            let name = snapshot.clone();
            let look = async move {
                match datasets.named_by_guids(to, from, &name) {
                    None => files.files_by_guids((to, from), &name).await,
                    found => found,
                }
            };
            // The stream of a pool that does not answer cannot go on now, and holds up no other.
            let Ok(found) = serving.while_it_answers(serving.run(look)).await else { continue };
            all.extend(found.map_err(|error| ApiError::failed(error.to_string()))?);
        }
        let is_seen = |full: &String| {
            let named = [Named::Within(full.clone())];
            self.check_named(scope, &named).is_ok()
        };
        all.retain(|(to, from)| is_seen(to) && from.as_ref().is_none_or(is_seen));
        // Of copies on one server, any has the same.
        let found = all.into_iter().min_by_key(|(to, _)| *to != snapshot);
        let gone = || {
            let what = if from.is_some() { ", or the one before it" } else { "" };
            ApiError::not_found(format!(
                "the snapshot of which a stream broke off ({snapshot}){what} is not here any more: \
                 give up what came, with `aquifer receive -A DATASET` there, and send another one"
            ))
        };
        let (snapshot, from) = found.ok_or_else(gone)?;
        Ok((snapshot, from, Some(place)))
    }
}

/// A snapshot, the one since which is sent what changed, and the place to go on from.
type Rest = (String, Option<String>, Option<StreamPlace>);

fn api_error(error: SendError) -> ApiError {
    let message = error.to_string();
    match error {
        SendError::Dataset(error) => errors::api_error(error),
        SendError::Name(error) => snapshots::files::api_error(error),
        SendError::Diff(error) => diff::api_error(error),
        SendError::BadCursor(_)
        | SendError::NotOlder { .. }
        | SendError::AnotherDataset { .. }
        | SendError::NotOfFile { .. }
        | SendError::SeveralNames(_)
        | SendError::NoBookmarks(_) => ApiError::invalid(message),
        SendError::Others(_) | SendError::Look(_) => ApiError::conflict(message),
        SendError::Damaged { .. } | SendError::AnotherFile { .. } | SendError::Pool(_) => {
            ApiError::failed(message)
        }
    }
}
