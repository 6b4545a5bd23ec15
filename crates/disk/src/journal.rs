//! A file of lines that grows at its end. Synced lines survive a kill and a power cut; an
//! incomplete line is cut off.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{
    Access, GrowingFile, create_new, directory_of, read_at_most, reopen, sync_directory,
    write_whole,
};

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

#[derive(Debug, Default)]
pub struct Lines {
    content: Vec<u8>,
    /// Bytes of complete lines.
    whole: usize,
}

impl Journal {
    /// Opens a journal and reads its lines. A missing file is created with the first line.
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

    /// A journal whose first `bytes` bytes are complete lines. The first append cuts off the rest; a
    /// missing file is created by it.
    pub fn behind(path: &Path, bytes: u64, access: Access) -> Self {
        Self { path: path.to_owned(), access, file: None, bytes, is_torn: true }
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

    /// Replaces all lines by `lines`. After an error the file has the old or the new lines.
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
        Ok(read_at_most(file, bytes_max)?.into())
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
#[path = "journal_tests.rs"]
mod tests;
