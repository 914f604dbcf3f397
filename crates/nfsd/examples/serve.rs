//! Serves the pool on an image file until SIGTERM or SIGINT: for tests with foreign clients and for
//! measurements.
//!
//! `serve IMAGE LISTEN PORTMAP [THREADS [SNAPSHOT]]`: LISTEN and PORTMAP are `address:port`,
//! PORTMAP may be `off`. A missing image is made (4 GiB, sparse) with the datasets `tank/vms`,
//! exported as `/vms`, and `tank/iso`, exported read-only as `/iso` to 127.0.0.0/8. With SNAPSHOT
//! each start takes a snapshot of `tank/vms` first: SNAPSHOT and a number, from 1 on.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use aquifer_blockio::{Disk, FileDisk, OpenOptions, TokioWorld, World, create_image};
use aquifer_files::Service;
use aquifer_nfs::{Access, Client, Entry, Export, Exports, Nfs, Volume, Whom};
use aquifer_nfsd::{Config, Portmap, Server};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use tokio::signal::unix::{SignalKind, signal};

const SECTORS: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, listen, portmap, rest @ ..] = args.as_slice() else {
        return Err("usage: serve IMAGE LISTEN PORTMAP|off [THREADS [SNAPSHOT]]".into());
    };
    let portmap = match portmap.as_str() {
        "off" => Portmap::Off,
        address => Portmap::At(vec![address.parse()?]),
    };
    let threads = rest.first().map_or(Ok(0), |threads| threads.parse())?;
    let config = Config { listen: vec![listen.parse()?], portmap, threads, ..Config::default() };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(serve(Path::new(image), rest.get(1), config))
}

async fn serve(
    image: &Path,
    snapshot: Option<&String>,
    config: Config,
) -> Result<(), Box<dyn Error>> {
    let pool = open(image).await?;
    if let Some(name) = snapshot {
        let vms = pool.datasets.by_name("tank/vms").ok_or("no dataset tank/vms")?;
        let full = format!("tank/vms@{name}{}", vms.snapshot_count() + 1);
        pool.datasets.snapshot(&[full], false).await?;
    }
    let here = Client::Network("127.0.0.0/8".parse()?);
    let here = vec![Entry { client: here, except: false }];
    let control = Access { control: here.clone(), ..Access::read_write() };
    let vms = Export { access: control, ..Export::new("/vms", "tank/vms") };
    let access = Access { read_only: Whom::Listed(here), ..Access::default() };
    let iso = Export { access, ..Export::new("/iso", "tank/iso") };
    let files = Arc::clone(&pool.files);
    let volume = Volume::new(Arc::clone(&files));
    let root_of = move |dataset: &str| Some(volume.root(files.root(dataset)?));
    let exports = Exports::new(vec![vms, iso], root_of)?;
    let nfs = Arc::new(Nfs::new(exports));
    let server = Server::start(config, nfs).await?;
    println!("serving at {:?}, portmap {:?}", server.addresses(), server.portmap());
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    println!("{:?}, {:?}", server.stop().await, server.load());
    pool.pool.export().await?;
    Ok(())
}

async fn open(image: &Path) -> Result<Service, Box<dyn Error>> {
    let is_new = !image.exists();
    if is_new {
        create_image(image, SECTORS)?;
    }
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(image, OpenOptions::exclusive())?);
    let named = || NamedDisk { path: image.display().to_string(), disk: Arc::clone(&disk) };
    let world: Arc<dyn World> = Arc::new(TokioWorld::new(tokio::runtime::Handle::current()));
    if is_new {
        let vdev = VdevSpec { redundancy: Redundancy::Single, disks: vec![named()] };
        let spec =
            PoolSpec { name: "tank".into(), vdevs: vec![vdev], logs: Vec::new(), force: false };
        create(Arc::clone(&world), spec).await?;
    }
    let (mut pools, _) = scan(vec![named()]).await;
    let (_, found) = pools.pop_first().ok_or("no pool on this image")?;
    let pool = Service::open(world, found, &ImportOptions::default()).await?;
    for dataset in ["tank/vms", "tank/iso"] {
        if pool.files.root(dataset).is_none() {
            pool.datasets.create(dataset, &[]).await?;
        }
    }
    Ok(pool)
}
