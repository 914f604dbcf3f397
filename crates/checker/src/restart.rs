//! Whether the state after a restart can be true: all that was acknowledged, and nothing in part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aquifer_files::{Attributes, FileKind, FsError};

use crate::content::{CELL_BYTES, Content, cell_of};
use crate::history::{History, Order, Wrong, file_of, leaves, orders, touches};
use crate::op::{Door, Node, Op, Place, ROOT, Reply, Tag};
use crate::tree::{Object, Tree};
use crate::witness::{Call, End, Shared, Stamp, Witness};

/// An object as found.
struct Found {
    seen: Attributes,
    object: Object,
}

/// Removed objects that are asked for after a restart.
const STALE_ASKED_MAX: usize = 4;
/// Steps in the check of a file: more than it has cells.
const FILE_STEPS: usize = 1 << 16;
/// Other moments of changes that are tried.
const MOVES_MAX: usize = 2000;
/// Cells read at a time.
const READ_CELLS: u64 = 64;

/// Reads the whole tree, compares it with the earlier answers, and takes it as the present state.
///
/// # Errors
/// Something was lost, or is there that cannot be.
pub async fn check(door: &impl Door, shared: &Shared, end: End) -> Result<(), String> {
    let found = read_all(door, shared).await?;
    let dead = {
        let mut witness = shared.lock().unwrap();
        found.values().for_each(|found| witness.see(&found.seen));
        witness.verdict()?;
        makes_sense(&witness, &found, end)?;
        links_are_right(&found)?;
        let gone = |tag: &Tag| !found.contains_key(tag);
        let dead = witness.nodes.iter().rev().filter(|(tag, _)| gone(tag));
        let dead: Vec<Node> = dead.map(|(_, (node, _))| *node).take(STALE_ASKED_MAX).collect();
        dead
    };
    for node in dead {
        let asked = door.call(&Op::Getattr(node), None).await;
        if asked != Err(FsError::Stale) {
            return Err(format!("{} has no name, and answers {asked:?}", node.tag));
        }
    }
    if end != End::Rewind {
        listing_goes_on(door, shared, &found).await?;
    }
    let mut witness = shared.lock().unwrap();
    let objects = found.into_iter().map(|(tag, found)| (tag, found.object));
    witness.settle(Tree { objects: objects.collect() });
    Ok(())
}

/// Looks for an order of the changes that explains everything. For changes whose time nobody knows,
/// it takes the moments that get furthest.
fn makes_sense(witness: &Witness, found: &BTreeMap<Tag, Found>, end: End) -> Result<(), String> {
    let (mut order, others) = orders(witness);
    let Err(likeliest) = judge(witness, &order, found, end) else { return Ok(()) };
    let mut reached = likeliest.reached;
    loop {
        let mut further = None;
        for moved in one_or_two(&others) {
            let tried: Order<'_> = moved.into_iter().chain(order.iter().copied()).collect();
            match judge(witness, &tried, found, end) {
                Ok(()) => return Ok(()),
                Err(wrong) if wrong.reached > reached => {
                    reached = wrong.reached;
                    further = Some(tried);
                    break;
                }
                Err(_) => {}
            }
        }
        order = further.ok_or_else(|| likeliest.why.clone())?;
    }
}

/// Each by itself, then each two of different changes, up to [`MOVES_MAX`].
fn one_or_two<'a>(others: &Order<'a>) -> Vec<Order<'a>> {
    let alone = others.iter().map(|one| vec![*one]);
    let pairs = others.iter().enumerate().flat_map(|(at, first)| {
        let other = |second: &&(&Call, Stamp)| !std::ptr::eq(first.0, second.0);
        others[at + 1..].iter().filter(other).map(move |second| vec![*first, *second])
    });
    alone.chain(pairs).take(MOVES_MAX).collect()
}

fn judge(
    witness: &Witness,
    order: &Order<'_>,
    found: &BTreeMap<Tag, Found>,
    end: End,
) -> Result<(), Wrong> {
    let history = History::new(witness, order)?;
    if end == End::Rewind {
        return Ok(());
    }
    let reached = 2 * witness.calls.len();
    names_can_be(&history, found).map_err(|why| Wrong { reached, why })?;
    for (at, (tag, found)) in found.iter().enumerate() {
        let base = witness.settled.objects.get(tag);
        let is = file_can_be(&history, (*tag, base), &found.object, end);
        is.map_err(|wrong| Wrong {
            reached: reached + at * FILE_STEPS + wrong.reached,
            why: format!("file {tag}: {}", wrong.why),
        })?;
    }
    Ok(())
}

