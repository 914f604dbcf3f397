//! The command line, shaped like `zpool` and `zfs`: commands that ask a daemon by its API, and know
//! nothing else of it.

mod args;
mod commands;
mod completion;
mod failure;
mod hints;
mod table;

pub use args::{Command, Options};
pub use commands::{Output, client, print, run, tell};
pub use completion::completing;
pub use failure::Failure;
pub use hints::hint;
