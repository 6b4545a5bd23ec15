//! Stores simulated trials on disk, so that a repeated run computes no trial again.
//!
//! A simulated trial depends on its variant, its seed and the program alone, and a hash of these is the
//! name of its entry. The variant is hashed as written and not by its meaning, because records repeat
//! the text. The program is its version and commit, or its bytes if it was built from changed or
//! unknown sources. An entry starts with the SHA-256 of the rest: one that does not match is
//! reported, removed and computed again; so entries need no sync. Folders, pipes and links in place
//! of entries stay untouched, and unfinished files of killed programs are removed after an hour.
//!
//! The cache has at most `MOST_BYTES`; the entries written longest ago are removed to free space,
//! but never those of the current run.

use std::collections::VecDeque;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use data_encoding::HEXLOWER;
use ring::digest::{Context, Digest, SHA256, SHA256_OUTPUT_LEN, digest};
use underload_disk::{self as disk, Access, NewFile};
use underload_record::schema::TrialRecord;

use crate::trial::{Trial, TrialData};

/// Maximum size of the cache on disk, bytes.
const MOST_BYTES: u64 = 4 << 30;
/// Maximum size of one entry, bytes. A larger trial is not stored: each run computes it again.
const MOST_ENTRY_BYTES: u64 = 256 << 20;
/// Increased with every change of an entry's layout.
const LAYOUT: u32 = 1;
const EXTENSION: &str = "trial";
/// An entry is written in some seconds: an older unfinished file belongs to a killed program.
const UNFINISHED_FOR: Duration = Duration::from_hours(1);

/// `trials` in the user's folder of caches.
fn folder() -> Result<PathBuf, CacheError> {
    Ok(disk::folders::cache().ok_or(CacheError::NoFolder)?.join("trials"))
}

