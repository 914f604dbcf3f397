//! Acts on single files: snapshot, clone and rollback of a small file and of a sparse one of 1 TiB,
//! and a hundred clones of a template.
//!
//! The server has come to rest before each act. Files take turns, round by round. All content is
//! compared after the rollbacks, and that of clones.

use aquifer_nfs::proto::v3::NfsFh3;

use super::{Bench, DATASET, each_page};
use crate::figures::{Figures, median, number};
use crate::load::Life;
use crate::pages::Pages;
use crate::{Result, workload};

/// A file beside the target's own, in the root of its dataset.
pub(super) struct Beside {
    name: String,
    handle: NfsFh3,
    content: Pages,
}

impl Beside {
    /// `DATASET:PATH`.
    pub(super) fn full(&self) -> String {
        format!("{DATASET}:{}", self.name)
    }
}

/// Milliseconds of each act on a file, and what it is then.
struct Acts {
    file: Beside,
    /// Content of its first two snapshots.
    first: Vec<Pages>,
    snapshots: Vec<f64>,
    clones: Vec<f64>,
    across: Vec<f64>,
    rollbacks: Vec<f64>,
    lines: Vec<f64>,
}

impl Acts {
    fn new(file: Beside) -> Acts {
        let none = Vec::new;
        let (snapshots, clones, across, rollbacks, lines) =
            (none(), none(), none(), none(), none());
        Acts { file, first: Vec::new(), snapshots, clones, across, rollbacks, lines }
    }

    fn snapshot(&self, round: usize) -> String {
        format!("{}@f{round}", self.file.full())
    }
}

impl Bench {
    /// A file of `bytes` of which `written` are written: all, or pages at random places.
    pub(super) fn make(&mut self, name: &str, bytes: u64, written: u64) -> Result<Beside> {
        let root = self.target.mount()?;
        let mut connection = self.target.connect()?;
        let handle = connection.create(root, name)?;
        connection.resize(handle, bytes)?;
        let content = Pages::new(usize::try_from(written).unwrap_or(usize::MAX), true);
        let mut file = Beside { name: name.into(), handle, content: content.over(bytes) };
        let plan = if file.content.is_sparse() { each_page() } else { workload::fill() };
        self.on(&mut file, |bench| {
            bench.target.pass(&plan, 1, Life::Once, &mut |_| Ok(())).map(drop)
        })?;
        Ok(file)
    }

    /// Acts on another file than the target's own.
    pub(super) fn on<T>(
        &mut self,
        file: &mut Beside,
        act: impl FnOnce(&mut Bench) -> Result<T>,
    ) -> Result<T> {
        self.target.exchange(&mut file.handle, &mut file.content);
        let done = act(self);
        self.target.exchange(&mut file.handle, &mut file.content);
        done
    }

