//! The rows of a replay: on stdout, or in a file that is written atomically and never over its own
//! input.

use std::fs;
use std::io::{self, BufWriter, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context;
use underload_disk::{Access, NewFile};
use underload_terminal::exit::refuse;

/// The destination of a queue's rows.
pub enum Output {
    Stream(Box<dyn Write>),
    /// A file that does not exist before [`Self::complete`].
    File(BufWriter<NewFile>),
}

impl Output {
    /// Begins a file in place of `path`, which must not be the input.
    pub fn file(path: &Path, input: &Path) -> anyhow::Result<Self> {
        refuse_input(path, input)?;
        let file = NewFile::beside(path, Access::Usual);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Self::File(BufWriter::new(file)))
    }

    pub fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stream(stream) => stream,
            Self::File(file) => file,
        }
    }

    /// Flushes the buffer, and renames a file to its final path.
    ///
    /// # Errors
    /// If this fails; an older file of the name is then unchanged.
    pub fn complete(self) -> io::Result<()> {
        match self {
            Self::Stream(mut stream) => stream.flush(),
            Self::File(file) => file.into_inner()?.replace(),
        }
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
