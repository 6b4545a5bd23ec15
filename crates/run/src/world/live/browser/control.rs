//! Browsers in the lab's namespaces, and the thread that controls them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use underload_browser::{Chromium, DevTools, DevToolsError, MISSING, Profile};
use underload_emu::machine::{Namespace, Process};
use underload_record::text::in_full;

use crate::error::{Doing as _, RunError};

/// Browsers with one thread that controls all of them. Dropping it kills the browsers.
pub(super) struct Controlled<T> {
    pub version: String,
    processes: Vec<Process>,
    /// A message begins the thread's work; closing the channel ends it. `None` once closed.
    begin: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<T, DevToolsError>>>,
}

/// The thread's side of the signals between it and its owner.
pub(super) struct Signals {
    ready: Sender<()>,
    /// Receives one message when the work begins; closed when it must end.
    pub begin: Receiver<()>,
}

/// A busy machine starts Chromium within this time.
const PATIENCE: Duration = Duration::from_mins(2);
/// Chromium's profile and shared memory take about 40 MB.
const PROFILE_MEGABYTES: u32 = 512;

impl Signals {
    /// Reports that the browsers are ready, and waits until the work begins; `false` if it never
    /// does.
    pub(super) fn wait(&self) -> bool {
        // Fails only if `start` has given up waiting; then `recv` below fails, too.
        let _ = self.ready.send(());
        self.begin.recv().is_ok()
    }
}

/// Parses what a page answered; `what` names it in the error.
pub(super) fn parsed<T: DeserializeOwned>(answer: &Value, what: &str) -> Result<T, DevToolsError> {
    T::deserialize(answer).map_err(|error| DevToolsError::Refused {
        what: format!("{what} ({error})"),
        answer: answer.to_string(),
    })
}

impl<T: Send + 'static> Controlled<T> {
    /// Starts a browser with these arguments in each namespace, and `run` in a thread, and waits
    /// until that is ready. `limit`: the longest wait for an answer of a browser.
    pub(super) fn start(
        namespaces: &[&Namespace],
        arguments: &[String],
        limit: Duration,
        run: impl FnOnce(Vec<DevTools>, &Signals) -> Result<T, DevToolsError> + Send + 'static,
    ) -> Result<Self, RunError> {
        let chromium = Chromium::find().ok_or(MISSING).of_world()?;
        let (mut processes, mut tools) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            let mut command = chromium.command(Profile::Memory { megabytes: PROFILE_MEGABYTES });
            command.args(arguments);
            let mut process = namespace.spawn(command).doing("starting Chromium")?;
            let pipes = (process.child().stdin.take(), process.child().stdout.take());
            let (Some(input), Some(output)) = pipes else { return Err("no pipes").of_world() };
            tools.push(DevTools::new(input, output, limit).doing("starting Chromium")?);
            processes.push(process);
        }
        let (begin, begins) = channel();
        let (ready, is_ready) = channel();
        let signals = Signals { ready, begin: begins };
        let thread = std::thread::Builder::new().name("browser".to_owned());
        let thread = thread.spawn(move || run(tools, &signals)).of_world()?;
        let version = chromium.version;
        let (begin, thread) = (Some(begin), Some(thread));
        let mut controlled = Self { version, processes, begin, thread };
        if is_ready.recv_timeout(PATIENCE).is_ok() {
            return Ok(controlled);
        }
        controlled.kill();
        let failed = controlled.join().err();
        let error = failed.map_or_else(|| "it has ended".to_owned(), |error| in_full(&error));
        Err(format!("starting Chromium ({}): {error}", controlled.version)).of_world()
    }

    /// Begins the thread's work.
    pub(super) fn begin(&self) {
        // The thread has ended if its browser has; `join` reports why.
        let _ = self.begin.as_ref().map(|begin| begin.send(()));
    }

    /// Signals the thread to end.
    pub(super) fn close(&mut self) {
        self.begin = None;
    }

    /// Kills the browsers, which ends the thread whatever it waits for.
    pub(super) fn kill(&mut self) {
        self.close();
        self.processes.clear();
    }

    /// Kills the browsers after the thread has ended. Returns its result and its failure.
    pub(super) fn finish(&mut self) -> (T, Option<String>)
    where
        T: Default,
    {
        self.close();
        let result = self.join();
        self.kill();
        match result {
            Ok(result) => (result.unwrap_or_default(), None),
            Err(error) => (T::default(), Some(in_full(&error))),
        }
    }

    /// Waits for the thread's result; `None` after the first call.
    fn join(&mut self) -> Result<Option<T>, DevToolsError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.map(Some),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(None),
        }
    }
}
