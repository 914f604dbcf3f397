//! Bookmarks of the snapshots: what changed since one is found when the snapshot is long gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_files::Service;
use aquifer_ondisk::Txg;
use aquifer_sim::Rng;

use super::acts::{destroy as destroy_snapshots, full_name};
use super::{Model, PAGE, Run, Tree, compare, tell};

/// Bookmarks of a dataset at a time: more would hide which one keeps a node.
const BOOKMARKS: usize = 4;

/// Facts known of a bookmark.
#[derive(Debug, Clone)]
struct Mark {
    /// The state of its snapshot, and its txg.
    state: Arc<Tree>,
    txg: Txg,
    made: bool,
    doomed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<String, Mark>);

/// Makes one, destroys one, or compares one with a snapshot.
pub(super) async fn act(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let names = model.lock().unwrap().there();
    let marks: Vec<String> = model.lock().unwrap().marks.0.keys().cloned().collect();
    match (rng.below(6), rng.pick(&names), rng.pick(&marks)) {
        (0, Some(of), _) if marks.len() < BOOKMARKS => make(service, model, of).await,
        // The snapshots go, and what changed since is found all the same.
        (1 | 2, Some(of), _) if marks.len() < BOOKMARKS => {
            make(service, model, of).await?;
            for name in &names {
                // One by one: some may be held.
                let one = std::slice::from_ref(name);
                destroy_snapshots(service, world, model, (one, false)).await?;
            }
            Ok(())
        }
        (0..=3, _, Some(mark)) => destroy(service, model, mark).await,
        (_, Some(of), Some(mark)) => {
            run.lock().unwrap().marks += 1;
            differences(service, model, mark, of).await
        }
        _ => Ok(()),
    }
}

async fn make(service: &Service, model: &Mutex<Model>, of: &str) -> Result<(), String> {
    // From here on it has one state.
    compare(service, model, of).await?;
    let full = full_name(model, of);
    let found = service.datasets.snapshot_by_name(&full);
    let txg = found.map_err(|error| format!("{full}: {error}"))?.1.txg;
    let mark = {
        let mut model = model.lock().unwrap();
        let mark = format!("m{}", model.next());
        let state = model.snapshots[of].states[0].clone();
        model.marks.0.insert(mark.clone(), Mark { state, txg, made: false, doomed: false });
        mark
    };
    tell(&format!("bookmark {full} as {mark}"));
    let done = service.datasets.bookmark(&full, &format!("#{mark}")).await;
    tell(&format!("  {done:?}"));
    let mut model = model.lock().unwrap();
    match done {
        Ok(_) => model.marks.0.get_mut(&mark).unwrap().made = true,
        Err(error) => {
            model.marks.0.remove(&mark);
            let text = error.to_string();
            if !text.contains("already") && !text.contains("out of space") {
                return Err(format!("bookmark {full}: {text}"));
            }
        }
    }
    Ok(())
}

async fn destroy(service: &Service, model: &Mutex<Model>, mark: &str) -> Result<(), String> {
    let full = {
        let mut model = model.lock().unwrap();
        model.marks.0.get_mut(mark).unwrap().doomed = true;
        format!("{}#{mark}", model.dataset)
    };
    tell(&format!("destroy {full}"));
    let done = service.datasets.destroy_bookmarks(std::slice::from_ref(&full)).await;
    tell(&format!("  {done:?}"));
    done.map_err(|error| format!("destroy {full}: {error}"))?;
    model.lock().unwrap().marks.0.remove(mark);
    Ok(())
}

/// All that differs between a bookmark and a snapshot is found.
async fn differences(
    service: &Service,
    model: &Mutex<Model>,
    mark: &str,
    of: &str,
) -> Result<(), String> {
    compare(service, model, of).await?;
    let (old, new, dataset) = {
        let model = model.lock().unwrap();
        let Some(known) = model.snapshots.get(of) else { return Ok(()) };
        (model.marks.0[mark].state.clone(), known.states[0].clone(), model.dataset.clone())
    };
    tell(&format!("compare {mark} with {of}"));
    for (name, was) in old.iter() {
        let Some(is) = new.get(name) else { continue };
        let both = (format!("{dataset}#{mark}:{name}"), format!("{dataset}@{of}:{name}"));
        let found = service.files.changed_ranges((&both.0, &both.1), None, 1000).await;
        let found = found.map_err(|error| format!("{both:?}: {error}"))?;
        let sizes = [was.len(), is.len()].map(|pages| (pages * PAGE) as u64);
        if [found.old_bytes, found.new_bytes] != sizes {
            return Err(format!("{both:?}: {found:?}, and the sizes are {sizes:?}"));
        }
        let now = |page: usize| was.get(page).copied().unwrap_or(0) != is[page];
        for page in (0..is.len()).filter(|page| now(*page)) {
            let at = (page * PAGE) as u64;
            let covers = |range: &aquifer_files::diff::ranges::ChangedRange| {
                range.offset <= at && at < range.offset + range.length
            };
            if !found.ranges.iter().any(covers) {
                return Err(format!("{both:?}: page {page} changed, and is in none of {found:?}"));
            }
        }
    }
    Ok(())
}

/// A rollback to a snapshot of this txg begins, or was refused: it takes later ones away.
pub(super) fn are_later(model: &mut Model, to: Txg, doomed: bool) {
    let later = model.marks.0.values_mut().filter(|mark| mark.txg > to);
    later.for_each(|mark| mark.doomed = doomed);
}

/// It has.
pub(super) fn went_back(model: &mut Model, to: Txg) {
    model.marks.0.retain(|_, mark| mark.txg <= to);
}

/// After a start: those are there that were made and not destroyed, and can be compared.
pub(super) async fn check(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let name = model.lock().unwrap().dataset.clone();
    let dataset = service.datasets.by_name(&name).ok_or("the dataset is gone")?;
    let there = dataset.bookmarks(service.pool.committed_txg());
    let there: Vec<String> = there.iter().map(|of| of.record.name.clone()).collect();
    {
        let marks = &mut model.lock().unwrap().marks.0;
        if let Some(unknown) = there.iter().find(|name| !marks.contains_key(*name)) {
            return Err(format!("bookmark {unknown} was destroyed, and is there"));
        }
        for (name, mark) in std::mem::take(marks) {
            match there.contains(&name) {
                true => drop(marks.insert(name, Mark { made: true, doomed: false, ..mark })),
                false if !mark.made || mark.doomed => {}
                false => return Err(format!("bookmark {name} is lost; there are {there:?}")),
            }
        }
    }
    let newest = model.lock().unwrap().there().pop();
    for mark in there {
        if let Some(newest) = &newest {
            differences(service, model, &mark, newest).await?;
        }
    }
    Ok(())
}

/// After a rewind: those that are there go.
pub(super) async fn destroy_all(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let name = model.lock().unwrap().dataset.clone();
    model.lock().unwrap().marks.0.clear();
    let dataset = service.datasets.by_name(&name).ok_or("the dataset is gone")?;
    let there = dataset.bookmarks(service.pool.committed_txg());
    let there: Vec<String> = there.iter().map(|of| format!("{name}#{}", of.record.name)).collect();
    let done = service.datasets.destroy_bookmarks(&there).await;
    done.map_err(|error| format!("destroy {there:?}: {error}"))
}
