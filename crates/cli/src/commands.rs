//! The commands. One function each.

mod alerts;
mod arcstat;
mod columns;
mod confirm;
mod connect;
mod dataset;
mod diff;
mod disks;
mod drill;
mod events;
mod free_space;
mod history;
mod hold;
#[cfg(debug_assertions)]
mod inject;
mod iostat;
mod list;
mod locks;
mod nfs;
mod past;
mod pool;
mod progress;
mod receives;
mod repeat;
mod replicate;
mod scrub;
mod send;
mod share;
mod since;
mod snapshot;
mod status;
mod token;
mod top;

pub use diff::DiffArgs;
#[cfg(debug_assertions)]
pub use inject::InjectArgs;
pub use replicate::ReplicateArgs;
pub use send::{ReceiveArgs, SendArgs};
pub use top::TopArgs;

use std::io::{IsTerminal, Write};

use aquifer_api::client::Client;
use aquifer_api::keys::{self, Identity};
use aquifer_api::shown::{PLAIN, RED, lines_shown, shown};
use aquifer_api::time;
use aquifer_api::{ConnectQuery, ImportRequest, OfflineDisk, OnlineDisk, ReplaceDisk};
use aquifer_meter::size;
use serde::Serialize;

use crate::args::{
    ApiArgs, Command, CreateArgs, ImportArgs, LocksCommand, Options, PoolCommand, ShareCommand,
    StatCommand,
};
use crate::failure::Failure;
use crate::table::Table;

/// How answers are printed.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// The API's answer, unchanged.
    pub json: bool,
    /// Tables without headers, with tabs.
    pub script: bool,
    /// Sizes in bytes.
    pub exact: bool,
    /// Colours: stdout is a terminal.
    pub colour: bool,
}

/// Carries out a command.
///
/// # Errors
/// That it makes no sense, or came to nothing.
pub async fn run(command: Command, options: &Options) -> Result<(), Failure> {
    let (client, output) = (client(&options.api)?, Output::of(options));
    match command {
        Command::Pool(command) => run_pool(command, &client, output).await,
        Command::Create { properties, dataset } => {
            dataset::create(&client, output, properties, dataset).await
        }
        Command::Snapshot { recursive, snapshots } => {
            snapshot::take(&client, output, recursive, snapshots).await
        }
        Command::Bookmark { snapshot, bookmark } => {
            snapshot::bookmark(&client, output, snapshot, bookmark).await
        }
        Command::Send(args) => send::send(&client, output, args).await,
        Command::Receive(args) => send::receive(&client, output, args).await,
        Command::Receives { dataset } => receives::all(&client, output, dataset).await,
        Command::Replicate(args) => replicate::replicate(&client, output, args).await,
        Command::Diff(args) => diff::diff(&client, output, args).await,
        Command::Clone { properties, snapshot, names } => {
            dataset::clone(&client, output, properties, (snapshot, names)).await
        }
        Command::Destroy { recursive, clones, force, dry_run, verbose, dataset } => {
            let wish = snapshot::Wish { recursive, clones, force, dry_run, verbose };
            destroy(&client, output, wish, dataset).await
        }
        Command::Promote { dataset } => dataset::promote(&client, output, dataset).await,
        Command::Rollback { destroy_later, force, snapshot } => {
            snapshot::roll_back(&client, output, (destroy_later, force), snapshot).await
        }
        Command::Rename { recursive, name, new } => {
            rename(&client, output, recursive, name, new).await
        }
        Command::Hold { recursive, until, tag, snapshots } => {
            hold::hold(&client, output, recursive, until, tag, snapshots).await
        }
        Command::Release { recursive, tag, snapshots } => {
            hold::release(&client, output, recursive, tag, snapshots).await
        }
        Command::Holds { recursive, names } => hold::holds(&client, output, recursive, names).await,
        Command::Clear { dataset, file } => dataset::clear(&client, output, dataset, file).await,
        Command::Set { force, words } => dataset::set(&client, output, force, words).await,
        Command::Inherit { property, dataset } => {
            dataset::inherit(&client, output, property, dataset).await
        }
        Command::Get(args) => dataset::get(&client, output, args).await,
        Command::List(args) => list::list(&client, output, args).await,
        Command::Locks { command } => run_locks(command, &client, output).await,
        Command::Share { audit: true, .. } => share::audit(&client, output).await,
        Command::Share { command: None, .. } => share::list(&client, output).await,
        Command::Share { command: Some(ShareCommand::Why { host, path }), .. } => {
            share::why(&client, output, host, path).await
        }
        Command::Token(command) => token::run(command, &client, output).await,
        Command::Confirm { number: None, .. } => confirm::list(&client, output).await,
        Command::Confirm { refuse, force, number: Some(number) } => {
            confirm::decide(&client, output, (refuse, force), number).await
        }
        Command::Connect { hypervisor, host, dataset } => {
            let query = ConnectQuery { dataset, hypervisor, host };
            connect::connect(&client, output, query).await
        }
        Command::Top(args) => top::top(&client, output, args).await,
        Command::Stat(command) => stat(command, &client, output).await,
        #[cfg(debug_assertions)]
        Command::Inject(args) => inject::inject(&client, output, args).await,
        Command::Alerts { command } => alerts::run(command, &client, output).await,
        Command::Events { follow } => events::events(&client, output, follow).await,
    }
}

