//! A file of lines that grows at its end. Synced lines survive a kill and a power cut; an
//! incomplete line is cut off.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{Access, GrowingFile, create_new, directory_of, reopen, sync_directory, write_whole};

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    access: Access,
    /// `None` before the first line and after a rewrite.
    file: Option<GrowingFile>,
    /// Bytes of complete lines.
    bytes: u64,
    /// Whether an incomplete line may follow them.
    is_torn: bool,
}

/// Lines of a journal.
#[derive(Debug, Default)]
pub struct Lines {
    content: Vec<u8>,
    /// Bytes of complete lines.
    whole: usize,
}

impl Journal {
    /// Opens a journal and reads its lines. A missing file is created with the first line.
    ///
    /// # Errors
    /// See [`Lines::read`].
    pub fn open(path: &Path, bytes_max: u64, access: Access) -> io::Result<(Self, Lines)> {
        let lines = Lines::read(path, bytes_max)?;
        let (bytes, is_torn) = (lines.whole as u64, lines.is_torn());
        Ok((Self { path: path.to_owned(), access, file: None, bytes, is_torn }, lines))
    }

    /// Creates a journal with a first line, durably.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the file exists.
    pub fn create(path: &Path, line: &[u8], access: Access) -> io::Result<Self> {
        let mut journal = Self::over(create_new(path, access)?, 0);
        journal.access = access;
        journal.append_synced(line)?;
        sync_directory(directory_of(path))?;
        Ok(journal)
    }

    /// A journal in an open file with `bytes` bytes of complete lines.
    pub fn over(file: GrowingFile, bytes: u64) -> Self {
        let path = file.path.clone();
        Self { path, access: Access::Usual, file: Some(file), bytes, is_torn: false }
    }

    /// Bytes of complete lines.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether an incomplete line could not be cut off. The next append tries again.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Appends a line with its line break; cuts it off after an error.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.cut()?;
        }
        let written = self.file().and_then(|file| file.write_all(line));
        if written.is_ok() {
            self.bytes += line.len() as u64;
        } else {
            self.is_torn = true;
            // The caller receives the error of the write.
            let _ = self.cut();
        }
        written
    }

    /// Appends a line and syncs it; cuts it off after an error.
    pub fn append_synced(&mut self, line: &[u8]) -> io::Result<()> {
        let before = self.bytes;
        self.append(line)?;
        let synced = self.sync();
        if synced.is_err() {
            (self.bytes, self.is_torn) = (before, true);
            let _ = self.cut();
        }
        synced
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), GrowingFile::sync)
    }

    /// Replaces all lines of the file with `lines`. After an error the file has the old or the new
    /// lines.
    pub fn rewrite(&mut self, lines: &[u8]) -> io::Result<()> {
        // The next line reopens the file that has the name by then.
        self.file = None;
        let written = write_whole(&self.path, lines, self.access);
        let found = match &written {
            Ok(()) => (lines.len() as u64, false),
            Err(_) => {
                let found = Lines::read(&self.path, u64::MAX)?;
                (found.whole as u64, found.is_torn())
            }
        };
        (self.bytes, self.is_torn) = found;
        written
    }

    fn file(&mut self) -> io::Result<&mut GrowingFile> {
        let file = match self.file.take() {
            Some(file) => file,
            None => match reopen(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let file = create_new(&self.path, self.access)?;
                    sync_directory(directory_of(&self.path))?;
                    file
                }
                file => file?,
            },
        };
        Ok(self.file.insert(file))
    }

    fn cut(&mut self) -> io::Result<()> {
        let bytes = self.bytes;
        self.file()?.cut(bytes)?;
        self.is_torn = false;
        Ok(())
    }
}

impl Lines {
    /// Reads a journal. A missing file has no lines.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] if the file has more than `bytes_max` bytes.
    pub fn read(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file?,
        };
        let mut content = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(content.into())
    }

    /// Returns the complete lines without their line breaks.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.content[..self.whole].split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| &line[..line.len() - 1])
    }

    /// Whether an incomplete line follows, because of a kill or a power cut.
    pub fn is_torn(&self) -> bool {
        self.whole < self.content.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }
}

impl From<Vec<u8>> for Lines {
    fn from(content: Vec<u8>) -> Self {
        let end = content.iter().rposition(|byte| *byte == b'\n');
        Self { whole: end.map_or(0, |end| end + 1), content }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::faults::{self, Fault, Tree};

    fn open(root: &Path) -> (Journal, Vec<String>) {
        let (journal, lines) = Journal::open(&root.join("log"), 1 << 20, Access::Owner).unwrap();
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        (journal, lines.iter().map(text).collect())
    }

    /// Lines that were reported to be on the disk, and lines that may be.
    #[derive(Debug, Default)]
    struct Progress {
        synced: Vec<String>,
        tried: Vec<String>,
    }

    fn write(root: &Path) -> Progress {
        let mut progress = Progress::default();
        let Ok((mut journal, _)) = Journal::open(&root.join("log"), 1 << 20, Access::Owner) else {
            return progress;
        };
        for number in 0..4 {
            if number == 2 {
                let _ = journal.rewrite(b"old\nmore\n");
            }
            let line = format!("line {number}");
            progress.tried.push(line.clone());
            if journal.append_synced(format!("{line}\n").as_bytes()).is_ok() {
                progress.synced.push(line);
            }
        }
        progress
    }

    #[test]
    fn synced_lines_outlive_every_fault_and_a_torn_one_harms_no_other() {
        let old = b"old\nmore\nhal".to_vec();
        let before = Tree::from([(PathBuf::from("log"), Some(old))]);
        faults::at_every_step(&before, write, |fault, root, outcome| {
            let left = faults::tree(root);
            let cuts: &[Tree] = match fault {
                Fault::Kill(_) => &outcome.after_power_cut,
                _ => &[],
            };
            let progress = &outcome.result;
            for tree in cuts.iter().chain([&left]) {
                faults::restore(root, tree);
                let (mut journal, lines) = open(root);
                assert_eq!(&lines[..2], ["old", "more"], "{fault:?}: {lines:?}");
                // The rewrite removes the first two lines, or fails and leaves them.
                let is_there = |line: &&String| lines.contains(line) || line.as_str() < "line 2";
                assert!(progress.synced.iter().all(|line| is_there(&line)), "{fault:?}: {lines:?}");
                assert!(lines[2..].iter().all(|line| progress.tried.contains(line)), "{lines:?}");
                journal.append_synced(b"last\n").unwrap();
                let again = open(root).1;
                assert_eq!(again, [lines, vec!["last".to_owned()]].concat(), "{fault:?}");
            }
        });
    }

    #[test]
    fn a_missing_journal_is_empty_and_a_large_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, lines) = open(directory.path());
        assert!(lines.is_empty() && journal.bytes() == 0);
        journal.append(b"one\n").unwrap();
        assert_eq!((open(directory.path()).1, journal.bytes()), (vec!["one".to_owned()], 4));
        let error = Lines::read(&directory.path().join("log"), 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let taken = Journal::create(&directory.path().join("log"), b"two\n", Access::Owner);
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