pub(crate) struct Cache {
    folder: PathBuf,
    program: String,
    bytes: u64,
    most_bytes: u64,
    /// Entries of earlier runs, the one written longest ago first.
    earlier: VecDeque<(PathBuf, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

/// The reason why no cache is available, or why a trial is not stored.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("neither XDG_CACHE_HOME nor HOME nor LOCALAPPDATA names a folder")]
    NoFolder,
    #[error("{doing} {path}")]
    Disk { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("finding this program's own file")]
    Program(#[source] io::Error),
    #[error(transparent)]
    Trial(#[from] rmp_serde::encode::Error),
}

impl CacheError {
    fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { doing, path, source }
    }
}

/// The result of a lookup.
pub(crate) enum Found {
    Trial(Box<TrialData>),
    Nothing,
    /// An invalid entry, and why. It is removed if it is a file.
    Damaged(String),
}

impl Cache {
    /// Opens the user's cache, `underload/trials` in `$XDG_CACHE_HOME` or `~/.cache`.
    pub fn open(commit: &str) -> Result<Self, CacheError> {
        Self::in_folder(folder()?, program(commit)?, MOST_BYTES)
    }

    fn in_folder(folder: PathBuf, program: String, most_bytes: u64) -> Result<Self, CacheError> {
        fs::create_dir_all(&folder).map_err(CacheError::disk("creating", &folder))?;
        let mut found = entries(&folder).map_err(CacheError::disk("reading", &folder))?;
        found.sort();
        let earlier: VecDeque<_> = found.into_iter().map(|(_, path, size)| (path, size)).collect();
        let bytes = earlier.iter().map(|(_, size)| size).sum();
        Ok(Self { folder, program, bytes, most_bytes, earlier })
    }

    pub fn key(&self, trial: &Trial<'_>) -> Key {
        let content = format!(
            "{LAYOUT}\n{}\n{}\n{}\n{}",
            self.program, trial.seed, trial.keeps_curves, trial.variant.wording
        );
        Key(digest_text(content.as_bytes()))
    }

    /// Finds the trial with this name, and sets its index, variant and repeat to the values of
    /// `trial`.
    pub fn find(&self, key: &Key, trial: &Trial<'_>) -> Found {
        let path = self.path(key);
        let read = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(error) => Err(error.to_string()),
            // Opening a pipe would block until another program opens it for writing.
            Ok(metadata) if !metadata.is_file() => {
                return Found::Damaged(format!("{}: not a regular file; kept", path.display()));
            }
            Ok(metadata) => read_entry(&path, metadata.len()),
        };
        match read {
            Ok(mut data) => {
                let TrialRecord { index, variant, repeat, .. } = &mut data.record;
                (*index, *repeat) = (trial.index, trial.repeat);
                variant.clone_from(&trial.variant.name);
                data.samples.iter_mut().for_each(|sample| sample.trial = trial.index);
                data.series.iter_mut().for_each(|series| series.trial = trial.index);
                Found::Trial(Box::new(data))
            }
            Err(error) => {
                // If this fails, the new entry replaces it.
                let _ = fs::remove_file(&path);
                Found::Damaged(format!("{}: {error}", path.display()))
            }
        }
    }

    /// Stores a trial, completely or not at all. The run can continue after an error.
    pub fn store(&mut self, key: &Key, data: &TrialData) -> Result<(), CacheError> {
        let body = rmp_serde::to_vec_named(data)?;
        let size = (body.len() + SHA256_OUTPUT_LEN) as u64;
        if size > MOST_ENTRY_BYTES || !self.free_space(size) {
            return Ok(());
        }
        let path = self.path(key);
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(CacheError::disk("creating", parent))?;
        let sum = digest(&SHA256, &body);
        let whole = [sum.as_ref(), &body].concat();
        let written = NewFile::beside(&path, Access::Owner).and_then(|mut file| {
            io::Write::write_all(&mut file, &whole)?;
            file.replace_unsynced()
        });
        written.map_err(CacheError::disk("writing", &path))?;
        self.bytes += size;
        Ok(())
    }

    /// Removes entries of earlier runs until `size` bytes fit; returns false if they do not.
    fn free_space(&mut self, size: u64) -> bool {
        while self.bytes + size > self.most_bytes {
            let Some((path, freed)) = self.earlier.pop_front() else { return false };
            // Another run may have removed it.
            let _ = fs::remove_file(path);
            self.bytes = self.bytes.saturating_sub(freed);
        }
        true
    }

    /// Returns an entry's path: a folder of its first two letters, since large folders are slow.
    fn path(&self, key: &Key) -> PathBuf {
        let (folder, name) = key.0.split_at(2);
        self.folder.join(folder).join(name).with_extension(EXTENSION)
    }
}

/// Reads the trial of an entry; the error says why the entry is invalid.
fn read_entry(path: &Path, size: u64) -> Result<TrialData, String> {
    if size > MOST_ENTRY_BYTES {
        return Err("longer than any entry".to_owned());
    }
    let whole = fs::read(path).map_err(|error| error.to_string())?;
    let (sum, body) = whole.split_at_checked(SHA256_OUTPUT_LEN).ok_or("cut short")?;
    if digest(&SHA256, body).as_ref() != sum {
        return Err("its checksum does not match".to_owned());
    }
    let data: TrialData = rmp_serde::from_slice(body).map_err(|error| error.to_string())?;
    Ok(TrialData { outputs: Vec::new(), notes: Vec::new(), ..data })
}

fn entries(folder: &Path) -> io::Result<Vec<(SystemTime, PathBuf, u64)>> {
    let mut found = Vec::new();
    for group in fs::read_dir(folder)? {
        let group = group?.path();
        if !group.is_dir() {
            continue;
        }
        for entry in fs::read_dir(group)? {
            let entry = entry?;
            let path = entry.path();
            // Another run may remove it at the same time.
            let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
                continue;
            };
            let written = metadata.modified()?;
            if path.extension().is_some_and(|end| end == EXTENSION) {
                found.push((written, path, metadata.len()));
            } else if entry.file_name().to_string_lossy().starts_with(disk::UNFINISHED)
                && is_old(written)
            {
                // Another run may have removed it.
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(found)
}

fn is_old(written: SystemTime) -> bool {
    written.elapsed().is_ok_and(|age| age > UNFINISHED_FOR)
}

/// Whether a commit identifies the sources of a build.
fn is_known(commit: &str) -> bool {
    !commit.is_empty() && commit != "unknown" && !commit.ends_with("-dirty")
}

/// Identifies the program that computes results, by version and commit, or by the digest of its file.
pub fn program(commit: &str) -> Result<String, CacheError> {
    let version = env!("CARGO_PKG_VERSION");
    if is_known(commit) {
        return Ok(format!("{version} {commit}"));
    }
    let path = env::current_exe().map_err(CacheError::Program)?;
    let sum = digest_of(&path).map_err(CacheError::disk("reading", &path))?;
    Ok(format!("{version} {}", HEXLOWER.encode(sum.as_ref())))
}

/// Returns the SHA-256 of a file that need not fit in memory.
fn digest_of(path: &Path) -> io::Result<Digest> {
    let (mut file, mut context) = (fs::File::open(path)?, Context::new(&SHA256));
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut buffer) {
            Ok(0) => return Ok(context.finish()),
            Ok(read) => context.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns an identity of a module that another program loads, for
/// [`Settings::commit`](crate::Settings::commit): its commit, or a digest of its file if the commit
/// is unknown.
pub fn module_identity(commit: &str, module: &Path) -> Result<String, CacheError> {
    if is_known(commit) {
        return Ok(commit.to_owned());
    }
    let sum = digest_of(module).map_err(CacheError::disk("reading", module))?;
    Ok(format!("{commit}+{}", HEXLOWER.encode(sum.as_ref())))
}

/// Returns the SHA-256 in hexadecimal digits.
pub fn digest_text(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use underload_disk::faults;

    use underload_record::schema::{Sample, Series};
    use underload_scenario::{Scenario, Variant};

    use super::*;

    const SCENARIO: &str = r#"
        [path]
        up = "10mbit"
        up_queue = "fifo:limit=64KiB"
        [phases]
        load = "1s"
        [[flow]]
        kind = "probe"
        interval = "10ms"
    "#;

    fn variant(text: &str) -> Variant {
        Scenario::parse(text, "case").expect("a scenario").variants.remove(0)
    }

    fn trial(variant: &Variant, seed: u64) -> Trial<'_> {
        Trial { index: 7, variant, repeat: 3, seed, keeps_curves: true }
    }

    fn data(samples: usize) -> TrialData {
        TrialData {
            record: TrialRecord { index: 1, seed: 5, ..TrialRecord::default() },
            samples: vec![Sample { rtt_ns: Some(17), ..Sample::default() }; samples],
            series: vec![Series { name: "up.backlog".into(), ..Series::default() }],
            outputs: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn open(folder: &Path, program: &str, most_bytes: u64) -> Cache {
        Cache::in_folder(folder.to_owned(), program.to_owned(), most_bytes).expect("a cache")
    }

    #[test]
    fn a_cached_trial_is_returned_with_its_new_index() {
        let folder = tempfile::tempdir().expect("a folder");
        let variant = variant(SCENARIO);
        let trial = trial(&variant, 5);
        let mut cache = open(folder.path(), "1", MOST_BYTES);
        let key = cache.key(&trial);
        assert!(matches!(cache.find(&key, &trial), Found::Nothing));
        cache.store(&key, &data(3)).expect("stored");
        let Found::Trial(found) = open(folder.path(), "1", MOST_BYTES).find(&key, &trial) else {
            panic!("it is kept")
        };
        assert_eq!((found.record.index, found.record.repeat, found.record.seed), (7, 3, 5));
        assert_eq!((found.record.variant.as_str(), found.samples.len()), ("default", 3));
        assert!(found.samples.iter().all(|sample| sample.trial == 7));
        assert_eq!((found.series[0].trial, found.samples[0].rtt_ns), (7, Some(17)));
    }

    #[test]
    fn every_input_of_a_trial_changes_its_cache_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, other) = (variant(SCENARIO), variant(&SCENARIO.replace("64KiB", "65KiB")));
        let cache = open(folder.path(), "1", MOST_BYTES);
        let key = cache.key(&trial(&first, 5));
        assert_eq!(cache.key(&Trial { index: 9, repeat: 9, ..trial(&first, 5) }), key);
        let bare = Trial { keeps_curves: false, ..trial(&first, 5) };
        let others = [
            cache.key(&trial(&first, 6)),
            cache.key(&trial(&other, 5)),
            cache.key(&bare),
            open(folder.path(), "2", MOST_BYTES).key(&trial(&first, 5)),
        ];
        assert!(!others.contains(&key));
    }

    #[test]
    fn a_damaged_entry_is_named_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let variant = variant(SCENARIO);
        let trial = trial(&variant, 5);
        let mut cache = open(folder.path(), "1", MOST_BYTES);
        let key = cache.key(&trial);
        let spoil: [fn(&mut Vec<u8>); 3] =
            [|bytes| *bytes.last_mut().expect("a byte") ^= 1, |bytes| bytes[0] ^= 1, Vec::clear];
        for spoil in spoil {
            cache.store(&key, &data(3)).expect("stored");
            let path = cache.path(&key);
            let mut bytes = fs::read(&path).expect("the entry");
            spoil(&mut bytes);
            fs::write(&path, bytes).expect("spoilt");
            let Found::Damaged(why) = cache.find(&key, &trial) else { panic!("believed") };
            assert!(why.contains(path.to_str().expect("a plain path")), "{why}");
            assert!(matches!(cache.find(&key, &trial), Found::Nothing));
        }
    }

    #[test]
    fn directories_links_and_pipes_in_the_cache_are_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let variant = variant(SCENARIO);
        let mut cache = open(folder.path(), "1", MOST_BYTES);
        let [directory, link, pipe] = [1, 2, 3].map(|seed| cache.key(&trial(&variant, seed)));
        let paths = [&directory, &link, &pipe].map(|key| cache.path(key));
        for path in &paths {
            fs::create_dir_all(path.parent().expect("a group")).expect("made");
        }
        fs::create_dir(&paths[0]).expect("a directory");
        std::os::unix::fs::symlink("/dev/zero", &paths[1]).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(&paths[2]).status();
        assert!(made.expect("coreutils").success());
        for key in [&directory, &link, &pipe] {
            assert!(matches!(cache.find(key, &trial(&variant, 0)), Found::Damaged(_)));
            cache.store(key, &data(3)).expect("the cache goes on");
        }
        assert!(paths.iter().all(|path| path.symlink_metadata().is_ok_and(|it| !it.is_file())));
        assert_eq!(open(folder.path(), "1", MOST_BYTES).bytes, 0, "they are not counted");
    }

    #[test]
    fn files_of_killed_programs_are_removed_once_they_are_old() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("ab");
        fs::create_dir(&group).expect("a group");
        let old = SystemTime::now() - Duration::from_hours(2);
        for (name, time) in
            [(".underload-old", old), ("foreign", old), (".underload-new", SystemTime::now())]
        {
            let file = fs::File::create(group.join(name)).expect("a file");
            file.set_modified(time).expect("its time");
        }
        open(folder.path(), "1", MOST_BYTES);
        let left: Vec<_> = faults::tree(&group).into_keys().collect();
        assert_eq!(left, [".underload-new", "foreign"].map(PathBuf::from));
    }

