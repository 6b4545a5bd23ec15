//! Where scenarios, and the files that they name, come from: folders, or what is built in.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::scenario::{Options, Scenario, ScenarioErrors, builtin};

/// A scenario's text and the name to record it under.
#[derive(Debug)]
pub struct Source {
    /// Built-in name, or the file's path as given.
    pub name: String,
    /// The whole file.
    pub text: String,
}

/// Why there is no such scenario, and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

/// Bytes of a scenario file, at most.
const MAX_LEN: u64 = 1 << 20;
/// Bytes of a trace, at most: a day of 1 Gbit/s takes less.
const MAX_TRACE_BYTES: u64 = 1 << 30;

impl Source {
    /// The built-in scenario of that name, or else the file there. A file can always be meant
    /// with its extension or a leading `./`.
    ///
    /// # Errors
    /// Names the built-in scenarios where it is none of them and no file, or says why the file
    /// cannot be read.
    pub fn find(scenario: &str) -> Result<Self, SourceError> {
        if let Some(found) = builtin::find(scenario) {
            return Ok(Self { name: found.name.to_owned(), text: found.text.to_owned() });
        }
        if let Err(error) = Path::new(scenario).metadata() {
            let known = builtin::scenarios().map(|known| known.name);
            return Err(SourceError(format!(
                "{scenario}: neither a scenario file ({error}) nor a built-in scenario; {}",
                builtin::instead(scenario, known)
            )));
        }
        Ok(Self { name: scenario.to_owned(), text: read_text(scenario)? })
    }

    /// The scenario with what was asked of it; files that it names are looked for by [`load_file`].
    /// Its text repeats the run. `traces`: the files that [`Options::links`] stand for.
    ///
    /// # Errors
    /// All that is wrong with it, as far as that can be told at once.
    pub fn scenario(
        &self,
        options: &Options,
        traces: &[String],
    ) -> Result<Scenario, ScenarioErrors> {
        let load = &mut |file: &str| load_file(&self.name, file);
        let mut scenario = Scenario::read(&self.text, &self.name, options, load)?;
        scenario.text = options.effective_text(&self.text, traces);
        Ok(scenario)
    }
}

/// The text of a scenario's or sweep's file.
///
/// # Errors
/// What the file system said; what is no file, no text or too long.
pub fn read_text(path: &str) -> Result<String, SourceError> {
    let say = |error: std::io::Error| SourceError(format!("{path}: {error}"));
    let facts = Path::new(path).metadata().map_err(say)?;
    if !facts.is_file() {
        return Err(SourceError(format!("{path}: not a file")));
    }
    if facts.len() > MAX_LEN {
        return Err(SourceError(format!("{path}: longer than 1 MiB")));
    }
    std::fs::read_to_string(path)
        .map_err(|error| SourceError(format!("{path}: not readable as text: {error}")))
}

/// The content of a file that a scenario or the command line names: one built in, else one beside
/// the scenario of this name, else one in the current folder.
///
/// # Errors
/// Says where there is none, and which files are built in.
pub fn load_file(scenario: &str, name: &str) -> Result<Vec<u8>, String> {
    let not_built_in = match builtin::load_file(name) {
        Ok(bytes) => return Ok(bytes),
        Err(problem) => problem,
    };
    let beside = Path::new(scenario).parent().map(|folder| folder.join(name));
    let path = beside.filter(|path| path.exists()).unwrap_or_else(|| name.into());
    read_trace(&path.to_string_lossy()).map_err(|problem| format!("{problem}; {not_built_in}"))
}

/// Reads a trace, gzipped or not.
///
/// # Errors
/// What the file system said, and files of more than 1 GiB.
pub fn read_trace(path: &str) -> Result<Vec<u8>, String> {
    let say = |error: std::io::Error| format!("{path}: {error}");
    let file = File::open(path).map_err(say)?;
    let plain = BufReader::new(file);
    let gzipped = Path::new(path).extension().is_some_and(|extension| extension == "gz");
    let source: Box<dyn Read> =
        if gzipped { Box::new(MultiGzDecoder::new(plain)) } else { Box::new(plain) };
    let mut bytes = Vec::new();
    source.take(MAX_TRACE_BYTES + 1).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() as u64 > MAX_TRACE_BYTES {
        return Err(format!("{path}: more than 1 GiB"));
    }
    Ok(bytes)
}

/// A scenario's name without folders that do not belong to it and without extension, for a
/// directory.
pub(crate) fn slug(scenario: &str) -> String {
    let name = scenario.strip_suffix(".toml").unwrap_or(scenario);
    let name = if builtin::find(scenario).is_some() {
        name
    } else {
        name.rsplit('/').next().unwrap_or(name)
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(plain).collect()
}
