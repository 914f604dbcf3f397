//! Ctrl-C: ends the demo at any time and leaves nothing behind; at the demo's end, it is the way
//! out.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Watches for SIGINT and SIGTERM.
pub struct Interrupt {
    signalled: Receiver<()>,
    /// The directory to remove when a signal ends the program; `None` while the demo waits for the
    /// signal.
    leftover: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// Starts watching.
    pub fn watch() -> Self {
        let (sender, signalled) = channel();
        let leftover = Arc::new(Mutex::new(None::<PathBuf>));
        let shared = Arc::clone(&leftover);
        thread::spawn(move || {
            if wait_for_signal().is_err() {
                // Without a handler, a signal ends the program like any other.
                return;
            }
            let leftover = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
            match leftover {
                // The programs that were started die with this one.
                Some(directory) => {
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

    /// From now on a signal removes `directory` and ends the program.
    pub fn clears(&self, directory: &Path) {
        *self.leftover.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(directory.to_path_buf());
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
