//! Ctrl-C: ends the demo at any time and leaves nothing behind; at the demo's end, it is the way
//! out.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use aquifer_rig::removable;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::stage::SLOT;

/// Watches for SIGINT and SIGTERM.
pub struct Interrupt {
    signalled: Receiver<()>,
    /// Leftovers to remove when a signal ends the program; `None` while the demo waits for the
    /// signal.
    leftover: Arc<Mutex<Option<Leftover>>>,
}

/// Remains of the demo on the machine if nobody removes them.
struct Leftover {
    directory: PathBuf,
    socket: PathBuf,
}

impl Interrupt {
    /// Starts watching.
    pub fn watch() -> Self {
        let (sender, signalled) = channel();
        let leftover = Arc::new(Mutex::new(None::<Leftover>));
        let shared = Arc::clone(&leftover);
        thread::spawn(move || {
            if wait_for_signal().is_err() {
                // Without a handler, a signal ends the program like any other.
                return;
            }
            let leftover = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
            match leftover {
                // The programs that were started die with this one.
                Some(Leftover { directory, socket }) => {
                    let _ = std::fs::remove_file(socket);
                    removable::take_away(&directory.join(SLOT));
                    let _ = std::fs::remove_dir_all(directory);
                    std::process::exit(130);
                }
                None => {
                    let _ = sender.send(());
                }
            }
        });
        Self { signalled, leftover }
    }

    /// From now on a signal removes these and ends the program.
    pub fn clears(&self, directory: &Path, socket: &Path) {
        let (directory, socket) = (directory.to_path_buf(), socket.to_path_buf());
        *self.leftover.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Leftover { directory, socket });
    }

    /// Waits for a signal.
    pub fn wait(&self) {
        self.leftover.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.signalled.recv();
    }
}

fn wait_for_signal() -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}
