//! Part that a copy has of a stream that broke off: the next run goes on with it.
//!
//! Its snapshot is sent to the end first, and what changed since then behind it. So a first copy
//! that takes longer than the line holds comes to its end. What nobody can send any more, since the
//! snapshot is gone here, is given up if a run of this replication took that snapshot.

use aquifer_api::{ApiError, ReceiveInfo, guid_of, guid_text};
use aquifer_dataset::FullName;
use aquifer_files::Token;
use aquifer_ondisk::Guid;
use aquifer_ondisk::resume::StreamPlace;

use super::plan::Known;
use super::side::Side;
use super::source::Source;
use super::target::Target;

/// The rest of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    /// Where it goes on: all that is taken from the token of the other side.
    pub place: StreamPlace,
    /// The one since which it has what changed, as it is known here.
    pub from: Option<Known>,
    /// The snapshot that the copy has then, as it is known here.
    pub to: Known,
}

/// Where the rest of a stream begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    pub place: StreamPlace,
    /// Names the same to a peer that has the dataset.
    pub token: String,
}

impl Rest {
    /// Where it begins, of the stream of this dataset.
    pub fn start(&self, dataset: &str) -> Start {
        let (place, guid) = (self.place, |of: &Known| guid_of(&of.guid).map(Guid));
        let token = guid(&self.to).map(|to| {
            let snapshot = format!("{dataset}@{}", self.to.name);
            Token { to, from: self.from.as_ref().and_then(guid), place, snapshot }.to_string()
        });
        Start { place, token: token.unwrap_or_default() }
    }
}

/// State of a copy with which a run begins.
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
        (source, side): (&Source, &Side),
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
        match rest_of(&part, here)? {
            Some(rest) => Ok(Begun { rest: Some(rest), is_kept: true }),
            None if force || is_own(source, &part, target) => {
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

/// The part to be sent of this dataset, whose snapshots these are; `None`: the stream is of another
/// one, or of what is gone.
///
/// # Errors
/// The token that the other side gives is of other snapshots than those that it names: it wants
/// what it was not to get.
fn rest_of(part: &ReceiveInfo, here: &[Known]) -> Result<Option<Rest>, ApiError> {
    let Some((from, to)) = both_of(part, here) else { return Ok(None) };
    let guid = |known: &Known| known.guid.clone();
    let contradicts = || {
        ApiError::failed(format!(
            "{:?} has part of a stream there, and the resume token that comes with it is of other \
             snapshots than it says: nothing is sent. Look at that server, or give the stream up \
             there (`aquifer receive -A {}`)",
            part.dataset, part.dataset
        ))
    };
    let token: Token = part.receive_resume_token.parse().map_err(|_| contradicts())?;
    let said = (guid_text(token.to.0), token.from.map(|from| guid_text(from.0)));
    match said == (guid(&to), from.as_ref().map(guid)) {
        true => Ok(Some(Rest { place: token.place, from, to })),
        false => Err(contradicts()),
    }
}

/// The snapshots of a stream, as they are known here.
fn both_of(part: &ReceiveInfo, here: &[Known]) -> Option<(Option<Known>, Known)> {
    let place = |guid: &str| here.iter().position(|own| own.guid == guid);
    let to = place(&part.to_guid).filter(|to| here.get(*to).is_some_and(|of| !of.is_bookmark))?;
    let from = match &part.from_guid {
        None => None,
        Some(from) => Some(here.get(place(from).filter(|from| *from < to)?)?.clone()),
    };
    Some((from, here.get(to)?.clone()))
}

/// Whether an earlier run took the snapshot.
fn is_own(source: &Source, part: &ReceiveInfo, target: &Target) -> bool {
    FullName::of(&part.sent).snapshot().is_some_and(|name| source.is_own(target, name))
}

#[cfg(test)]
mod tests {
    use aquifer_ondisk::ObjectId;

    use super::*;

    fn known(name: &str, guid: u64, is_bookmark: bool) -> Known {
        Known { name: name.into(), is_bookmark, guid: guid_text(guid), is_passing: false }
    }

    fn part(to: u64, from: Option<u64>, token: String) -> ReceiveInfo {
        ReceiveInfo {
            dataset: "backup/vms".into(),
            to_guid: guid_text(to),
            from_guid: from.map(guid_text),
            receive_resume_token: token,
            ..ReceiveInfo::default()
        }
    }

    fn token(to: u64, from: Option<u64>) -> String {
        let place = StreamPlace { object: ObjectId(7), within: Some(3) };
        let snapshot = "tank/secret@s".into();
        Token { to: Guid(to), from: from.map(Guid), place, snapshot }.to_string()
    }

    #[test]
    fn of_a_token_nothing_counts_but_the_place() {
        let here = [known("a", 1, false), known("m", 2, true), known("b", 3, false)];
        let place = StreamPlace { object: ObjectId(7), within: Some(3) };
        for (from, of) in [(None, None), (Some(1), Some(0)), (Some(2), Some(1))] {
            let rest = rest_of(&part(3, from, token(3, from)), &here).unwrap().unwrap();
            let from = of.map(|at: usize| here[at].clone());
            assert_eq!(rest, Rest { place, from, to: here[2].clone() });
        }
        // They say one snapshot, and ask for another: of another dataset, or more of this one.
        for (to, from, other) in [
            (3, None, token(9, None)),
            (3, Some(1), token(3, None)),
            (3, None, token(3, Some(1))),
            (3, Some(1), token(9, Some(1))),
            (3, Some(1), token(3, Some(2))),
            (3, None, token(1, None)),
            (3, None, String::new()),
        ] {
            let error = rest_of(&part(to, from, other), &here).unwrap_err();
            assert!(error.message.contains("of other snapshots"), "{error}");
        }
        // Not of this dataset, not older, or a bookmark, which cannot be sent.
        for (to, from) in [(9, None), (3, Some(9)), (1, Some(3)), (2, None)] {
            assert_eq!(rest_of(&part(to, from, token(to, from)), &here), Ok(None));
        }
    }
}
