//! Commands inside the lab: any program at the client, and optionally another at the server.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use underload_emu::machine::{CLIENT_V4, Ends, Namespace, Process, SERVER_V4};
use underload_record::schema::{FlowDirection, FlowRecord, Metric, Phase};

use super::plan::duration;
use crate::error::{Doing as _, Result};
use crate::scenario::{ExecFlow, FlowKind, Variant};
use crate::trial::Output;

#[derive(Debug)]
pub(super) struct Commands<'a> {
    ends: &'a Ends,
    flows: Vec<Running<'a>>,
    ramp_start: Option<Instant>,
}

#[derive(Debug)]
struct Running<'a> {
    name: &'a str,
    flow: &'a ExecFlow,
    server: Option<Process>,
    client: Option<Process>,
    output: File,
    is_started: bool,
    /// Exit status; `None` while the command runs, and after a signal killed it.
    status: Option<i32>,
    is_stopped: bool,
}

/// The records of commands, descriptions of those that failed, and their outputs.
pub(super) type Finished = (Vec<FlowRecord>, Vec<String>, Vec<Output>);

/// Bytes of a command's output that are stored, at most.
const OUTPUT_MAX: u64 = 16 << 20;
/// Time that a command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

impl<'a> Commands<'a> {
    /// Starts the servers of a variant's commands.
    pub(super) fn start(ends: &'a Ends, variant: &'a Variant) -> Result<Self> {
        let mut flows = Vec::new();
        for flow in &variant.flows {
            let FlowKind::Exec(exec) = &flow.kind else { continue };
            let output = tempfile::tempfile().doing("a file for a command's output")?;
            let mut running = Running {
                name: &flow.name,
                flow: exec,
                server: None,
                client: None,
                output,
                is_started: false,
                status: None,
                is_stopped: false,
            };
            if !exec.server.is_empty() {
                let started = spawn(ends.server(), &exec.server, None);
                running.server = Some(started.doing(format!("flow.{}.server", flow.name))?);
            }
            flows.push(running);
        }
        Ok(Self { ends, flows, ramp_start: None })
    }

    /// Starts and stops the clients that are due. Called ten times a second.
    pub(super) fn start_and_stop(&mut self, phase: Phase) -> Result<()> {
        if matches!(phase, Phase::Ramp | Phase::Load) && self.ramp_start.is_none() {
            self.ramp_start = Some(Instant::now());
        }
        let Some(ramp_start) = self.ramp_start else { return Ok(()) };
        let elapsed = ramp_start.elapsed();
        for running in &mut self.flows {
            let activity = running.flow.activity;
            if !running.is_started && elapsed >= duration(activity.start) {
                let client = spawn(self.ends.client(), &running.flow.client, Some(&running.output));
                running.client = Some(client.doing(format!("flow.{}.client", running.name))?);
                running.is_started = true;
            }
            let is_due = activity.stop.is_some_and(|stop| elapsed >= duration(stop));
            if is_due || phase == Phase::Drain {
                running.stop();
            }
        }
        Ok(())
    }

    /// Ends all commands and collects their output.
    pub(super) fn finish(mut self) -> Result<Finished> {
        let (mut records, mut incomplete, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for running in &mut self.flows {
            running.stop();
            match running.status {
                Some(0) => {}
                Some(status) => incomplete
                    .push(format!("the command of {} ended with status {status}", running.name)),
                // Stopped at the time that the scenario gives.
                None if running.is_started => {}
                None => incomplete.push(format!("the command of {} never started", running.name)),
            }
            records.push(running.record());
            let text = running.read_output().doing("reading a command's output")?;
            outputs.push(Output { name: running.name.to_owned(), text });
        }
        Ok((records, incomplete, outputs))
    }
}

impl Running<'_> {
    fn stop(&mut self) {
        if self.is_stopped || !self.is_started {
            return;
        }
        self.is_stopped = true;
        let Some(mut client) = self.client.take() else { return };
        if let Ok(Some(status)) = client.wait_for(Duration::ZERO) {
            self.status = status.code();
            return;
        }
        client.terminate();
        // A stopped command may end with any status. Dropping it kills it.
        let _ = client.wait_for(GRACE);
    }

    fn record(&self) -> FlowRecord {
        let status = self.status.map(|status| Metric {
            name: "exit_status".to_owned(),
            unit: String::new(),
            value: Some(f64::from(status)),
        });
        FlowRecord {
            name: self.name.to_owned(),
            kind: "exec".to_owned(),
            direction: FlowDirection::Both,
            metrics: status.into_iter().collect(),
            ..FlowRecord::default()
        }
    }

    fn read_output(&mut self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.output.rewind()?;
        (&mut self.output).take(OUTPUT_MAX).read_to_end(&mut text)?;
        Ok(text)
    }
}

fn spawn(namespace: &Namespace, words: &[String], output: Option<&File>) -> Result<Process> {
    let word = |word: &String| {
        word.replace("{client}", &CLIENT_V4.to_string()).replace("{server}", &SERVER_V4.to_string())
    };
    let mut words = words.iter().map(word);
    let program = words.next().ok_or("no program").of_world()?;
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(file) = output {
        let copy = || file.try_clone().of_world();
        command.stdout(copy()?).stderr(copy()?);
    }
    namespace.spawn(command).doing(format!("`{program}` (is it installed?)"))
}