/// Shows numbers.
async fn stat(command: StatCommand, client: &Client, output: Output) -> Result<(), Failure> {
    match command {
        StatCommand::Iostat { latency, past, words, .. } if past.history.is_some() => {
            past::iostat(client, output, &past, latency, &words).await
        }
        StatCommand::Iostat { verbose, latency, histograms, words, .. } => {
            let show = iostat::Show { verbose, latency, histograms };
            iostat::iostat(client, output, show, &words).await
        }
        StatCommand::Arcstat { verbose, words } => {
            let times = repeat::times(&words).map_err(Failure::usage)?;
            arcstat::arcstat(client, output, verbose, times).await
        }
        StatCommand::Nfsstat { words } => nfs::nfsstat(client, output, &words).await,
        StatCommand::Nfsiostat { clients, disks, long, top, words } => {
            let times = repeat::times(&words).map_err(Failure::usage)?;
            // Without either option, both.
            let (clients, disks) = (clients || !disks, disks || !clients);
            let show = nfs::Show { clients, disks, long, top };
            nfs::nfsiostat(client, output, show, times).await
        }
    }
}

async fn run_locks(
    command: Option<LocksCommand>,
    client: &Client,
    output: Output,
) -> Result<(), Failure> {
    match command {
        None => locks::locks(client, output).await,
        Some(LocksCommand::Clear { force, address, name }) => {
            locks::clear(client, output, force, address, name).await
        }
    }
}

/// Destroys a dataset or snapshots.
async fn destroy(
    client: &Client,
    output: Output,
    wish: snapshot::Wish,
    name: String,
) -> Result<(), Failure> {
    if name.contains('@') {
        return snapshot::destroy(client, output, wish, name).await;
    }
    if name.contains('#') {
        return snapshot::destroy_bookmark(client, output, wish, name).await;
    }
    let snapshot::Wish { recursive, clones, force, dry_run, verbose } = wish;
    if dry_run || verbose {
        return Err(Failure::usage("-n and -v are for snapshots: DATASET@NAME"));
    }
    dataset::destroy(client, output, (recursive, clones), force, name).await
}

/// Renames a dataset or a snapshot.
async fn rename(
    client: &Client,
    output: Output,
    recursive: bool,
    name: String,
    new: String,
) -> Result<(), Failure> {
    if name.contains('@') {
        return snapshot::rename(client, output, recursive, name, &new).await;
    }
    if recursive {
        return Err(Failure::usage("-r is for snapshots: what lies below a dataset goes with it"));
    }
    dataset::rename(client, output, name, new).await
}

/// The daemon to ask.
///
/// # Errors
/// Half of what a daemon on another machine needs, and files that cannot be read.
pub fn client(api: &ApiArgs) -> Result<Client, Failure> {
    let own = match (&api.api_client_certificate, &api.api_client_key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => {
            let why = "--api-client-certificate and --api-client-key belong together";
            return Err(Failure::usage(why));
        }
    };
    match (&api.api, &api.api_certificate, &api.api_token) {
        (None, None, None) if own.is_none() => Ok(Client::new(&api.api_socket)),
        (Some(url), Some(certificate), Some(token)) => {
            let certificates = keys::read_certificates(certificate).map_err(Failure::usage)?;
            let token = keys::read_token(token).map_err(Failure::usage)?;
            let own = own.map(|(certificate, key)| Identity::read(certificate, key));
            let own = own.transpose().map_err(Failure::usage)?;
            Client::remote(url, certificates, token, own).map_err(Failure::usage)
        }
        _ => {
            let why = "a daemon on another machine needs --api, --api-certificate and --api-token";
            Err(Failure::usage(why))
        }
    }
}

fn wanted_import(args: ImportArgs) -> ImportRequest {
    ImportRequest {
        pool: args.pool.unwrap_or_default(),
        new_name: args.new_name,
        places: args.places,
        rewind: args.rewind,
        discard_log: args.discard_log,
        missing_log: args.missing_log,
        missing_vdev: args.missing_vdev,
        discard_unreadable: args.discard_unreadable,
        use_offline: args.use_offline,
        old_config: args.old_config,
        force: args.force,
    }
}

