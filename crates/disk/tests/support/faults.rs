//! A file system that fails where a test wants it to, and that simulates power cuts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use super::Step;

/// A fault at the step with this number, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full at this step only.
    NoSpaceOnce(usize),
    /// The disk is full at this and all later steps that need space.
    NoSpaceFrom(usize),
    /// The program is killed before this step: no later step happens, not even a clean-up.
    Kill(usize),
}

/// Content of a directory: a file's bytes, or `None` for a directory.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The outcome of an action with a fault.
#[derive(Debug)]
pub struct Outcome<T> {
    pub result: T,
    /// Whether the action reached the fault.
    pub is_hit: bool,
    /// Possible contents of the disk after a power cut at the end: only what was synced; the
    /// present names with the synced bytes; and, for each changed name, what was synced with that
    /// name changed.
    pub after_power_cut: Vec<Tree>,
}

/// Runs an action on files below `root`, in this thread, with a fault.
///
/// # Panics
/// If `root` cannot be read.
pub fn with<T>(root: &Path, fault: Fault, action: impl FnOnce() -> T) -> Outcome<T> {
    let state = State { fault, taken: 0, is_hit: false, disk: Disk::new(root) };
    STATE.with(|place| *place.borrow_mut() = Some(state));
    let result = action();
    let state = STATE.with(|place| place.borrow_mut().take()).expect("what was put there");
    Outcome { result, is_hit: state.is_hit, after_power_cut: state.disk.after_power_cut() }
}

/// Runs an action on a directory that contains `before`, with every kind of fault at every step,
/// and calls `judge` with the directory after each. The last run of each kind has no fault.
///
/// # Panics
/// If the directory cannot be made.
pub fn at_every_step<T>(
    before: &Tree,
    action: impl Fn(&Path) -> T,
    mut judge: impl FnMut(Fault, &Path, &Outcome<T>),
) {
    for fault in [Fault::NoSpaceOnce, Fault::NoSpaceFrom, Fault::Kill] {
        for number in 0.. {
            let directory = tempdir_in_memory().expect("a directory");
            let root = directory.path().join("root");
            restore(&root, before);
            let outcome = with(&root, fault(number), || action(&root));
            judge(fault(number), &root, &outcome);
            if !outcome.is_hit {
                assert!(number > 2, "the premise: an action of several steps");
                break;
            }
        }
    }
}

/// A temporary directory that others cannot enter, as secrets require.
pub fn private_tempdir() -> io::Result<tempfile::TempDir> {
    tempdir_in(&std::env::temp_dir())
}

/// Like [`private_tempdir`], in memory if possible: thousands of syncs of a real disk take minutes.
pub fn tempdir_in_memory() -> io::Result<tempfile::TempDir> {
    tempdir_in(Path::new("/dev/shm")).or_else(|_| private_tempdir())
}

fn tempdir_in(place: &Path) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir_in(place)
}

/// Returns everything below a directory.
///
/// # Panics
/// If it cannot be read.
pub fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(root.join(&directory)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            if entry.file_type().expect("its type").is_dir() {
                waiting.push(path.clone());
                found.insert(path, None);
            } else {
                found.insert(path, Some(fs::read(entry.path()).expect("a file")));
            }
        }
    }
    found
}

/// Replaces the content of a directory with a tree.
///
/// # Panics
/// If it cannot be written.
pub fn restore(root: &Path, tree: &Tree) {
    if root.exists() {
        fs::remove_dir_all(root).expect("the directory of a test");
    }
    // Secrets are refused if others can read them.
    let make = |path: &Path| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.expect("a directory");
    };
    make(root);
    for (path, content) in tree {
        match content {
            None => make(&root.join(path)),
            Some(bytes) => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).mode(0o600).open(root.join(path));
                file.and_then(|mut file| file.write_all(bytes)).expect("a file");
            }
        }
    }
}