async fn read_all(door: &impl Door, shared: &Shared) -> Result<BTreeMap<Tag, Found>, String> {
    let (root, _) = shared.lock().unwrap().nodes[&ROOT];
    let seen = match door.call(&Op::Getattr(root), None).await {
        Ok(Reply::Attributes(seen)) => seen,
        other => return Err(format!("the root: {other:?}")),
    };
    let mut found: BTreeMap<Tag, Found> = BTreeMap::new();
    let mut waiting = VecDeque::from([(root, seen)]);
    while let Some((node, seen)) = waiting.pop_front() {
        if let Some(Found { object, .. }) = found.get_mut(&node.tag) {
            match object {
                Object::File { links, .. } | Object::Symlink { links } => *links += 1,
                Object::Directory { .. } => return Err(format!("two ways to {}", node.tag)),
            }
            continue;
        }
        let object = match seen.kind {
            FileKind::Directory => {
                let entries = match door.call(&Op::List(node, 7), None).await {
                    Ok(Reply::Listed(entries)) => entries,
                    other => return Err(format!("list of {}: {other:?}", node.tag)),
                };
                let mut names = BTreeMap::new();
                for (name, seen) in entries {
                    let seen = seen.ok_or_else(|| format!("{name} leads to nothing"))?;
                    if names.insert(name.clone(), seen.uid).is_some() {
                        return Err(format!("{name} is listed twice"));
                    }
                    waiting.push_back((Node { tag: seen.uid, handle: seen.handle }, seen));
                }
                Object::Directory { names, links: 1 }
            }
            FileKind::Symlink => {
                match door.call(&Op::Readlink(node), None).await {
                    Ok(Reply::Text(text)) if text == node.tag.to_string().as_bytes() => {}
                    other => return Err(format!("readlink of {}: {other:?}", node.tag)),
                }
                Object::Symlink { links: 1 }
            }
            _ => {
                let content = read_content(door, node, seen.size)
                    .await
                    .map_err(|why| format!("file {}: {why}", node.tag))?;
                Object::File { content, mode: seen.mode, links: 1 }
            }
        };
        found.insert(node.tag, Found { seen, object });
    }
    Ok(found)
}

async fn read_content(door: &impl Door, file: Node, size: u64) -> Result<Content, String> {
    let mut content = Content::default();
    content.resize(size);
    if !size.is_multiple_of(CELL_BYTES) {
        return Err(format!("size {size} was never set"));
    }
    for first in (0..size / CELL_BYTES).step_by(READ_CELLS as usize) {
        let read = door.call(&Op::Read { file, first, count: READ_CELLS }, None).await;
        let Ok(Reply::Read(bytes, _)) = read else {
            return Err(format!("cell {first} and on: {read:?}"));
        };
        for (index, bytes) in (first..).zip(bytes.chunks(CELL_BYTES as usize)) {
            content.set(index, cell_of(index, bytes)?);
        }
    }
    Ok(content)
}

/// A listing that began before the restart ends after it: names that were there all the time come
/// once.
async fn listing_goes_on(
    door: &impl Door,
    shared: &Shared,
    found: &BTreeMap<Tag, Found>,
) -> Result<(), String> {
    let Some(half) = shared.lock().unwrap().half.take() else { return Ok(()) };
    let Some(Found { object: Object::Directory { names, .. }, .. }) =
        found.get(&half.directory.tag)
    else {
        return Ok(());
    };
    let (mut listed, mut from) = (half.names.clone(), half.next);
    loop {
        let more = door.list_from(&half.directory, from, READ_CELLS as usize).await;
        let more = more.map_err(|error| format!("a listing does not go on: {error}"))?;
        listed.extend(more.entries.into_iter().map(|(name, _)| name));
        from = more.next;
        if more.eof {
            break;
        }
    }
    let witness = shared.lock().unwrap();
    for name in names.keys().filter(|name| witness.is_untouched(&half, name)) {
        let times = listed.iter().filter(|one| *one == name).count();
        if times != 1 {
            return Err(format!("{name} came {times} times in a listing over a restart"));
        }
    }
    Ok(())
}

