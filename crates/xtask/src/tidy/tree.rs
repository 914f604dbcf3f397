//! The workspace's own files: sources, manifests, pages.

use std::fs;
use std::path::Path;

/// One text file.
#[derive(Debug, Clone)]
pub struct File {
    /// Path from the workspace's root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// All files, by path.
#[derive(Debug, Default)]
pub struct Tree {
    /// In order of their paths.
    pub files: Vec<File>,
}

/// Directories with hand-written text. The rest is built, fetched or git's.
const DIRECTORIES: [&str; 4] = ["bench", "crates", "docs", "fuzz"];
/// Directories that are skipped wherever they are.
const SKIPPED: [&str; 3] = ["corpus", "node_modules", "target"];

impl Tree {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        for directory in DIRECTORIES {
            let path = root.join(directory);
            if path.is_dir() {
                tree.walk(&path, directory)?;
            }
        }
        for entry in entries(root)? {
            tree.add(&root.join(&entry), &entry)?;
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, directory: &Path, name: &str) -> Result<(), String> {
        for entry in entries(directory)? {
            let (path, name) = (directory.join(&entry), format!("{name}/{entry}"));
            if !path.is_dir() {
                self.add(&path, &name)?;
            } else if !SKIPPED.contains(&entry.as_str()) && !entry.starts_with('.') {
                self.walk(&path, &name)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: &str) -> Result<(), String> {
        let known = [".rs", ".md", "Cargo.toml", "Makefile"].iter().any(|end| name.ends_with(end));
        if known && path.is_file() {
            let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
            self.files.push(File { path: name.to_string(), text });
        }
        Ok(())
    }

    /// The file at a path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn entries(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("{}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}
