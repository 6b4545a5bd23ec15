//! The file of fates: there whole or not at all, and never in the place of its own input.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, bail};
use underload_disk::{Access, NewFile};
use underload_terminal::exit::OrBadInput;

/// A file that one holder writes and another one completes. Without that it never was.
#[derive(Clone)]
pub struct OutputFile(Rc<RefCell<Option<NewFile>>>);

impl OutputFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// Where it is the input; what the disk said.
    pub fn begin(path: &Path, input: &Path) -> anyhow::Result<Self> {
        if is_same(path, input) {
            let refuse = || bail!("--out {}: this is the input", path.display());
            return refuse().or_bad_input();
        }
        let file = NewFile::beside(path, Access::Usual);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Self(Rc::new(RefCell::new(Some(file)))))
    }

    /// Gives the file its name, now that all of it is written.
    ///
    /// # Errors
    /// What the disk said; an older file of the name is unchanged then.
    pub fn complete(&self) -> io::Result<()> {
        self.0.borrow_mut().take().map_or(Ok(()), NewFile::replace)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.borrow_mut() {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().as_mut().map_or(Ok(()), NewFile::flush)
    }
}

fn is_same(path: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let facts = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        // A file may have several names, which not every system tells.
        #[cfg(unix)]
        return Some((facts.dev(), facts.ino()));
        #[cfg(not(unix))]
        return fs::canonicalize(path).ok().filter(|_| facts.is_file());
    };
    identity(path).is_some_and(|file| identity(other) == Some(file))
}
