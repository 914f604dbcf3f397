//! The acts on two datasets whose files are cloned back and forth, and what each makes of them.

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_ondisk::Txg;
use aquifer_sim::Rng;

use super::{DATASETS, FILES, File, Model, PAGES, Side, State};
use crate::by_text::ByText;
use crate::snapshots::{PAGE, page};

#[derive(Debug, Clone)]
pub(super) enum Act {
    Create(String),
    Write(String, u64, Vec<u64>),
    Cut(String, u64),
    Remove(String),
    Own(Vec<String>, String),
    DestroyOwn(String, String),
    Whole(String),
    DestroyWhole(String),
    /// From this snapshot (path and name), to this file of this dataset.
    Clone((String, String), (usize, String)),
    RollFile((String, String)),
    Roll(String),
    Destroy,
    Make,
}

/// The file that a version shows.
pub(super) fn version<'a>(side: &'a Side, (path, name): &(String, String)) -> Option<&'a File> {
    let own = side.own.get(&(path.clone(), name.clone())).map(|(_, file)| file);
    own.or_else(|| side.whole.get(name).and_then(|(_, files)| files.get(path)))
}

impl Act {
    /// The state after it; `None`: it cannot be done.
    pub(super) fn after(&self, state: &State, at: usize, number: u64) -> Option<State> {
        let mut state = state.clone();
        if let Act::Make = self {
            return state[at].is_none().then(|| {
                state[at] = Some(Side::default());
                state
            });
        }
        let side = state[at].as_mut()?;
        match self {
            Act::Create(name) => {
                side.files.insert(name.clone(), (number, Vec::new())).is_none().then_some(())?;
            }
            Act::Write(name, from, marks) => {
                let (_, pages) = side.files.get_mut(name)?;
                let to = *from as usize + marks.len();
                pages.resize(pages.len().max(to), 0);
                pages[*from as usize..to].copy_from_slice(marks);
            }
            Act::Cut(name, to) => side.files.get_mut(name)?.1.resize(*to as usize, 0),
            Act::Remove(name) => drop(side.files.remove(name)?),
            Act::Own(files, name) => {
                for path in files {
                    let file = side.files.get(path)?.clone();
                    side.own.insert((path.clone(), name.clone()), (number, file));
                }
            }
            Act::DestroyOwn(path, name) => {
                drop(side.own.remove(&(path.clone(), name.clone()))?);
            }
            Act::Whole(name) => {
                let files = side.files.clone();
                side.whole.insert(name.clone(), (number, files));
            }
            Act::DestroyWhole(name) => drop(side.whole.remove(name)?),
            Act::Clone(from, (to, name)) => {
                let (_, marks) = version(side, from)?.clone();
                let files = &mut state[*to].as_mut()?.files;
                files.insert(name.clone(), (number, marks)).is_none().then_some(())?;
            }
            Act::RollFile(from) => {
                let file = version(side, from)?.clone();
                let now = side.files.insert(from.0.clone(), file.clone());
                now.is_none_or(|(id, _)| id == file.0).then_some(())?;
            }
            Act::Roll(name) => {
                let (number, files) = side.whole.get(name)?.clone();
                side.files = files;
                side.whole.retain(|_, (of, _)| *of <= number);
                side.own.retain(|_, (of, _)| *of <= number);
            }
            Act::Destroy => state[at] = None,
            Act::Make => {}
        }
        Some(state)
    }
}

/// An act on a dataset.
pub(super) fn draw(model: &mut Model, rng: &mut Rng, at: usize) -> Option<Act> {
    model.next += 1;
    let number = model.next;
    let Some(side) = &model.state[at] else { return Some(Act::Make) };
    let name = format!("f{}", rng.below(FILES));
    let whole = rng.pick(&side.whole.keys().cloned().collect::<Vec<_>>()).cloned();
    let own = rng.pick(&side.own.keys().cloned().collect::<Vec<_>>()).cloned();
    let of_whole = whole.clone().and_then(|whole| {
        let names: Vec<String> = side.whole[&whole].1.keys().cloned().collect();
        Some((rng.pick(&names)?.clone(), whole))
    });
    let from = if rng.coin() { own.clone() } else { of_whole };
    match rng.below(32) {
        0..=1 => Some(Act::Create(name)),
        2..=9 => {
            let from = rng.below(PAGES);
            let most = if rng.below(4) == 0 { 12 } else { 3 };
            let count = 1 + rng.below(most);
            model.next += count;
            Some(Act::Write(name, from, (number..number + count).collect()))
        }
        10 => Some(Act::Cut(name, rng.below(PAGES))),
        11..=12 => Some(Act::Remove(name)),
        13..=15 if side.own.len() < 6 => {
            let mut files: Vec<String> = side.files.keys().cloned().collect();
            rng.shuffle(&mut files);
            files.truncate(1 + rng.index(2));
            (!files.is_empty()).then(|| Act::Own(files, format!("o{number}")))
        }
        13..=17 => own.map(|(path, name)| Act::DestroyOwn(path, name)),
        18..=19 if side.whole.len() < 4 => Some(Act::Whole(format!("w{number}"))),
        18..=20 => whole.map(Act::DestroyWhole),
        21..=26 => {
            let to = if rng.below(4) == 0 { at } else { 1 - at };
            from.map(|from| Act::Clone(from, (to, name)))
        }
        27..=29 => from.map(Act::RollFile),
        30 => whole.map(Act::Roll),
        _ => (rng.below(3) == 0).then_some(Act::Destroy),
    }
}