    #[test]
    fn after_any_disk_fault_an_entry_is_complete_or_rejected() {
        let variant = variant(SCENARIO);
        let action = |root: &Path| {
            let mut cache = open(&root.join("cache"), "1", MOST_BYTES);
            cache.store(&cache.key(&trial(&variant, 5)), &data(3))
        };
        faults::at_every_step(&faults::Tree::new(), action, |fault, root, outcome| {
            let left = faults::tree(root);
            for tree in outcome.after_power_cut.iter().chain([&left]) {
                faults::restore(root, tree);
                let cache = open(&root.join("cache"), "1", MOST_BYTES);
                let trial = trial(&variant, 5);
                if let Found::Trial(found) = cache.find(&cache.key(&trial), &trial) {
                    assert_eq!(found.samples.len(), 3, "{fault:?}");
                }
            }
        });
    }

    #[test]
    fn the_cache_stays_within_its_limit_by_removing_older_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let variant = variant(SCENARIO);
        let mut cache = open(folder.path(), "1", MOST_BYTES);
        let early = cache.key(&trial(&variant, 1));
        cache.store(&early, &data(1_000)).expect("stored");
        let most = cache.bytes * 3 / 2;
        let mut cache = open(folder.path(), "1", most);
        let (second, third) = (cache.key(&trial(&variant, 2)), cache.key(&trial(&variant, 3)));
        cache.store(&second, &data(1_000)).expect("stored");
        cache.store(&third, &data(1_000)).expect("left out");
        let is_kept = |key| !matches!(cache.find(key, &trial(&variant, 0)), Found::Nothing);
        assert_eq!([&early, &second, &third].map(is_kept), [false, true, false]);
        assert!(open(folder.path(), "1", most).bytes <= most);
    }
}
