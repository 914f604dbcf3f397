//! The dataset goes to another place, below one that is younger, and comes back.

use std::sync::Mutex;

use aquifer_files::Service;

use super::{DATASET, Model, tell};

/// The dataset that it comes under.
pub const LATER: &str = "tank/later";
const MOVED: &str = "tank/later/moved";

/// Where the dataset is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Here,
    There,
    /// A rename was not answered.
    Between,
}

/// There and back.
pub(super) async fn there_and_back(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    for (from, to, place) in [(DATASET, MOVED, Place::There), (MOVED, DATASET, Place::Here)] {
        tell(&format!("rename {from} to {to}"));
        model.lock().unwrap().place = Place::Between;
        let done = service.datasets.rename(from, to).await;
        model.lock().unwrap().place = place;
        match done {
            Ok(()) => {}
            Err(error) if place == Place::There && super::reserved::is_full(&error) => {
                model.lock().unwrap().place = Place::Here;
                return Ok(());
            }
            Err(error) => return Err(format!("rename {from}: {error}")),
        }
    }
    Ok(())
}

/// After a start: it is where it may be, and comes back if it was away.
pub(super) async fn come_back(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let is_there = |name| service.datasets.by_name(name).is_some();
    let (here, there) = (is_there(DATASET), is_there(MOVED));
    let place = {
        let mut model = model.lock().unwrap();
        let was = std::mem::take(&mut model.place);
        if model.rewound || model.doomed { Place::Between } else { was }
    };
    match (place, here, there) {
        (_, true, true) => Err("the dataset is in two places".into()),
        (Place::Here, _, true) => Err("the dataset went back to where it was before".into()),
        (Place::There, true, _) => Err("the dataset did not stay where it went".into()),
        (_, _, true) => {
            model.lock().unwrap().place = Place::Between;
            let done = service.datasets.rename(MOVED, DATASET).await;
            model.lock().unwrap().place = Place::Here;
            done.map_err(|error| format!("rename back: {error}"))
        }
        _ => Ok(()),
    }
}
