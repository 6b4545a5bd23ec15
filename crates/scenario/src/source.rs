//! Finds scenarios and the files that they name, in folders or among those built in.

use std::fs::{File, Metadata};
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::{Options, Scenario, ScenarioErrors, builtin};

/// A scenario's text and the name to record it under.
#[derive(Debug)]
pub struct Source {
    /// Built-in name, or the file's path as given.
    pub name: String,
    pub text: String,
}

/// Why a scenario was not found, and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

/// Maximum size of a scenario file, bytes.
const MAX_LEN: u64 = 1 << 20;
/// Maximum size of a trace, bytes: a day of 1 Gbit/s needs less.
const MAX_TRACE_BYTES: u64 = 64 << 20;

impl Source {
    /// Finds the built-in scenario of that name, or else the file. An extension or a leading `./`
    /// selects the file. The error suggests built-in names.
    pub fn find(scenario: &str) -> Result<Self, SourceError> {
        if let Some(found) = builtin::find(scenario) {
            return Ok(Self { name: found.name.to_owned(), text: found.text.to_owned() });
        }
        if let Err(error) = Path::new(scenario).metadata() {
            let known = builtin::scenarios().map(|known| known.name);
            return Err(SourceError(format!(
                "{scenario}: neither a scenario file ({error}) nor a built-in scenario; {}",
                builtin::suggestion(scenario, known)
            )));
        }
        Ok(Self { name: scenario.to_owned(), text: read_text(scenario)? })
    }

    /// Reads the scenario with `options`, and files that it names by [`load_file`]. Its text
    /// repeats the run. `traces` are the files of [`Options::links`].
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

/// Reads the text of a scenario's or sweep's file, of at most 1 MiB.
pub fn read_text(path: &str) -> Result<String, SourceError> {
    let say = |error: std::io::Error| SourceError(format!("{path}: {error}"));
    if regular_file(path).map_err(say)?.len() > MAX_LEN {
        return Err(SourceError(format!("{path}: longer than 1 MiB")));
    }
    std::fs::read_to_string(path)
        .map_err(|error| SourceError(format!("{path}: not readable as text: {error}")))
}

/// Returns the facts of a regular file with content. A pipe could block for ever, and a device may
/// have no end. Files of `/proc` and its like have length 0, and reading some of them blocks, too.
fn regular_file(path: &str) -> std::io::Result<Metadata> {
    let facts = Path::new(path).metadata()?;
    let error = || std::io::Error::other("empty, or not a regular file");
    (facts.is_file() && facts.len() > 0).then_some(facts).ok_or_else(error)
}

/// Reads a file that a scenario or the command line names: a built-in one, or else one beside the
/// scenario of this name, or else one in the current folder. The error lists the built-in files.
pub fn load_file(scenario: &str, name: &str) -> Result<Vec<u8>, String> {
    let not_built_in = match builtin::load_file(name) {
        Ok(bytes) => return Ok(bytes),
        Err(problem) => problem,
    };
    let beside = Path::new(scenario).parent().map(|folder| folder.join(name));
    let path = beside.filter(|path| path.exists()).unwrap_or_else(|| name.into());
    read_trace(&path.to_string_lossy()).map_err(|problem| {
        if path.exists() { problem } else { format!("{problem}; {not_built_in}") }
    })
}

/// Reads a trace, gzipped or not, of at most 64 MiB.
pub fn read_trace(path: &str) -> Result<Vec<u8>, String> {
    let say = |error: std::io::Error| format!("{path}: {error}");
    let file = regular_file(path).and_then(|_| File::open(path)).map_err(say)?;
    let plain = BufReader::new(file);
    let gzipped = Path::new(path).extension().is_some_and(|extension| extension == "gz");
    let source: Box<dyn Read> =
        if gzipped { Box::new(MultiGzDecoder::new(plain)) } else { Box::new(plain) };
    let mut bytes = Vec::new();
    source.take(MAX_TRACE_BYTES + 1).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() as u64 > MAX_TRACE_BYTES {
        return Err(format!("{path}: more than 64 MiB"));
    }
    Ok(bytes)
}

/// Returns the name of a run directory for a scenario: a built-in name with its group, or a file's
/// name without folders and extension.
pub fn slug(scenario: &str) -> String {
    let name = scenario.strip_suffix(".toml").unwrap_or(scenario);
    let name = if builtin::find(scenario).is_some() {
        name
    } else {
        name.rsplit('/').next().unwrap_or(name)
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    // Commands would take a first `-` for an option.
    match name.trim_start_matches('-') {
        "" => "run".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_trace_lists_the_built_in_ones() {
        let missing = load_file("", "missing.trace").unwrap_err();
        assert!(missing.contains("; no such file; built in are"), "{missing}");
        let directory = load_file("", ".").unwrap_err();
        assert!(!directory.contains("built in"), "{directory}");
    }

    #[test]
    fn pipes_devices_and_compressed_bombs_are_no_traces() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let made_up = if cfg!(target_os = "linux") { "/proc/version" } else { "/dev/null" };
        for path in [&*pipe.to_string_lossy(), "/dev/zero", made_up] {
            let error = read_trace(path).expect_err(path);
            assert!(error.contains("not a regular file"), "{error}");
        }
        let bomb = folder.path().join("bomb.gz");
        let file = File::create(&bomb).expect("a file");
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        let mebibyte = vec![b'1'; 1 << 20];
        (0..65).for_each(|_| gzip.write_all(&mebibyte).expect("written"));
        gzip.finish().expect("written");
        let error = read_trace(&bomb.to_string_lossy()).expect_err("too large");
        assert!(error.contains("more than 64 MiB"), "{error}");
    }

    #[test]
    fn a_run_directory_begins_with_a_letter_or_a_digit() {
        let names = ["comcast/upstream", "folder/ünï.toml", "ü.toml", "mine.toml"];
        assert_eq!(names.map(slug), ["comcast-upstream", "n-", "run", "mine"]);
    }
}