fn links_are_right(found: &BTreeMap<Tag, Found>) -> Result<(), String> {
    for (tag, Found { seen, object }) in found {
        let links = match object {
            Object::Directory { names, .. } => {
                let is_directory =
                    |tag: &&Tag| found.get(tag).is_some_and(|f| f.seen.kind == FileKind::Directory);
                2 + names.values().filter(is_directory).count() as u32
            }
            other => other.links(),
        };
        if seen.nlink != links {
            return Err(format!("{tag} has {links} links, and says {}", seen.nlink));
        }
    }
    Ok(())
}

/// Every name has the object that changes left there, or one that a call without an answer puts
/// there.
fn names_can_be(history: &History<'_>, found: &BTreeMap<Tag, Found>) -> Result<(), String> {
    let there = |directory: &Tag, name: &String| match found.get(directory).map(|f| &f.object) {
        Some(Object::Directory { names, .. }) => names.get(name).copied(),
        _ => None,
    };
    let directories: BTreeSet<Tag> = history
        .tree
        .objects
        .keys()
        .chain(found.keys())
        .copied()
        .filter(|tag| is_directory(history, found, *tag))
        .collect();
    for directory in directories {
        let acknowledged = history.tree.names(directory);
        let mut names: BTreeSet<String> =
            acknowledged.into_iter().flatten().map(|(n, _)| n.clone()).collect();
        if let Some(Found { object: Object::Directory { names: more, .. }, .. }) =
            found.get(&directory)
        {
            names.extend(more.keys().cloned());
        }
        for name in names {
            let is = there(&directory, &name);
            let was = acknowledged.and_then(|names| names.get(&name).copied());
            let may_be = || {
                ghosts_make(history, directory, &name, is)
                    || moved_by_ghosts(history, directory, &name)
                    || history.may_be_lost(directory, &name)
            };
            if is != was && !may_be() {
                return Err(format!("{name} in {directory} is {is:?}, and was {was:?}"));
            }
        }
    }
    Ok(())
}

fn is_directory(history: &History<'_>, found: &BTreeMap<Tag, Found>, tag: Tag) -> bool {
    let directory = |object: &Object| matches!(object, Object::Directory { .. });
    history.tree.objects.get(&tag).is_some_and(directory)
        || found.get(&tag).is_some_and(|found| directory(&found.object))
}

fn ghosts_make(history: &History<'_>, directory: Tag, name: &str, is: Option<Tag>) -> bool {
    let at = |place: &Place| place.directory.tag == directory && place.name == name;
    history.ghosts.iter().any(|ghost| match &ghost.op {
        Op::Create(place, tag) | Op::Mkdir(place, tag) | Op::Symlink(place, tag) => {
            at(place) && is == Some(*tag)
        }
        Op::Remove(place) | Op::Rmdir(place) => at(place) && is.is_none(),
        Op::Link(node, place) => at(place) && is == Some(node.tag),
        Op::Rename(from, _) if at(from) => is.is_none(),
        Op::Rename(from, to) if at(to) => {
            // The moved object was there, or another call without an answer put it there.
            let moved = history.tree.find(from);
            is.is_some() && is == moved
                || history
                    .ghosts
                    .iter()
                    .any(|other| other.begun != ghost.begun && touches(&other.op, from))
        }
        _ => false,
    })
}

/// Whether an answered call moved something to this name that a call without an answer may have put
/// in its way before: that one began before the other was answered.
fn moved_by_ghosts(history: &History<'_>, directory: Tag, name: &str) -> bool {
    let at = |place: &Place| place.directory.tag == directory && place.name == name;
    history.changes.iter().any(|change| match &change.op {
        Op::Rename(from, to) if at(to) => history
            .ghosts
            .iter()
            .any(|ghost| ghost.begun < change.ended && touches(&ghost.op, from)),
        _ => false,
    })
}

