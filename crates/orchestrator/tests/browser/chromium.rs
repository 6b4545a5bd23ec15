//! A headless Chromium for tests: it reports content wider than the screen, errors of the console and
//! the network, and what axe-core finds.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use underload_browser::{Chromium, DevTools, MISSING, Profile};

/// A tab in a browser process, which ends when this is dropped.
pub struct Browser {
    child: Child,
    tools: DevTools,
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

impl Browser {
    /// Opens a browser for a test; `None`, with a report of the skip, if it is missing.
    pub fn launch(test: &str) -> Option<Self> {
        let chromium = Chromium::find();
        if chromium.is_none() {
            eprintln!("SKIPPED {test}: {MISSING}");
        }
        chromium.map(|chromium| Self::start(&chromium))
    }

    fn start(chromium: &Chromium) -> Self {
        let profile = tempfile::tempdir().expect("a folder for its profile");
        let mut command = chromium.command(Profile::Folder(profile.path()));
        let mut child = command.spawn().expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.expect("it is piped"), output.expect("it is piped"));
        let mut tools = DevTools::new(input, output, PATIENCE).expect("a thread");
        // Errors in a page's workers count, too, once its session sends `Target.setAutoAttach`.
        tools.watch(&["Runtime", "Log"]);
        let session = tools.open_page("").expect("a page");
        Self { child, tools, session, complaints: Vec::new(), _profile: profile }
    }

    /// Sends a command, and returns the browser's answer.
    #[expect(clippy::needless_pass_by_value, reason = "every caller writes it in place")]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let result = self.tools.call(&self.session, method, &parameters);
        self.take_events();
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    fn take_events(&mut self) {
        let events = self.tools.take_events();
        self.complaints.extend(events.iter().filter_map(complaint));
    }

    /// Opens an address, and waits until the page is loaded.
    pub fn open(&mut self, address: &str) {
        let opened = self.tools.navigate(&self.session, address);
        self.take_events();
        opened.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the value of an expression; waits for a promise to resolve.
    pub fn value(&mut self, expression: &str) -> Value {
        let value = self.tools.value(&self.session, expression);
        self.take_events();
        value.unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let ends = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({expression})")) != true {
            assert!(Instant::now() < ends, "never {expression}: {:?}", self.complaints);
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
        let loaded = self.tools.wait(action, |message| message["method"] == "Page.loadEventFired");
        self.take_events();
        loaded.unwrap_or_else(|error| panic!("{error}"));
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
        let _ = self.tools.send("", "Browser.close", &json!({}));
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
