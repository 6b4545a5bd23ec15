//! Where a scenario comes from: a file, or the ones built in.

use std::path::Path;

use anyhow::{Context, anyhow};
use underload_run::scenario::builtin;

use crate::exit::OrBadInput;
use crate::link_spec;

/// A scenario's text and the name to record it under.
#[derive(Debug)]
pub struct Source {
    /// Built-in name, or the file's path as given.
    pub name: String,
    /// The whole file.
    pub text: String,
}

/// Bytes of a scenario file, at most.
const MAX_LEN: u64 = 1 << 20;

impl Source {
    /// The built-in scenario of that name, or else the file there. A file can always be meant
    /// with its extension or a leading `./`.
    pub fn find(scenario: &str) -> anyhow::Result<Self> {
        if let Some(found) = builtin::find(scenario) {
            return Ok(Self { name: found.name.to_owned(), text: found.text.to_owned() });
        }
        let path = Path::new(scenario);
        let length = match path.metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => return Err(anyhow!("{scenario}: not a file")).or_bad_input(),
            Err(error) => {
                let known: Vec<&str> = builtin::scenarios().map(|known| known.name).collect();
                let problem = format!(
                    "{scenario}: neither a scenario file ({error}) nor a built-in scenario; \
                     built in are {}",
                    known.join(", ")
                );
                return Err(anyhow!(problem)).or_bad_input();
            }
        };
        if length > MAX_LEN {
            return Err(anyhow!("{scenario}: longer than 1 MiB")).or_bad_input();
        }
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{scenario}: not readable as text"))
            .or_bad_input()?;
        Ok(Self { name: scenario.to_owned(), text })
    }

    /// The content of a file that the scenario or the command line names: one built in, else one
    /// beside the scenario, else one in the current folder.
    pub fn load_file(&self, name: &str) -> Result<Vec<u8>, String> {
        let Err(not_built_in) = builtin::load_file(name) else { return builtin::load_file(name) };
        let beside = Path::new(&self.name).parent().map(|folder| folder.join(name));
        let path = beside.filter(|path| path.exists()).unwrap_or_else(|| name.into());
        link_spec::read_file(&path.to_string_lossy())
            .map_err(|problem| format!("{problem}; {not_built_in}"))
    }

    /// The name without folders that do not belong to it and without extension, for a directory.
    pub fn slug(&self) -> String {
        let name = self.name.strip_suffix(".toml").unwrap_or(&self.name);
        let name = if builtin::find(&self.name).is_some() {
            name
        } else {
            name.rsplit('/').next().unwrap_or(name)
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        name.chars().map(plain).collect()
    }
}
