//! Commands inside the lab: any program at the client, and optionally another at the server.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{self, Stdio};
use std::time::Duration;

use underload_emu::machine::{CLIENT_V4, Ends, Namespace, Process, SERVER_V4};
use underload_record::schema::FlowDirection;
use underload_scenario::{EXIT_STATUS, ExecFlow};
use underload_sim::application::metric;

use super::task::{Outcome, Task, record};
use crate::error::{Doing as _, Result};

pub(super) struct Command<'a> {
    ends: &'a Ends,
    name: &'a str,
    words: &'a [String],
    _server: Option<Process>,
    client: Option<Process>,
    output: File,
    /// Exit status; `None` while the command runs, and after a signal killed it.
    status: Option<i32>,
}

/// Maximum number of stored bytes of a command's output.
const OUTPUT_MAX: u64 = 16 << 20;
/// Time that a command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

impl<'a> Command<'a> {
    /// Starts the command of the server, if there is one.
    pub(super) fn start(
        ends: &'a Ends,
        name: &'a str,
        flow: &'a ExecFlow,
    ) -> Result<Box<dyn Task + 'a>> {
        let server = match flow.server.as_slice() {
            [] => None,
            words => Some(spawn(ends.server(), words, None).doing("server")?),
        };
        let output = tempfile::tempfile().doing("a file for a command's output")?;
        let words = flow.client.as_slice();
        Ok(Box::new(Self {
            ends,
            name,
            words,
            _server: server,
            client: None,
            output,
            status: None,
        }))
    }
}

impl Task for Command<'_> {
    fn begin(&mut self) -> Result<()> {
        let client = spawn(self.ends.client(), self.words, Some(&self.output));
        self.client = Some(client.doing(format!("flow.{}.client", self.name))?);
        Ok(())
    }

    fn stop(&mut self) {
        let Some(mut client) = self.client.take() else { return };
        if let Ok(Some(status)) = client.wait_for(Duration::ZERO) {
            self.status = status.code();
            return;
        }
        client.terminate();
        // A stopped command may end with any status. Dropping it kills it.
        let _ = client.wait_for(GRACE);
    }

    fn finish(&mut self) -> Result<Outcome> {
        self.stop();
        let status = self.status.map(|status| metric(EXIT_STATUS, "", Some(f64::from(status))));
        let metrics = status.into_iter().collect();
        let failed = self.status.filter(|status| *status != 0);
        let mut text = Vec::new();
        self.output.rewind().doing("reading a command's output")?;
        let mut output = (&mut self.output).take(OUTPUT_MAX);
        output.read_to_end(&mut text).doing("reading a command's output")?;
        Ok(Outcome {
            records: vec![record(self.name.to_owned(), "exec", FlowDirection::Both, metrics)],
            problem: failed.map(|status| format!("the command ended with status {status}")),
            text,
        })
    }
}

fn spawn(namespace: &Namespace, words: &[String], output: Option<&File>) -> Result<Process> {
    let word = |word: &String| {
        word.replace("{client}", &CLIENT_V4.to_string()).replace("{server}", &SERVER_V4.to_string())
    };
    let mut words = words.iter().map(word);
    let program = words.next().ok_or("no program").of_world()?;
    let mut command = process::Command::new(&program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(file) = output {
        let copy = || file.try_clone().of_world();
        command.stdout(copy()?).stderr(copy()?);
    }
    namespace.spawn(command).doing(format!("`{program}` (is it installed?)"))
}