    /// Removes files of the target's dataset, with their snapshots.
    pub(super) fn remove<'a>(&mut self, files: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let root = self.target.mount()?;
        let mut connection = self.target.connect()?;
        files.into_iter().try_for_each(|name| Ok(connection.remove(root, name)?))
    }

    /// Compares a file of a dataset.
    fn compare_at(&mut self, dataset: &str, name: &str, content: &Pages) -> Result<()> {
        let root = self.target.mount_of(&format!("/{dataset}"))?;
        let handle = self.target.connect()?.lookup(root, name)?;
        let mut file = Beside { name: name.into(), handle, content: content.clone() };
        self.on(&mut file, |bench| bench.target.compare())
    }

    /// Writes over some pages of a file; all of it is on disk then, and the server rests.
    fn change(&mut self, file: &mut Beside) -> Result<()> {
        self.on(file, |bench| {
            let some = Life::Calls(CHANGED);
            bench.target.pass(&workload::stable_4k_32(), 1, some, &mut |_| Ok(())).map(drop)
        })?;
        self.settle()?;
        self.rest()
    }

    /// Snapshot, clone and both kinds of rollback, of a small file and of a large one.
    pub(super) fn files(&mut self) -> Result<()> {
        self.ask(&["create", OTHER])?;
        self.ask(&["set", "sharenfs=insecure", OTHER])?;
        let small = self.make("small.img", SMALL_BYTES, SMALL_BYTES)?;
        let large = self.make("sparse.img", SPARSE_BYTES, self.sparse)?;
        let mut files = [Acts::new(small), Acts::new(large)];
        let mut asks = Vec::new();
        for round in 0..self.rounds {
            self.rest()?;
            asks.push(self.ms(&["list", DATASET])?);
            for of in &mut files {
                self.change(&mut of.file)?;
                if of.first.len() < 2 {
                    of.first.push(of.file.content.clone());
                }
                of.snapshots.push(self.ms(&["snapshot", &of.snapshot(round)])?);
            }
        }
        for of in &mut files {
            let of_newest = of.file.content.clone();
            for _ in 0..self.rounds {
                self.change(&mut of.file)?;
                of.rollbacks.push(self.ms(&["rollback", "-f", &of.snapshot(self.rounds - 1)])?);
                of.file.content = of_newest.clone();
            }
            self.on(&mut of.file, |bench| bench.target.compare())?;
        }
        let newest = files.each_ref().map(|of| of.file.content.clone());
        for of in &mut files {
            for round in 0..self.rounds {
                self.change(&mut of.file)?;
                of.lines.push(self.ms(&["rollback", "-f", &of.snapshot(round % 2)])?);
                let now = of.first.get(round % 2);
                of.file.content = now.cloned().unwrap_or_else(|| of.file.content.clone());
                if round < 2 {
                    self.on(&mut of.file, |bench| bench.target.compare())?;
                }
            }
            self.on(&mut of.file, |bench| bench.target.compare())?;
        }
        // Last: to empty those that were removed is work beside.
        self.file_clones(&mut files, &newest)?;
        self.told_of_files(median(asks), &files);
        let all = format!("{DATASET}:*@*");
        self.ask(&["destroy", "-f", &all])?;
        self.remove(files.iter().map(|of| of.file.name.as_str()))?;
        self.ask(&["destroy", "-rf", OTHER])?;
        self.until_freed().map(drop)
    }

    /// Clones beside the file, and in another dataset.
    fn file_clones(&mut self, files: &mut [Acts], newest: &[Pages]) -> Result<()> {
        let mut made = Vec::new();
        for round in 0..self.rounds {
            for (of, content) in files.iter_mut().zip(newest) {
                let name = format!("c{round}-{}", of.file.name);
                let from = of.snapshot(self.rounds - 1);
                self.rest()?;
                of.clones.push(self.ms(&["clone", &from, &format!("{DATASET}:{name}")])?);
                self.rest()?;
                of.across.push(self.ms(&["clone", &from, &format!("{OTHER}:{name}")])?);
                if round + 1 == self.rounds {
                    self.compare_at(DATASET, &name, content)?;
                    self.compare_at(OTHER, &name, content)?;
                }
                made.push(name);
            }
        }
        self.remove(made.iter().map(String::as_str))
    }

    fn told_of_files(&mut self, ask: f64, files: &[Acts]) {
        let [small, large] = files else { return };
        let add = |what: &str, get: fn(&Acts) -> &Vec<f64>, figures: &mut Figures| {
            let (small, large) = (median(get(small).clone()), median(get(large).clone()));
            figures.add(format!("{what}, a file of 1 MiB"), (small, "ms"), (small / ask, ASKED));
            let of = (large / small, "the same of 1 MiB");
            figures.add(format!("{what}, a sparse file of 1 TiB"), (large, "ms"), of);
        };
        self.figures.add("a command that only asks", (ask, "ms"), (ask / 10.0, "10 ms"));
        let figures = &mut self.figures;
        add("snapshot", |of| &of.snapshots, figures);
        add("clone", |of| &of.clones, figures);
        add("clone into another dataset", |of| &of.across, figures);
        add("rollback in line", |of| &of.rollbacks, figures);
        add("rollback, later snapshots stay", |of| &of.lines, figures);
    }

    /// A hundred clones of a template, by one command.
    pub(super) fn template(&mut self) -> Result<()> {
        self.ask(&["create", OTHER])?;
        self.ask(&["set", "sharenfs=insecure", OTHER])?;
        let gold = self.make("gold.img", TEMPLATE_BYTES, self.sparse.min(TEMPLATE_BYTES))?;
        let snapshot = format!("{}@v1", gold.full());
        self.ask(&["snapshot", &snapshot])?;
        let names: Vec<String> = (0..CLONES).map(|number| format!("x{number}.img")).collect();
        for (dataset, what) in [(DATASET, "100 clones of a template"), (OTHER, ELSEWHERE)] {
            self.settle()?;
            let before = self.until_freed()?;
            let mut words = vec!["clone".into(), snapshot.clone()];
            words.extend(names.iter().map(|name| format!("{dataset}:{name}")));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let took = self.ms(&words)? / 1e3;
            self.settle()?;
            let each = (self.until_freed()? - before) / CLONES as f64 / 1024.0;
            self.figures.add(format!("{what}, one command"), (took, "s"), (took, "a second"));
            self.figures.add(format!("{what}: each"), (each, "KiB"), (each / 32.0, "32 KiB"));
            for name in names.iter().step_by(CLONES / 2) {
                self.compare_at(dataset, name, &gold.content)?;
            }
        }
        self.cache_of_clones(&gold, &names)?;
        self.ask(&["destroy", "-rf", OTHER])?;
        self.ask(&["destroy", "-f", &snapshot])?;
        let files = names.iter().map(String::as_str);
        self.remove(files.chain([gold.name.as_str()]))?;
        self.until_freed().map(drop)
    }
}

impl Bench {
    /// Measures what the read cache holds when all clones were read, against one.
    fn cache_of_clones(&mut self, gold: &Beside, names: &[String]) -> Result<()> {
        let disk = self.disk()?;
        self.again(&disk)?;
        let mut held = Vec::new();
        for (at, name) in names.iter().enumerate() {
            self.compare_at(DATASET, name, &gold.content)?;
            if at == 0 || at + 1 == names.len() {
                held.push(number(&self.json(&["arcstat"])?, "/pools/0/cache/size_bytes")?);
            }
        }
        if let [one, all] = held[..] {
            let (mib, of) = (all / 1048576.0, all / one.max(1.0));
            self.figures.add("cache when 100 clones were read", (mib, "MiB"), (of, "one of them"));
        }
        Ok(())
    }
}

/// The dataset of clones that are made elsewhere.
const OTHER: &str = "tank/other";
const ELSEWHERE: &str = "the same in another dataset";
const ASKED: &str = "a command that only asks";
/// Pages that change before an act.
const CHANGED: u32 = 16;
const SMALL_BYTES: u64 = 1 << 20;
pub(super) const SPARSE_BYTES: u64 = 1 << 40;
const TEMPLATE_BYTES: u64 = 20 << 30;
const CLONES: usize = 100;