struct State {
    fault: Fault,
    taken: usize,
    is_hit: bool,
    disk: Disk,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

pub(super) fn pass<T>(step: Step<'_>, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    STATE.with(|place| place.borrow_mut().as_mut().map_or(Ok(()), |state| state.before(step)))?;
    let taken = take()?;
    STATE.with(|place| {
        if let Some(state) = place.borrow_mut().as_mut() {
            state.disk.after(step);
        }
    });
    Ok(taken)
}

impl State {
    fn before(&mut self, step: Step<'_>) -> io::Result<()> {
        let number = self.taken;
        self.taken += 1;
        let frees = matches!(step, Step::Remove(_) | Step::RemoveDirectory(_));
        let error = match self.fault {
            Fault::NoSpaceOnce(at) if number == at && !frees => io::ErrorKind::StorageFull,
            Fault::NoSpaceFrom(at) if number >= at && !frees => io::ErrorKind::StorageFull,
            Fault::Kill(at) if number >= at => io::ErrorKind::Other,
            Fault::NoSpaceOnce(at) | Fault::NoSpaceFrom(at) => {
                self.is_hit |= number >= at;
                return Ok(());
            }
            Fault::Kill(_) => return Ok(()),
        };
        self.is_hit = true;
        Err(error.into())
    }
}

/// The synced state of a real directory. Files are identified by their inodes, and kept open so
/// that no inode is reused.
struct Disk {
    root: PathBuf,
    names: BTreeMap<PathBuf, Names>,
    contents: BTreeMap<u64, Vec<u8>>,
    held: Vec<File>,
    known: BTreeSet<u64>,
}

/// Names in a directory: inode, and whether it is a directory.
type Names = BTreeMap<OsString, (u64, bool)>;

impl Disk {
    fn new(root: &Path) -> Self {
        let (names, contents) = (BTreeMap::new(), BTreeMap::new());
        let (held, known) = (Vec::new(), BTreeSet::new());
        let mut disk = Self { root: root.to_owned(), names, contents, held, known };
        disk.sync_names(root);
        for (path, content) in tree(root) {
            let path = root.join(path);
            match content {
                None => disk.sync_names(&path),
                Some(_) => disk.sync_content(&path),
            }
        }
        disk
    }

    fn after(&mut self, step: Step<'_>) {
        match step {
            Step::Sync(path) => self.sync_content(path),
            Step::SyncDirectory(path) => self.sync_names(path),
            _ => {}
        }
    }

    fn hold(&mut self, path: &Path) -> u64 {
        let file = File::open(path).expect("what was synced can be opened");
        let inode = file.metadata().expect("its facts").ino();
        if self.known.insert(inode) {
            self.held.push(file);
        }
        inode
    }

    fn sync_content(&mut self, path: &Path) {
        if path.starts_with(&self.root) {
            let inode = self.hold(path);
            self.contents.insert(inode, fs::read(path).expect("what was synced can be read"));
        }
    }

    fn sync_names(&mut self, directory: &Path) {
        if directory.starts_with(&self.root) {
            let names = self.names_now(directory);
            self.names.insert(directory.to_owned(), names);
        }
    }

    fn names_now(&mut self, directory: &Path) -> Names {
        let Ok(entries) = fs::read_dir(directory) else { return Names::new() };
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let named = |path: PathBuf| {
            let name = path.file_name()?.to_owned();
            Some((name, (self.hold(&path), path.is_dir())))
        };
        paths.filter_map(named).collect()
    }

    fn after_power_cut(mut self) -> Vec<Tree> {
        let mut now = self.names.clone();
        let below = tree(&self.root);
        let directories = below.iter().filter(|(_, content)| content.is_none());
        let paths: Vec<PathBuf> = directories.map(|(path, _)| self.root.join(path)).collect();
        for directory in paths.into_iter().chain([self.root.clone()]) {
            let names = self.names_now(&directory);
            now.insert(directory, names);
        }
        let mut trees = vec![self.tree(&self.names), self.tree(&now)];
        for (directory, names) in &now {
            let synced = self.names.get(directory).cloned().unwrap_or_default();
            let all: BTreeSet<&OsString> = names.keys().chain(synced.keys()).collect();
            for name in all.into_iter().filter(|name| names.get(*name) != synced.get(*name)) {
                let mut one = synced.clone();
                match names.get(name) {
                    Some(entry) => drop(one.insert(name.clone(), *entry)),
                    None => drop(one.remove(name)),
                }
                let mut changed = self.names.clone();
                changed.insert(directory.clone(), one);
                trees.push(self.tree(&changed));
            }
        }
        trees.sort();
        trees.dedup();
        trees
    }

    fn tree(&self, names: &BTreeMap<PathBuf, Names>) -> Tree {
        let mut found = Tree::new();
        let mut waiting = vec![self.root.clone()];
        while let Some(directory) = waiting.pop() {
            for (name, (inode, is_directory)) in names.get(&directory).into_iter().flatten() {
                let path = directory.join(name);
                let content = (!is_directory).then(|| self.contents.get(inode).cloned());
                let below = path.strip_prefix(&self.root).expect("it is below the root");
                found.insert(below.to_owned(), content.map(Option::unwrap_or_default));
                if *is_directory {
                    waiting.push(path);
                }
            }
        }
        found
    }
}
