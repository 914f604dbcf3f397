//! libnfs's command line tools, on `nfs://` URLs or, for one side of a copy, local paths.

use aquifer_rig::process::Outcome;

use super::Clients;
use crate::Result;

impl Clients {
    /// `nfs-ls -s URL`: the directory in the form of `ls -l`, with a summary.
    ///
    /// # Errors
    /// [`crate::Error::MissingTool`], [`crate::Error::Timeout`].
    pub fn nfs_ls(&self, url: &str) -> Result<Outcome> {
        self.run("nfs-ls", &["-s", url])
    }

    /// `nfs-cp FROM TO`.
    ///
    /// # Errors
    /// [`crate::Error::MissingTool`], [`crate::Error::Timeout`].
    pub fn nfs_cp(&self, from: &str, to: &str) -> Result<Outcome> {
        self.run("nfs-cp", &[from, to])
    }

    /// `nfs-cat URL`: the file's content is the outcome's standard output.
    ///
    /// # Errors
    /// [`crate::Error::MissingTool`], [`crate::Error::Timeout`].
    pub fn nfs_cat(&self, url: &str) -> Result<Outcome> {
        self.run("nfs-cat", &[url])
    }
}
