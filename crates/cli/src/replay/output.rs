//! The output file: written atomically, and never over its own input.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use anyhow::Context;
use underload_disk::{Access, NewFile};
use underload_terminal::exit::refuse;

/// A file that does not exist before [`Self::complete`]. Clones share the file.
#[derive(Clone)]
pub struct OutputFile(Rc<RefCell<Option<NewFile>>>);

impl OutputFile {
    pub fn begin(path: &Path, input: &Path) -> anyhow::Result<Self> {
        refuse_input(path, input)?;
        let file = NewFile::beside(path, Access::Usual);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Self(Rc::new(RefCell::new(Some(file)))))
    }

    /// Renames the written file to its path.
    ///
    /// # Errors
    /// If this fails; an older file of the name is then unchanged.
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

/// Refuses an `--out` that would replace the input.
pub fn refuse_input(out: &Path, input: &Path) -> anyhow::Result<()> {
    let identity = |path: &Path| {
        let facts = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        // A file may have several names; only Unix has an identity for it.
        #[cfg(unix)]
        return Some((facts.dev(), facts.ino()));
        #[cfg(not(unix))]
        return fs::canonicalize(path).ok().filter(|_| facts.is_file());
    };
    if identity(out).is_some_and(|file| identity(input) == Some(file)) {
        refuse!("--out {}: this is the input", out.display());
    }
    Ok(())
}
