//! A headless Firefox, controlled by its Marionette protocol over TCP.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::fmt::Write as _;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running browser, which ends when this is dropped.
pub struct Firefox {
    child: Child,
    stream: BufReader<TcpStream>,
    asked: u64,
    _profile: tempfile::TempDir,
}

const PATIENCE: Duration = Duration::from_mins(2);

/// The browser contacts no other servers, and writes its port to a file.
const PREFERENCES: [(&str, &str); 9] = [
    ("marionette.port", "0"),
    ("app.update.disabledForTesting", "true"),
    ("browser.startup.page", "0"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    ("services.settings.server", "\"data:,\""),
    ("toolkit.telemetry.enabled", "false"),
];

/// Returns the browser's program; `None` if it is not installed.
fn program() -> Option<String> {
    let named = std::env::var("UNDERLOAD_FIREFOX").ok().filter(|name| !name.is_empty());
    let usual = ["firefox-esr", "firefox"].map(str::to_owned);
    let mut programs = named.into_iter().chain(usual);
    programs.find(|program| {
        let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        version.is_ok_and(|version| version.status.success())
    })
}

impl Firefox {
    /// Starts the browser. Returns `None`, with a message, if it is not installed.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("SKIPPED {test}: no Firefox (apt install firefox-esr, or UNDERLOAD_FIREFOX)");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder for its profile");
        let mut text = String::new();
        for (name, value) in PREFERENCES {
            writeln!(text, "user_pref(\"{name}\", {value});").expect("a text takes it");
        }
        std::fs::write(profile.path().join("user.js"), text).expect("its preferences");
        let child = Command::new(&program)
            .args(["--headless", "--marionette", "--no-remote", "--profile"])
            .arg(profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let port = port(&profile.path().join("MarionetteActivePort"));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let stream = BufReader::new(stream);
        let mut firefox = Self { child, stream, asked: 0, _profile: profile };
        let hello = firefox.read();
        assert_eq!(hello["marionetteProtocol"], 3, "{hello}");
        // The server's certificate is self-signed.
        firefox.call("WebDriver:NewSession", &json!({ "acceptInsecureCerts": true }));
        firefox.call("WebDriver:SetTimeouts", &json!({ "script": 120_000, "pageLoad": 120_000 }));
        Some(firefox)
    }

    /// Clicks the page's button and waits for the result.
    pub fn measured(&mut self, address: &str) -> Value {
        self.call("WebDriver:Navigate", &json!({ "url": address }));
        self.script("document.querySelector('#start').click()");
        let ends = Instant::now() + PATIENCE;
        loop {
            let result = self.script(
                "return JSON.stringify((window.wrappedJSObject || window).underloadResult)",
            );
            if let Some(text) = result.as_str() {
                return serde_json::from_str(text).expect("a result");
            }
            assert!(Instant::now() < ends, "no result");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn script(&mut self, script: &str) -> Value {
        let asked = json!({ "script": script, "args": [] });
        self.call("WebDriver:ExecuteScript", &asked)["value"].take()
    }

    /// Sends a command and returns the result. An answer is `LENGTH:[1, ID, ERROR, RESULT]`.
    fn call(&mut self, command: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let message = json!([0, self.asked, command, parameters]).to_string();
        let framed = format!("{}:{message}", message.len());
        self.stream.get_mut().write_all(framed.as_bytes()).expect("it reads");
        let mut answer = self.read();
        assert_eq!(answer[1], self.asked, "{command}: {answer}");
        assert!(answer[2].is_null(), "{command}: {answer}");
        answer[3].take()
    }

    fn read(&mut self) -> Value {
        let mut length = String::new();
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("it answers");
            match byte[0] {
                b':' => break,
                digit => length.push(char::from(digit)),
            }
        }
        let mut message = vec![0; length.parse().expect("a length")];
        self.stream.read_exact(&mut message).expect("it answers");
        serde_json::from_slice(&message).expect("JSON")
    }
}

/// Waits for the port that the browser writes into its profile when it listens.
fn port(file: &Path) -> u16 {
    let ends = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Ok(port) = text.trim().parse() {
            return port;
        }
        assert!(Instant::now() < ends, "it never listened");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address from which this machine sends, without sending.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
