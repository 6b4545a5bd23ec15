//! `kind = "exec"`: any program, in the live world.

use serde::{Deserialize, Serialize};

use super::{Activity, ActivityKeys, checked_activity};
use crate::scenario::error::Fault;
use crate::scenario::quantity::SpanText;

/// A command at the client, and another at the server, started before it, where it needs one.
///
/// In the words of both, `{client}` and `{server}` stand for the addresses of the two ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecFlow {
    /// Program and arguments at the client; no shell.
    pub client: Vec<String>,
    /// Program and arguments at the server, or nothing.
    pub server: Vec<String>,
    /// When the client's command starts, and when it is stopped should it still run.
    pub activity: Activity,
}

/// Words of a command, at most.
const MAX_WORDS: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecKeys {
    client: Vec<String>,
    #[serde(default)]
    server: Vec<String>,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

impl ExecKeys {
    pub(super) fn check(self) -> Result<ExecFlow, Fault> {
        if self.client.is_empty() {
            let problem = "expected a program and its arguments, such as [\"ping\", \"{server}\"]";
            return Err(Fault::new("client", problem));
        }
        check_words("client", &self.client)?;
        check_words("server", &self.server)?;
        let keys = ActivityKeys { start: self.start, stop: self.stop, ..ActivityKeys::default() };
        let activity = checked_activity(keys)?;
        Ok(ExecFlow { client: self.client, server: self.server, activity })
    }
}

fn check_words(key: &str, words: &[String]) -> Result<(), Fault> {
    if words.len() > MAX_WORDS {
        return Err(Fault::new(key, format!("expected at most {MAX_WORDS} words")));
    }
    if words.first().is_some_and(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
        return Err(Fault::new(key, "expected the name of a program first, and no NUL"));
    }
    Ok(())
}
