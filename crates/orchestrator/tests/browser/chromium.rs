//! A headless Chromium, controlled by its DevTools protocol over two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A tab in a browser process, which ends when this is dropped.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    said: Receiver<Value>,
    asked: u64,
    session: String,
    /// Errors of the console and the network since the last call of `faults`.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The size of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    Desktop,
    Phone,
}

/// The text of axe-core; `None`, with a report, if it is not installed.
pub fn axe(test: &str) -> Option<String> {
    let named = std::env::var_os("UNDERLOAD_AXE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let usual = ".cache/underload/node_modules/axe-core/axe.min.js";
    let path = named.or_else(|| Some(home?.join(usual)));
    let found = path.and_then(|path| std::fs::read_to_string(path).ok());
    if found.is_none() {
        eprintln!("SKIPPED {test} (axe): npm install --prefix ~/.cache/underload axe-core");
    }
    found
}

/// The browser's program; `None` if it is missing.
fn program() -> Option<String> {
    let named = std::env::var("UNDERLOAD_CHROMIUM").ok();
    let usual = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let mut programs = named.into_iter().chain(usual);
    programs.find(|program| {
        let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        version.is_ok_and(|version| version.status.success())
    })
}

impl Browser {
    /// Opens a browser for a test; `None`, with a report of the skip, if it is missing.
    pub fn launch(test: &str) -> Option<Self> {
        let program = program();
        if program.is_none() {
            eprintln!("SKIPPED {test}: no Chromium (apt install chromium, or UNDERLOAD_CHROMIUM)");
        }
        program.map(|program| Self::start(&program))
    }

    fn start(program: &str) -> Self {
        let profile = tempfile::tempdir().expect("a folder for its profile");
        // Chromium's protocol uses descriptors 3 and 4, each message ended by a zero byte.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-quic", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--force-color-profile=srgb"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output.expect("it is piped")).split(0) {
                let message = message.ok().and_then(|text| serde_json::from_slice(&text).ok());
                if message.is_none_or(|message: Value| tell.send(message).is_err()) {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            input: input.expect("it is piped"),
            said,
            asked: 0,
            session: String::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        attached["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        for part in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{part}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command, and returns the browser's answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        let mut message = json!({ "id": id, "method": method });
        message["params"] = parameters;
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("it reads");
        let mut answer = self.wait(method, |said| said["id"] == id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let ends = Instant::now() + PATIENCE;
        loop {
            let rest = ends.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(rest);
            let said = said.unwrap_or_else(|error| panic!("{what}: {error}"));
            self.complaints.extend(complaint(&said));
            if said["method"] == "Target.attachedToTarget" {
                self.listen(&said["params"]["sessionId"]);
            }
            if is_it(&said) {
                return said;
            }
        }
    }

    /// Errors in a page's workers count, too, once the page's session sends `Target.setAutoAttach`.
    fn listen(&mut self, session: &Value) {
        for part in ["Runtime", "Log"] {
            self.asked += 1;
            let message = json!({
                "id": self.asked, "method": format!("{part}.enable"), "sessionId": session,
            });
            // The answer is ignored; a worker that has already ended sends none.
            self.input.write_all(format!("{message}\0").as_bytes()).expect("it reads");
        }
    }

    /// Opens an address, and waits until the page is loaded.
    pub fn open(&mut self, address: &str) {
        let gone = self.call("Page.navigate", json!({ "url": address }));
        assert!(gone.get("errorText").is_none(), "{address}: {gone}");
        self.wait(address, |said| said["method"] == "Page.loadEventFired");
    }

    /// Returns the value of an expression; waits for a promise to resolve.
    pub fn value(&mut self, expression: &str) -> Value {
        let ask = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let mut answer = self.call("Runtime.evaluate", ask);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let ends = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({expression})")) != true {
            assert!(Instant::now() < ends, "it never was: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the faults of the open page: content wider than the screen, errors of the console,
    /// and what axe-core reports about accessibility.
    pub fn faults(&mut self, axe: Option<&str>) -> Vec<String> {
        let mut faults = Vec::new();
        let beside = self.value("document.documentElement.scrollWidth - innerWidth");
        if beside.as_f64().is_none_or(|pixels| pixels > 0.0) {
            faults.push("wider than the screen".to_owned());
        }
        faults.append(&mut self.complaints);
        if let Some(axe) = axe {
            self.value(&format!("{axe}; undefined"));
            let found = self.value(
                "axe.run(document, { resultTypes: ['violations'] }).then((found) =>
                    found.violations.map((it) =>
                        [it.impact, it.id, it.nodes.map((node) => node.html).slice(0, 3)]))",
            );
            let found = found.as_array().expect("a list");
            faults.extend(found.iter().map(ToString::to_string));
            // Axe logs to the console what the page's policy blocked.
            self.complaints.clear();
        }
        faults
    }

    /// Evaluates `action`, which opens another page, and waits until that is loaded.
    pub fn follow(&mut self, action: &str) {
        self.value(action);
        self.wait(action, |said| said["method"] == "Page.loadEventFired");
    }

    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let button = if clicks > 0 { "left" } else { "none" };
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "clickCount": clicks,
            "buttons": u32::from(clicks > 0),
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    pub fn key(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Returns the middle of the visible part of an element, in pixels.
    pub fn middle_of(&mut self, selector: &str) -> (f64, f64) {
        let place = self.value(&format!(
            "(() => {{ const it = document.querySelector({});
                it.scrollIntoView({{ block: 'center' }});
                const box = it.getBoundingClientRect();
                return [box.left + box.width / 2, box.top + box.height / 2]; }})()",
            json!(selector)
        ));
        (place[0].as_f64().expect("a number"), place[1].as_f64().expect("a number"))
    }

    pub fn screen(&mut self, screen: Screen, is_dark: bool) {
        let (width, height, is_phone) = match screen {
            Screen::Desktop => (1280, 900, false),
            Screen::Phone => (390, 844, true),
        };
        let metrics = json!({
            "width": width, "height": height, "mobile": is_phone, "deviceScaleFactor": 1,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Returns the visible part, or all of the page, as PNG.
    pub fn picture(&mut self, is_whole: bool) -> Vec<u8> {
        let mut ask = json!({ "format": "png", "optimizeForSpeed": false });
        if is_whole {
            let metrics = self.call("Page.getLayoutMetrics", json!({}));
            let size = &metrics["cssContentSize"];
            ask["captureBeyondViewport"] = json!(true);
            ask["clip"] = json!({
                "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1,
            });
        }
        let taken = self.call("Page.captureScreenshot", ask);
        let text = taken["data"].as_str().expect("a picture");
        data_encoding::BASE64.decode(text.as_bytes()).expect("as it is written")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Does not wait for the answer: the browser may end before it sends one.
        let close = json!({ "id": u64::MAX >> 12, "method": "Browser.close" });
        let _ = self.input.write_all(format!("{close}\0").as_bytes());
        let ends = Instant::now() + Duration::from_secs(10);
        while Instant::now() < ends {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the error that an event reports, if any.
fn complaint(said: &Value) -> Option<String> {
    let told = &said["params"];
    match said["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(told["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" => Some(format!("{}: {}", told["type"], told["args"])),
        "Log.entryAdded" => {
            let entry = &told["entry"];
            let is_bad = entry["level"] == "error" || entry["level"] == "warning";
            is_bad.then(|| format!("{}: {} {}", entry["level"], entry["text"], entry["url"]))
        }
        _ => None,
    }
}

/// Timeout for opening a page, long enough for the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);
