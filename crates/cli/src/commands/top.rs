//! `aquifer top`: VM disks by load, on the whole screen, until somebody ends it.
//!
//! What holds: the terminal is as it was before, however this ends ([`screen`]). The daemon is
//! asked beside the screen, so keys work while it does not answer; what is shown then says so.

mod screen;
mod view;

use std::io::{IsTerminal, Read};
use std::time::Duration;

use aquifer_api::client::Client;
use aquifer_api::{NfsQuery, NfsStat};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::sleep;

use super::Output;
use crate::failure::Failure;
use screen::Screen;
pub use view::Sort;
use view::View;

/// Arguments of `top`: what is shown first.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Sort by this.
    #[arg(short = 's', long, value_enum, default_value_t = Sort::Ops)]
    sort: Sort,
    /// Only disks of datasets whose names have this in them.
    #[arg(short = 'd', long, value_name = "TEXT", default_value = "")]
    dataset: String,
}

pub(super) async fn top(client: &Client, output: Output, args: TopArgs) -> Result<(), Failure> {
    let mut view = View::new(args.sort, args.dataset);
    let is_watched = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_watched && !output.json && !output.script {
        return watch(client, view).await;
    }
    view.take(client.ask(&NfsQuery).await?);
    sleep(EVERY).await;
    view.take(client.ask(&NfsQuery).await?);
    output.answer(&view.rows(), |_| view.table(output))
}

/// Shows what changes until a key or a signal ends it.
async fn watch(client: &Client, mut view: View) -> Result<(), Failure> {
    let mut ends = Vec::new();
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()] {
        ends.push(signal(kind).map_err(Failure::failed)?);
    }
    let mut resized = signal(SignalKind::window_change()).map_err(Failure::failed)?;
    let screen = Screen::enter().map_err(Failure::failed)?;
    let (mut answers, mut keys) = (asked(client.clone()), typed());
    screen.draw(&view).map_err(Failure::failed)?;
    let [terminate, hang_up, interrupt] = &mut ends[..] else { return Ok(()) };
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = resized.recv() => {}
            answer = answers.recv() => match answer {
                Some(Ok(stat)) => view.take(stat),
                Some(Err(why)) => view.problem(why),
                None => return Ok(()),
            },
            key = keys.recv() => match key {
                Some(key) if view.press(key) => {}
                // The terminal has gone, or the user wants to.
                _ => return Ok(()),
            },
        }
        screen.draw(&view).map_err(Failure::failed)?;
    }
}

/// Asks the daemon each second. A late answer is waited for.
fn asked(client: Client) -> Receiver<Result<NfsStat, String>> {
    let (sender, answers) = channel(1);
    tokio::spawn(async move {
        loop {
            let answer = client.ask(&NfsQuery).await.map_err(|error| error.to_string());
            if sender.send(answer).await.is_err() {
                return;
            }
            sleep(EVERY).await;
        }
    });
    answers
}

/// The bytes that are typed. The thread ends with the process: nothing else ends a read.
fn typed() -> Receiver<u8> {
    let (sender, keys) = channel(64);
    std::thread::spawn(move || {
        for byte in std::io::stdin().lock().bytes() {
            let Ok(byte) = byte else { return };
            if sender.blocking_send(byte).is_err() {
                return;
            }
        }
    });
    keys
}

const EVERY: Duration = Duration::from_secs(1);
