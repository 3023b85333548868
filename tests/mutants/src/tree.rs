//! A copy of the crate's source, to be spoilt and mended.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use crate::Mutant;

/// What the build needs. Whatever else there is changes nothing.
const NEEDED: [&str; 7] = ["Cargo.toml", "Cargo.lock", "README.md", "benches/machine", "examples", "src", "tests"];
/// What is fetched or built there, and large.
const LEFT_OUT: [&str; 2] = ["node_modules", "target"];

/// The copy.
#[derive(Debug)]
pub(crate) struct Tree {
    crate_root: PathBuf,
    copy: PathBuf,
}

impl Tree {
    /// Makes the copy like the original. What is so already is not touched: cargo would build it anew.
    pub(crate) fn new(crate_root: PathBuf, copy: PathBuf) -> anyhow::Result<Self> {
        let tree = Self { crate_root, copy };
        let wanted = files_below(&tree.crate_root)?;
        for stale in files_below(&tree.copy)?.difference(&wanted) {
            fs::remove_file(tree.copy.join(stale))?;
        }
        wanted.iter().try_for_each(|file| tree.restore(file))?;
        Ok(tree)
    }

    /// Where the copy is.
    pub(crate) fn root(&self) -> &Path {
        &self.copy
    }

    /// Makes all edits of the mutant; they are undone when the result is dropped.
    pub(crate) fn spoil(&self, mutant: &Mutant) -> anyhow::Result<Spoilt<'_>> {
        let spoilt = Spoilt { tree: self, mutant: *mutant };
        for edit in mutant.edits {
            let path = self.copy.join(edit.file);
            let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", edit.file))?;
            let found = text.matches(edit.from).count();
            ensure!(found == 1, "{} has this {found} times instead of once:\n{}", edit.file, edit.from);
            ensure!(edit.from != edit.to, "an edit of {} changes nothing", edit.file);
            fs::write(path, text.replacen(edit.from, edit.to, 1))?;
        }
        Ok(spoilt)
    }

    fn restore(&self, file: &Path) -> anyhow::Result<()> {
        let (original, copy) = (fs::read(self.crate_root.join(file))?, self.copy.join(file));
        if fs::read(&copy).is_ok_and(|known| known == original) {
            return Ok(());
        }
        fs::create_dir_all(copy.parent().context("every file is in a folder")?)?;
        Ok(fs::write(copy, original)?)
    }
}

/// A mutant in the copy.
#[must_use = "the edits are undone when it is dropped"]
pub(crate) struct Spoilt<'a> {
    tree: &'a Tree,
    mutant: Mutant,
}

impl Drop for Spoilt<'_> {
    fn drop(&mut self) {
        for edit in self.mutant.edits {
            // What cannot be mended now is mended by the next copy.
            let _ = self.tree.restore(Path::new(edit.file));
        }
    }
}

fn files_below(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut left: Vec<_> = NEEDED.iter().map(PathBuf::from).collect();
    while let Some(next) = left.pop() {
        let path = root.join(&next);
        if path.is_file() {
            files.insert(next);
        } else if path.is_dir() {
            for entry in fs::read_dir(path)? {
                let name = entry?.file_name();
                if LEFT_OUT.iter().all(|left_out| *left_out != name) {
                    left.push(next.join(name));
                }
            }
        }
    }
    Ok(files)
}