async fn run_pool(command: PoolCommand, client: &Client, output: Output) -> Result<(), Failure> {
    match command {
        PoolCommand::Create(args) => pool::create(client, output, args).await,
        PoolCommand::Add { force, dry_run, create_size, name, disks } => {
            let (held_until, properties) = (None, Vec::new());
            let wish =
                CreateArgs { force, dry_run, held_until, properties, create_size, name, disks };
            disks::add(client, output, wish).await
        }
        PoolCommand::Remove { name, disk } => disks::remove(client, output, &name, disk).await,
        PoolCommand::Replace { wait, force, create_size, name, disk, new } => {
            let request =
                ReplaceDisk { disk, new, force, create_bytes: create_size, held_until_s: None };
            disks::replace(client, output, &name, request, wait).await
        }
        PoolCommand::Attach { wait, force, create_size, name, disk, new } => {
            let new = Some(new);
            let request =
                ReplaceDisk { disk, new, force, create_bytes: create_size, held_until_s: None };
            disks::attach(client, output, &name, request, wait).await
        }
        PoolCommand::Detach { name, disk } => disks::detach(client, output, &name, disk).await,
        PoolCommand::Scrub { pause, stop, wait, name } => {
            scrub::scrub(client, output, &name, scrub::act(pause, stop), wait).await
        }
        PoolCommand::Trim(args) => free_space::trim(client, output, args).await,
        PoolCommand::Initialize(args) => free_space::initialize(client, output, args).await,
        PoolCommand::Wait { name } => disks::wait(client, output, &name).await,
        PoolCommand::Offline { temporary, name, disk } => {
            disks::offline(client, output, &name, OfflineDisk { disk, temporary }).await
        }
        PoolCommand::Online { wait, expand, force, name, disk } => {
            let request = OnlineDisk { disk, expand, force };
            disks::online(client, output, &name, request, wait).await
        }
        PoolCommand::Drill(args) => drill::drill(client, output, args).await,
        PoolCommand::Import(args) => import_or_scan(client, output, wanted_import(args)).await,
        PoolCommand::Export { force, name } => pool::export(client, output, &name, force).await,
        PoolCommand::Clear { name, disk } => pool::clear(client, output, &name, disk).await,
        PoolCommand::List { name } => pool::list(client, output, name).await,
        PoolCommand::Status { verbose, trim, initialize, problems, name } => {
            let show = status::Show { verbose, trim, initialize, problems };
            status::status(client, output, show, name).await
        }
        PoolCommand::History { long, all, internal, name } => {
            history::history(client, output, history::Show { long, all, internal }, name).await
        }
        PoolCommand::Events { name } => events::kept(client, output, &name).await,
        PoolCommand::Destroy { force, name } => pool::destroy(client, output, force, &name).await,
    }
}

impl Output {
    /// As the command line asks for it, in colours on a terminal.
    pub fn of(options: &Options) -> Output {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let &Options { json, script, exact, .. } = options;
        Output { json, script, exact, colour }
    }

    /// For lines that must stand out.
    pub fn red(self, text: &str) -> String {
        if !self.colour {
            return text.into();
        }
        let red = |line: &str| format!("{RED}{}{PLAIN}\n", line.trim_end_matches('\n'));
        text.split_inclusive('\n').map(red).collect()
    }

    /// Columns of the screen, if stdout is one.
    fn columns(self) -> Option<usize> {
        let size = std::io::stdout().is_terminal().then(crossterm::terminal::size)?.ok()?;
        // A terminal that does not know its size says 0.
        Some(usize::from(size.0)).filter(|columns| *columns > 0)
    }

    /// A time, for people to the minute, for scripts or exactly.
    pub fn minute(self, ns: u64) -> String {
        let text = time::text(ns);
        match (self.script || self.exact, text.get(..MINUTE)) {
            (false, Some(minute)) => format!("{minute}Z"),
            _ => text,
        }
    }

    /// A size, for people or exactly.
    pub fn size(self, bytes: u64) -> String {
        match self.exact {
            true => bytes.to_string(),
            false => size::human(bytes),
        }
    }

    /// Prints an answer: as JSON, or as text by `text`.
    ///
    /// # Errors
    /// As [`print`].
    pub fn answer<T: Serialize>(
        self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if !self.json {
            return print(&text(answer));
        }
        let mut json = serde_json::to_string_pretty(answer).map_err(Failure::failed)?;
        json.push('\n');
        print(&json)
    }

    /// A table, for people or scripts.
    pub(crate) fn table(self, table: &Table) -> String {
        match self.script {
            true => table.text(true),
            false => table.coloured(self.columns(), |line| self.red(line)),
        }
    }
}

/// Characters of `2026-11-26T07:00`.
const MINUTE: usize = 16;

/// Prints notes on stderr: they are no part of the answer.
pub fn tell(output: Output, notes: &[String]) {
    if !output.json {
        for note in notes {
            eprintln!("note: {}", shown(note));
        }
    }
}

/// Writes to stdout. A reader that stops reading (`| head`) is no failure.
///
/// # Errors
/// What cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(lines_shown(text).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write the answer: {error}")))
        }
        _ => Ok(()),
    }
}

/// Without a name, `pool import` lists the pools that it finds.
async fn import_or_scan(
    client: &Client,
    output: Output,
    request: ImportRequest,
) -> Result<(), Failure> {
    if !request.pool.is_empty() {
        return pool::import(client, output, request).await;
    }
    let places = request.places.clone();
    if request != (ImportRequest { places: places.clone(), ..ImportRequest::default() }) {
        return Err(Failure::usage("-f, and whatever drops something, needs the pool's name"));
    }
    pool::scan(client, output, places).await
}