/// Every cell has the number of the newest durable write, or of a later one; so do size and mode.
fn file_can_be(
    history: &History<'_>,
    (tag, base): (Tag, Option<&Object>),
    found: &Object,
    end: End,
) -> Result<(), Wrong> {
    let Object::File { content, mode, .. } = found else { return Ok(()) };
    let (base, base_mode) = match base {
        Some(Object::File { content, mode, .. }) => (content.clone(), *mode),
        _ => (Content::default(), crate::tree::MODE),
    };
    let of_it = |call: &&&Call| file_of(&call.op) == Some(tag);
    let changes: Vec<(&Call, bool)> = history
        .changes
        .iter()
        .filter(of_it)
        .map(|call| (*call, end == End::Export || is_durable(history, call)))
        .collect();
    let ghosts: Vec<&Call> = history.ghosts.iter().filter(of_it).copied().collect();
    let cells = changes.iter().map(|(call, _)| call).chain(&ghosts);
    let last = cells.filter_map(|call| last_cell(&call.op)).max().unwrap_or(0);
    for index in 0..last.max(base.cells()).max(content.cells()) {
        let mut can_be = Vec::new();
        let mut durable = false;
        for (call, is_durable) in changes.iter().rev() {
            if let Some(cell) = leaves(&call.op, index) {
                can_be.push(cell);
                durable = *is_durable;
            }
            if durable {
                break;
            }
        }
        if !durable {
            can_be.push(base.cell(index));
        }
        can_be.extend(ghosts.iter().filter_map(|ghost| leaves(&ghost.op, index)));
        let is = content.cell(index);
        // Beyond the end there is no content.
        if index * CELL_BYTES < content.size && !can_be.contains(&is) {
            let why = format!("cell {index} is {is}, and can be {can_be:?}");
            return Err(Wrong { reached: (index as usize).min(FILE_STEPS - 3), why });
        }
    }
    let size = size_can_be(&base, &changes, &ghosts, content.size);
    size.map_err(|why| Wrong { reached: FILE_STEPS - 2, why })?;
    let modes = |call: &Call| match &call.op {
        Op::Set { mode, .. } => *mode,
        _ => None,
    };
    let set = changes.iter().rev().find_map(|(call, _)| modes(call)).unwrap_or(base_mode);
    let ghost_set = ghosts.iter().any(|ghost| modes(ghost) == Some(*mode));
    match *mode == set || ghost_set {
        true => Ok(()),
        false => {
            let why = format!("mode {mode:o}, and was set to {set:o}");
            Err(Wrong { reached: FILE_STEPS - 1, why })
        }
    }
}

fn last_cell(op: &Op) -> Option<u64> {
    match op {
        Op::Write { cells, .. } => cells.iter().map(|c| c.first + c.count).max(),
        _ => None,
    }
}

fn size_can_be(
    base: &Content,
    changes: &[(&Call, bool)],
    ghosts: &[&Call],
    size: u64,
) -> Result<(), String> {
    let after = |op: &Op, size: u64| match op {
        Op::Set { size: Some(set), .. } => *set,
        op => size.max(last_cell(op).unwrap_or(0) * CELL_BYTES),
    };
    // A call without an answer may have been carried out at any moment, or not.
    let with_ghosts = |mut can_be: BTreeSet<u64>| {
        for _ in ghosts {
            let more = |ghost: &&Call| -> Vec<u64> {
                can_be.iter().map(|size| after(&ghost.op, *size)).collect()
            };
            let more: Vec<u64> = ghosts.iter().flat_map(more).collect();
            let before = can_be.len();
            can_be.extend(more);
            // Mostly the change before had all of them.
            if can_be.len() == before {
                break;
            }
        }
        can_be
    };
    let mut can_be = with_ghosts(BTreeSet::from([base.size]));
    for (call, durable) in changes {
        let mut now: BTreeSet<u64> = can_be.iter().map(|size| after(&call.op, *size)).collect();
        if !durable {
            now.extend(&can_be);
        }
        can_be = with_ghosts(now);
    }
    match can_be.contains(&size) {
        true => Ok(()),
        false => Err(format!("size {size}, and can be {can_be:?}")),
    }
}

/// Whether the effect of a change must be there after a cut.
fn is_durable(history: &History<'_>, call: &Call) -> bool {
    let Op::Write { file, cells, .. } = &call.op else { return true };
    if call.is_durable() {
        return true;
    }
    let Some(Ok(Reply::Changed { verifier, .. })) = &call.outcome else { return true };
    // A COMMIT that began after the write's end covers it, if no other server answered.
    let bytes = cells.iter().map(|c| (c.first * CELL_BYTES, (c.first + c.count) * CELL_BYTES));
    history.commits.iter().any(|commit| match &commit.op {
        Op::Commit { file: of, offset, count } => {
            let end = if *count == 0 { u64::MAX } else { offset + u64::from(*count) };
            of.tag == file.tag
                && commit.begun > call.ended
                && commit.outcome == Some(Ok(Reply::Committed(*verifier)))
                && bytes.clone().all(|(from, to)| *offset <= from && to <= end)
        }
        _ => false,
    })
}
