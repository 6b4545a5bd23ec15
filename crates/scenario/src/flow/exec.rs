//! `kind = "exec"`: any program, in the live world.

use underload_aqm::time::Span;
use underload_record::schema::Metric;
use underload_record::text::{one_line, shell_word};
use underload_sim::application::metric;

use super::FlowKind;
use super::common::{Activity, Kind, Properties};
use crate::keys::{Fault, keys};

/// A command at the client, and optionally a command at the server that starts before it. In the
/// words of both, `{client}` and `{server}` are the addresses of the two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecFlow {
    /// Program and arguments at the client; no shell.
    pub client: Vec<String>,
    /// Program and arguments at the server; may be empty.
    pub server: Vec<String>,
}

keys! {
    pub(super) struct ExecKeys {
        /// Program and arguments at the client, without a shell: `["iperf3", "-c", "{server}"]`.
        client: Vec<String>,
        /// Program and arguments at the server, started before the client's: `["iperf3", "-s"]`.
        server: Vec<String> = Vec::new(),
        /// When the client's command starts, counted from the start of the ramp.
        start: Option<Span> where default = "0s",
        /// When the client's command is stopped if it still runs, counted from the start of the
        /// ramp.
        stop: Option<Span> where default = "end of the load phase",
    }
}

/// The metric of a command.
pub const EXIT_STATUS: &str = "exit_status";
/// Maximum number of words of a command.
const MAX_WORDS: usize = 256;

impl Kind for ExecKeys {
    const NAME: &str = "exec";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let Self { client, server, start, stop } = self;
        if client.is_empty() {
            let problem = "expected a program and its arguments, such as [\"ping\", \"{server}\"]";
            return Err(Fault::new("client", problem));
        }
        check_words("client", &client)?;
        check_words("server", &server)?;
        let start = Some(start.unwrap_or_default());
        let activity = Activity { start, stop, ..Activity::default() }.check()?;
        Ok((FlowKind::Exec(ExecFlow { client, server }), activity))
    }
}

impl ExecFlow {
    /// Returns both commands as a shell would read them, the server's first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let word = |word: &String| shell_word(&one_line(word));
        let line = move |words: &Vec<String>| words.iter().map(word).collect::<Vec<_>>().join(" ");
        [&self.server, &self.client].into_iter().filter(|words| !words.is_empty()).map(line)
    }
}

impl Properties for ExecFlow {
    fn metrics(&self) -> Vec<Metric> {
        vec![metric(EXIT_STATUS, "", None)]
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
