//! Content that would reach further: the one judgement of all acts that put it somewhere else.
//!
//! A clone, a clone of a file, a dataset that is renamed or comes into service is exported as its
//! new place says. Where that lets in more than the place from which the content comes, only an
//! administrator may do it: others must not let hosts in by the way.

use aquifer_api::ApiError;
use aquifer_dataset::Property;
use aquifer_nfs::Export;

use super::Control;
use super::serving::Serving;
use crate::sharenfs;

/// A place of content: a dataset, that is there or is to be made, with values of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At<'a> {
    /// Full name.
    pub dataset: &'a str,
    /// Its own `sharenfs`, if that is to be set; else it has the one that it has or inherits.
    pub sharenfs: Option<&'a String>,
    /// Its own `snapcontrol`, in the same way.
    pub snapcontrol: Option<&'a String>,
    /// As if it did not stand by.
    pub in_service: bool,
}

impl<'a> At<'a> {
    /// A dataset as it is.
    pub fn there(dataset: &'a str) -> At<'a> {
        At { dataset, ..At::default() }
    }
}

/// Whether an act may let hosts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MayLetIn(pub bool);

impl Control {
    /// Fails if content of a dataset is exported more widely at another place, and the caller may
    /// not let hosts in.
    pub(super) fn check_no_wider(
        &self,
        serving: &Serving,
        (from, to): (&str, At<'_>),
        may: MayLetIn,
    ) -> Result<(), ApiError> {
        let now = export_at(serving, At::there(from));
        let then = export_at(serving, to);
        let why = sharenfs::wider(now.as_ref(), then.as_ref());
        match (why, then) {
            (Some(why), Some(then)) if !may.0 => Err(ApiError::forbidden(format!(
                "what {from:?} has would be exported more widely at {:?} ({}): {why}. That needs \
                 the role admin; or set sharenfs=off for it",
                to.dataset,
                sharenfs::words(&then)
            ))),
            _ => Ok(()),
        }
    }

    /// Notes for an administrator on content that moves.
    pub(super) fn widening_note(
        &self,
        now: Option<&Export>,
        serving: &Serving,
        to: &str,
    ) -> Vec<String> {
        let then = export_at(serving, At::there(to));
        let why = sharenfs::wider(now, then.as_ref());
        let note = |why: &str| format!("{to} is exported more widely than before: {why}");
        why.map(note).into_iter().collect()
    }
}

/// The export of a place; `None`: there is none.
pub(super) fn export_at(serving: &Serving, at: At<'_>) -> Option<Export> {
    let datasets = &serving.service().datasets;
    let own = datasets.by_name(at.dataset);
    if !at.in_service && own.as_ref().is_some_and(|of| of.is_standby()) {
        return None;
    }
    let above = || at.dataset.rsplit_once('/').and_then(|(above, _)| datasets.by_name(above));
    let of = own.or_else(above)?;
    let value = |set: Option<&String>, property: Property| {
        set.cloned().unwrap_or_else(|| datasets.value(&of, property).0)
    };
    let mut export =
        sharenfs::parse(at.dataset, &value(at.sharenfs, Property::Sharenfs)).ok()??;
    let control = sharenfs::snapcontrol(&value(at.snapcontrol, Property::Snapcontrol));
    export.access.control = control.unwrap_or_default();
    Some(export)
}
