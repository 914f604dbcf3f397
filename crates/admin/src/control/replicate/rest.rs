//! What a copy has of a stream that broke off: the next run goes on with it.
//!
//! Its snapshot is sent to the end first, and what changed since then behind it. So a first copy
//! that takes longer than the line holds comes to its end. What nobody can send any more, since the
//! snapshot is gone here, is given up if a run of this replication took that snapshot.

use aquifer_api::{ApiError, ReceiveInfo};

use super::plan::Known;
use super::side::Side;
use super::target::Target;

/// The rest of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    pub token: String,
    /// The snapshot that the copy has then, as it is known here.
    pub to: Known,
}

/// What a run begins with at a copy.
#[derive(Debug, Default)]
pub(super) struct Begun {
    pub rest: Option<Rest>,
    /// The side keeps what comes; earlier releases do not.
    pub is_kept: bool,
}

impl Begun {
    /// Looks at what the copy has of a stream.
    ///
    /// # Errors
    /// It has part of a stream that is not known here, which nobody but its owner gives up.
    pub async fn look(
        side: &Side,
        target: &Target,
        here: &[Known],
        force: bool,
    ) -> Result<Begun, ApiError> {
        let Some(found) = side.receives(&target.dataset).await? else {
            return Ok(Begun::default());
        };
        let Some(part) = found.into_iter().next() else {
            return Ok(Begun { rest: None, is_kept: true });
        };
        match rest_of(&part, here) {
            Some(rest) => Ok(Begun { rest: Some(rest), is_kept: true }),
            None if force || is_own(&part, target) => {
                side.give_up_receive(target.dataset.clone()).await?;
                Ok(Begun { rest: None, is_kept: true })
            }
            None => Err(ApiError::conflict(format!(
                "{:?} has part of a stream of {:?} there that broke off, and that snapshot is not \
                 here: go on with it from where it comes, or give it up there with `aquifer \
                 receive -A {}`, or here with `aquifer replicate -F`",
                part.dataset, part.sent, part.dataset
            ))),
        }
    }
}

fn rest_of(part: &ReceiveInfo, here: &[Known]) -> Option<Rest> {
    let place = |guid: &str| here.iter().position(|own| own.guid == guid);
    let to = place(&part.to_guid).filter(|to| here.get(*to).is_some_and(|of| !of.is_bookmark))?;
    let is_older = |from: &String| place(from).is_some_and(|from| from < to);
    if !part.from_guid.as_ref().is_none_or(is_older) {
        return None;
    }
    let to = here.get(to)?.clone();
    Some(Rest { token: part.receive_resume_token.clone(), to })
}

/// Whether an earlier run took the snapshot.
fn is_own(part: &ReceiveInfo, target: &Target) -> bool {
    part.sent.rsplit_once('@').is_some_and(|(_, name)| target.is_own(name))
}
