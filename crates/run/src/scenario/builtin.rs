//! The scenarios that come with the program.

include!(concat!(env!("OUT_DIR"), "/builtin_scenarios.rs"));

/// A scenario, or a file that one needs, as it was when the program was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Folder and name without extension, for example `comcast/upstream`.
    pub name: &'static str,
    /// The text of the scenario file.
    pub text: &'static str,
}

/// All built-in scenarios, sorted by name.
pub fn scenarios() -> impl Iterator<Item = BuiltIn> {
    SCENARIOS.iter().copied()
}

/// The scenario of that name.
pub fn find(name: &str) -> Option<BuiltIn> {
    scenarios().find(|scenario| scenario.name == name)
}

/// The content of a file that came with the scenarios, for example
/// `bode/synthetic-cellular.trace`.
///
/// # Errors
/// Says which files there are.
pub fn load_file(name: &str) -> Result<Vec<u8>, String> {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => Ok(file.text.as_bytes().to_vec()),
        None => {
            let known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
            Err(format!("no such file; built in are {}", known.join(", ")))
        }
    }
}
