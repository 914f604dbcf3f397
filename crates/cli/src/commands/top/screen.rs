//! The terminal while the whole screen is ours.
//!
//! What holds: when [`Screen`] is dropped, or anything panics, the terminal has its modes, its
//! screen and its cursor again.

use std::io::{self, Write};
use std::sync::Once;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};

use super::view::View;

/// The whole screen.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// Takes it.
    pub fn enter() -> io::Result<Screen> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        let screen = Screen(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws all lines, in one write: nothing flickers.
    pub fn draw(&self, view: &View) -> io::Result<()> {
        let (columns, rows) = size().unwrap_or((80, 24));
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        let mut out = Vec::new();
        for (row, line) in (0..).zip(view.lines(columns, rows)) {
            execute!(out, MoveTo(0, row))?;
            out.extend_from_slice(line.as_bytes());
            execute!(out, Clear(ClearType::UntilNewLine))?;
        }
        execute!(out, Clear(ClearType::FromCursorDown))?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back. Nothing more can be done if that fails.
fn leave() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
