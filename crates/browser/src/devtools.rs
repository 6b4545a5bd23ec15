//! Commands, answers and events of the protocol.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The result of talking to a browser.
type Result<T, E = DevToolsError> = std::result::Result<T, E>;

/// A connection to a browser. Its `session` arguments name the page that a command is for; an empty
/// one means the browser.
#[derive(Debug)]
pub struct DevTools {
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    patience: Duration,
    watched: &'static [&'static str],
    events: Vec<Value>,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum DevToolsError {
    #[error("{what}: the browser has ended")]
    Ended { what: String },
    #[error("{what}: no answer of the browser within {} s", .limit.as_secs())]
    Silent { what: String, limit: Duration },
    #[error("{what}: {answer}")]
    Refused { what: String, answer: String },
}

impl DevTools {
    /// Speaks to a browser through the standard handles of [`crate::Chromium::command`]. Every
    /// answer and event is waited for `patience`.
    ///
    /// # Errors
    /// Returns an error if the thread that reads cannot be started.
    pub fn new(input: ChildStdin, output: ChildStdout, patience: Duration) -> io::Result<Self> {
        let (sender, messages) = channel();
        std::thread::Builder::new().name("devtools".to_owned()).spawn(move || {
            for message in BufReader::new(output).split(0) {
                let message = message.ok().and_then(|text| serde_json::from_slice(&text).ok());
                if message.is_none_or(|message: Value| sender.send(message).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { input, messages, last_id: 0, patience, watched: &[], events: Vec::new() })
    }

    /// Enables domains of the protocol in every page and worker that attaches from now on.
    pub fn watch(&mut self, domains: &'static [&'static str]) {
        self.watched = domains;
    }

    /// Sends a command without waiting for the answer. Returns the id of the answer.
    ///
    /// # Errors
    /// Returns [`DevToolsError::Ended`] if the browser no longer reads.
    pub fn send(&mut self, session: &str, method: &str, parameters: &Value) -> Result<u64> {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !session.is_empty() {
            message["sessionId"] = json!(session);
        }
        let written = self.input.write_all(format!("{message}\0").as_bytes());
        written.map_err(|_| DevToolsError::Ended { what: method.to_owned() })?;
        Ok(self.last_id)
    }

    /// Sends a command, and returns its result.
    ///
    /// # Errors
    /// Returns an error if the browser ends, is silent or refuses the command.
    pub fn call(&mut self, session: &str, method: &str, parameters: &Value) -> Result<Value> {
        let id = self.send(session, method, parameters)?;
        let mut answer = self.wait(method, |message| message["id"] == id)?;
        match answer.get("error") {
            None => Ok(answer["result"].take()),
            Some(_) => Err(refused(method, &answer)),
        }
    }

    /// Waits for a message; `what` is for errors. The messages before it stay for
    /// [`DevTools::take_events`].
    ///
    /// # Errors
    /// Returns an error if the browser ends or is silent.
    pub fn wait(&mut self, what: &str, is_awaited: impl Fn(&Value) -> bool) -> Result<Value> {
        let (limit, what) = (self.patience, || what.to_owned());
        let deadline = Instant::now() + limit;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(rest).map_err(|error| match error {
                RecvTimeoutError::Timeout => DevToolsError::Silent { what: what(), limit },
                RecvTimeoutError::Disconnected => DevToolsError::Ended { what: what() },
            })?;
            if is_awaited(&message) {
                return Ok(message);
            }
            if let Some(attached) = attached_session(&message) {
                for domain in self.watched {
                    // The answer becomes an event; a worker that has already ended sends none.
                    self.send(attached, &format!("{domain}.enable"), &json!({}))?;
                }
            }
            self.events.push(message);
        }
    }

    /// Returns the messages that arrived since the last call, without those that a caller waited
    /// for.
    pub fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    /// Opens an empty page in a context, whose connections and cache no other context shares; an
    /// empty `context` means the browser's own. Returns the page's session.
    ///
    /// # Errors
    /// As [`DevTools::call`].
    pub fn open_page(&mut self, context: &str) -> Result<String> {
        let mut page = json!({ "url": "about:blank" });
        if !context.is_empty() {
            page["browserContextId"] = json!(context);
        }
        let target = self.call("", "Target.createTarget", &page)?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("", "Target.attachToTarget", &attach)?;
        let session = attached["sessionId"].as_str();
        let session = session.ok_or_else(|| refused("Target.attachToTarget", &attached))?;
        self.call(session, "Page.enable", &json!({}))?;
        Ok(session.to_owned())
    }

    /// Opens an address in a page, and waits until the page is loaded.
    ///
    /// # Errors
    /// As [`DevTools::call`]; [`DevToolsError::Refused`] also if the page cannot be reached.
    pub fn navigate(&mut self, session: &str, address: &str) -> Result<()> {
        let gone = self.call(session, "Page.navigate", &json!({ "url": address }))?;
        if gone.get("errorText").is_some() {
            return Err(refused(address, &gone));
        }
        let is_loaded = |message: &Value| {
            message["method"] == "Page.loadEventFired" && message["sessionId"] == session
        };
        self.wait(address, is_loaded).map(drop)
    }

    /// Returns the value of an expression in a page; waits for a promise to resolve.
    ///
    /// # Errors
    /// As [`DevTools::call`]; [`DevToolsError::Refused`] also if the expression throws.
    pub fn value(&mut self, session: &str, expression: &str) -> Result<Value> {
        let request = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let mut answer = self.call(session, "Runtime.evaluate", &request)?;
        if answer.get("exceptionDetails").is_some() {
            return Err(refused(expression, &answer));
        }
        Ok(answer["result"]["value"].take())
    }
}

fn attached_session(message: &Value) -> Option<&str> {
    (message["method"] == "Target.attachedToTarget")
        .then(|| message["params"]["sessionId"].as_str())?
}

fn refused(what: &str, answer: &Value) -> DevToolsError {
    DevToolsError::Refused { what: what.to_owned(), answer: answer.to_string() }
}
