//! List of the streams that are being received, and of those that wait for their rest.

use aquifer_api::{ApiError, ReceiveInfo, ReceivesQuery, guid_text};
use aquifer_dataset::Partial;
use aquifer_files::Token;
use aquifer_ondisk::resume::ResumeRecord;

use super::super::shares::is_in;
use super::super::{Control, Named, Scope};
use super::bringer::Bringer;
use super::streams::Session;

impl Control {
    /// Parts of streams that may go on; if that is asked for, also all that come just now.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn receives(
        &self,
        query: &ReceivesQuery,
        scope: &Scope,
    ) -> Result<Vec<ReceiveInfo>, ApiError> {
        // A dataset that is received first is not there yet.
        let named = query.name.iter().filter(|name| !(query.recursive && scope.lies_below(name)));
        let named: Vec<Named> = named.cloned().map(Named::Dataset).collect();
        self.check_named(scope, &named)?;
        let serving = match &query.name {
            Some(name) => vec![self.pool_of(name)?],
            None => self.all_serving(),
        };
        let is_wanted = |name: &str| {
            let is_it = |of: &String| name == of || query.recursive && is_in(name, of);
            query.name.as_ref().is_none_or(is_it) && scope.covers(name)
        };
        let coming = self.receiving.streams.those(|of| is_wanted(&of.into));
        let partials = serving.iter().flat_map(|of| of.service().datasets.partials());
        let mut found: Vec<ReceiveInfo> =
            partials.filter(|of| is_wanted(&of.name)).map(info).collect();
        for info in &mut found {
            let session = coming.iter().find(|(_, of)| of.name() == Some(&info.dataset));
            let owner = self.receiving.streams.owner(&info.dataset);
            info.owner = owner.map(|of| of.principal().into());
            if let Some((id, session)) = session.filter(|_| info.receiving) {
                of_session(info, *id, session);
            }
        }
        if query.coming {
            let is_new = |id: &u64| found.iter().all(|info| info.id != Some(*id));
            let others = coming.iter().filter(|(id, _)| is_new(id));
            let others: Vec<ReceiveInfo> = others.map(|(id, of)| bare(*id, of)).collect();
            found.extend(others);
        }
        Ok(found)
    }

    /// The part that waits for its rest in a dataset.
    pub(super) fn partial(&self, name: &str) -> Option<Partial> {
        let serving = self.pool_of(name).ok()?;
        serving.service().datasets.partials().into_iter().find(|of| of.name == name)
    }

    /// Fails if what waits in a dataset is that of another one.
    pub(super) fn check_partial(&self, name: &str, bringer: &Bringer) -> Result<(), ApiError> {
        let owner = self.receiving.streams.owner(name);
        let other = owner.filter(|owner| !bringer.is_admin() && owner != bringer);
        match other.filter(|_| self.partial(name).is_some()) {
            Some(other) => Err(ApiError::forbidden(format!(
                "what came of a stream into {name:?} is that of {}: it goes on with it, or an \
                 administrator gives it up (`aquifer receive -A {name}`)",
                other.principal()
            ))),
            None => Ok(()),
        }
    }
}

/// A stream that comes just now, as this session.
fn of_session(info: &mut ReceiveInfo, id: u64, session: &Session) {
    info.id = Some(id);
    info.owner = Some(session.bringer.principal().into());
    info.begun_ns = Some(session.begun_ns);
}

/// A stream of which nothing is on disk that could go on.
fn bare(id: u64, session: &Session) -> ReceiveInfo {
    let mut info = ReceiveInfo {
        dataset: session.into.clone(),
        receiving: true,
        heard_ns: session.begun_ns,
        ..ReceiveInfo::default()
    };
    of_session(&mut info, id, session);
    info
}

fn info(partial: Partial) -> ReceiveInfo {
    let Partial { name, record, is_parked, used_bytes } = partial;
    let ResumeRecord { to, from, place, pages, heard, sent, .. } = record;
    let token = Token { to, from, place, snapshot: sent.clone() };
    ReceiveInfo {
        dataset: name,
        sent,
        to_guid: guid_text(to.0),
        from_guid: from.map(|from| guid_text(from.0)),
        receiving: !is_parked,
        received_bytes: pages.saturating_mul(4096),
        used_bytes,
        heard_ns: heard.since_1970_ns(),
        receive_resume_token: token.to_string(),
        ..ReceiveInfo::default()
    }
}