/// The errors of acts that may be refused at any time.
fn is_refusal(error: &FileNameError) -> bool {
    match error {
        FileNameError::Dataset(error) => is_refused(error),
        FileNameError::NameTaken(_) => true,
        FileNameError::Clone { error, .. }
        | FileNameError::Return { error, .. }
        | FileNameError::NotNamed { error, .. } => {
            matches!(error, FsError::Exists | FsError::NoSpace)
        }
        _ => false,
    }
}

fn is_refused(error: &DatasetError) -> bool {
    let refused = matches!(
        error,
        DatasetError::NeededByFiles { .. }
            | DatasetError::UnsettledOrigin(_)
            | DatasetError::Unsettled(_)
            | DatasetError::FileNotFreed(_)
            | DatasetError::FileNotRemoved(_)
    );
    refused || error.to_string().contains("out of space")
}

/// Whether it was done; if not, nothing has changed.
pub(super) async fn carry_out(service: &Service, at: usize, act: &Act) -> Result<bool, String> {
    let of = DATASETS[at];
    let text = |path: &str, name: &str| format!("{of}:{path}@{name}");
    let judge = |done: Result<(), FileNameError>| match done {
        Ok(()) => Ok(true),
        Err(error) if is_refusal(&error) => Ok(false),
        Err(error) => Err(format!("{act:?} of {of}: {error}")),
    };
    let datasets = &service.datasets;
    let dataset = || datasets.by_name(of).ok_or(format!("{of} is gone"));
    match act {
        Act::Own(files, name) => {
            let names: Vec<String> = files.iter().map(|path| text(path, name)).collect();
            judge(service.files.take_named(&names).await.map(drop))
        }
        Act::DestroyOwn(path, name) => {
            let found = service.files.listed_named(&text(path, name)).await;
            let (dataset, found) = found.map_err(|error| error.to_string())?;
            let ids = found.iter().map(|of| of.id).collect();
            judge(datasets.destroy_file_snapshots(&[(dataset, ids)]).await.map_err(Into::into))
        }
        Act::Whole(name) => {
            let done = datasets.snapshot(&[format!("{of}@{name}")], false).await;
            judge(done.map(drop).map_err(Into::into))
        }
        Act::DestroyWhole(name) => {
            let listed = dataset()?.snapshots(service.pool.committed_txg());
            let txgs: Vec<Txg> =
                listed.iter().filter(|of| of.record.name == *name).map(|of| of.txg).collect();
            let these = [(dataset()?, txgs.into_iter().collect())];
            judge(datasets.destroy_snapshots(&these, false).await.map(drop).map_err(Into::into))
        }
        Act::Clone((path, name), (to, new)) => {
            let to = [format!("{}:{new}", DATASETS[*to])];
            judge(service.files.clone_named(&text(path, name), &to).await)
        }
        Act::RollFile((path, name)) => {
            let text = text(path, name);
            let found = service.files.versions_named(&text).await;
            let (dataset, found) = found.map_err(|error| format!("{text}: {error}"))?;
            let to: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
            let options = RollbackOptions::default();
            judge(service.files.roll_back_named(&text, (&dataset, &to), options).await.map(drop))
        }
        Act::Roll(name) => {
            let options = RollbackOptions { destroy_later: true, force: false };
            let done = datasets.rollback(&format!("{of}@{name}"), options).await;
            judge(done.map(drop).map_err(Into::into))
        }
        Act::Destroy => judge(datasets.destroy(of, true).await.map_err(Into::into)),
        Act::Make => judge(datasets.create(of, &[]).await.map(drop).map_err(Into::into)),
        change => match client(service, of, change).await {
            Ok(()) => Ok(true),
            Err(FsError::NoSpace) => Ok(false),
            Err(error) => Err(format!("{act:?} of {of}: {error}")),
        },
    }
}

/// Carries out an act of clients.
async fn client(service: &Service, of: &str, act: &Act) -> Result<(), FsError> {
    let (files, cred) = (&service.files, Credentials::root());
    let root = files.root(of).ok_or(FsError::Stale)?;
    let find = async |name: &str| -> Result<FileHandle, FsError> {
        Ok(files.lookup(&cred, root, name.as_bytes()).await.0?.handle)
    };
    match act {
        Act::Create(name) => {
            let how = CreateHow::Guarded(SetAttributes::default());
            files.create(&cred, root, name.as_bytes(), how).await.kept().await.0.map(drop)
        }
        Act::Write(name, from, marks) => {
            let data: Vec<u8> = marks.iter().flat_map(|mark| page(*mark)).collect();
            let at = from * PAGE as u64;
            let file = find(name).await?;
            files.write(&cred, file, at, &data, Stability::FileSync).await.0.map(drop)
        }
        Act::Cut(name, to) => {
            let set = SetAttributes { size: Some(to * PAGE as u64), ..SetAttributes::default() };
            files.setattr(&cred, find(name).await?, &set, None).await.kept().await.0
        }
        Act::Remove(name) => files.remove(&cred, root, name.as_bytes()).await.kept().await.0,
        _ => Err(FsError::NotSupported),
    }
}
