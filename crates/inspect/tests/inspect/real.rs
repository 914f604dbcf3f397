//! Pools that the engine made. The power-cut test of `aquifer_files` inspects pools with files,
//! after every cut.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_inspect::{Report, inspect};
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, import, scan};
use aquifer_pool::{BoxFuture, Pool, PoolError, Replay, Roots, SyncContext, Trees, Visitor};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk};

use crate::{deep, kinds};

/// A layer above the pool that never changes anything.
struct Nothing(Arc<Pool>);

impl Trees for Nothing {
    fn sync<'a>(&'a self, _: &'a SyncContext) -> BoxFuture<'a, Result<Roots, PoolError>> {
        Box::pin(async { Ok(self.0.roots()) })
    }
    fn committed(&self, _: aquifer_ondisk::Txg) {}
    fn walk<'a>(
        &'a self,
        _: Roots,
        _: aquifer_ondisk::Txg,
        _: WalkPosition,
        _: &'a mut dyn Visitor,
    ) -> BoxFuture<'a, Result<Option<WalkPosition>, PoolError>> {
        Box::pin(async { Ok(None) })
    }
}

impl Replay for Nothing {
    fn prepare(&self, _: &mut dyn Iterator<Item = &LogRecord>) -> Result<(), PoolError> {
        Ok(())
    }

    fn replay<'a>(
        &'a self,
        _: &'a LogRecord,
        _: &'a [aquifer_blockio::Page],
    ) -> BoxFuture<'a, Result<(), PoolError>> {
        Box::pin(async { Ok(()) })
    }
}

fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name =
        |disk: &SimDisk| NamedDisk { path: disk.name().to_string(), disk: Arc::new(disk.clone()) };
    disks.iter().map(name).collect()
}

fn specs(mirrors: &[usize], disks: &[SimDisk]) -> Vec<VdevSpec> {
    let mut disks = named(disks).into_iter();
    let spec = |sides: &usize| VdevSpec {
        redundancy: if *sides > 1 { Redundancy::Mirror } else { Redundancy::Single },
        disks: disks.by_ref().take(*sides).collect(),
    };
    mirrors.iter().map(spec).collect()
}

fn look(sim: &mut Sim, disks: &[SimDisk]) -> Report {
    let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let report = sim.run_until(inspect(disks, &deep())).unwrap();
    assert_eq!(kinds(&report), [], "{report}");
    report
}

#[test]
fn pools_that_the_engine_made() {
    for (mirrors, sectors) in
        [(&[1][..], 65536), (&[2], 65536), (&[1, 1], 70000), (&[3, 2], 65600), (&[1], 300_000)]
    {
        let mut sim = Sim::new(5);
        let count = mirrors.iter().sum::<usize>();
        let disks: Vec<SimDisk> = (0..count)
            .map(|at| sim.add_disk(&format!("d{at}"), Image::new(sectors), DiskConfig::default()))
            .collect();
        let spec = PoolSpec {
            name: "tank".into(),
            vdevs: specs(mirrors, &disks),
            logs: Vec::new(),
            force: false,
        };
        let world: Arc<dyn World> = Arc::new(sim.world());
        sim.run_until(create(world.clone(), spec)).unwrap().unwrap();
        let report = look(&mut sim, &disks);
        assert_eq!(report.summary.roots.len(), 1);
        assert!(report.summary.clean);
        for life in 1..4 {
            let disks_named = named(&disks);
            let world = world.clone();
            let run = async move {
                let (mut pools, _) = scan(disks_named).await;
                let (_, found) = pools.pop_first().unwrap();
                let (pool, _) = import(world, found, &ImportOptions::default()).await.unwrap();
                let nothing = Arc::new(Nothing(pool.clone()));
                let trees: Arc<dyn Trees> = nothing.clone();
                pool.attach(Arc::downgrade(&trees));
                pool.replay(nothing.as_ref()).await.unwrap();
                pool.world().spawn("txg", pool.clone().run());
                for _ in 0..3 * life {
                    pool.sync().await.unwrap();
                }
                if life == 2 {
                    pool.export().await.unwrap();
                }
            };
            sim.run_until(run).unwrap();
            let report = look(&mut sim, &disks);
            assert_eq!((report.summary.session, report.summary.clean), (life, life == 2));
            assert_eq!(report.summary.roots.len(), 3);
            sim.power_cut_any();
            look(&mut sim, &disks);
        }
    }
}
