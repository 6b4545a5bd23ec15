//! Compares the page of `serve --web` in Chromium and Firefox, with and without workers, with
//! `underload measure`: one after the other behind equal emulated links, optionally beside other
//! programs that keep the processor busy.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::numbers::{self, row, rule};
use crate::process::{Running, build_program, fresh_folder, succeed, target};

pub const NAME: &str = "web";
pub const WHAT: &str =
    "the page in Chromium and Firefox beside `measure` on one line (8 minutes, as root)";

/// Plain buffers of about 0.1 s up and 0.05 s down.
const LINK: [&str; 10] = [
    "--up", "10mbit", "--up-queue", "fifo:limit=128KiB", "--down", "40mbit", "--down-queue",
    "fifo:limit=256KiB", "--delay", "10ms",
];
const ROUNDS: usize = 3;
/// The test that drives a browser to an address.
const DRIVER: &str = "a_browser_measures_the_page_at_an_address";
/// The compared values, in the order of [`Numbers`], and their accepted differences.
const COLUMNS: [(&str, Goal); 7] = [
    ("idle p50, ms", Goal::Ms(3.0)),
    ("down p50, ms", Goal::Ms(3.0)),
    ("down p99, ms", Goal::Ms(10.0)),
    ("down Mbit/s", Goal::Percent(5.0)),
    ("up p50, ms", Goal::Ms(3.0)),
    ("up p99, ms", Goal::Ms(10.0)),
    ("up Mbit/s", Goal::Percent(5.0)),
];

#[derive(Clone, Copy)]
enum Goal {
    Ms(f64),
    Percent(f64),
}

/// A value for each of [`COLUMNS`], and the delay in the page's own device under load down and up,
/// ms (p99); `None` if too few probes were answered.
type Numbers = [Option<f64>; 9];
/// Positions of the 99th percentiles, and of the device's own delay that belongs to each.
const OWN: [(usize, usize); 2] = [(2, 7), (5, 8)];
/// A page warns of a delay in its device above this, ms.
const OWN_WARNED_MS: f64 = 10.0;

/// Runs every client three times and prints the medians. PROGRAM replaces a release build; `--busy
/// N` starts N programs that only compute.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let (program, busy) = match arguments {
        [] => (None, 0),
        ["--busy", busy] => (None, busy.parse()?),
        [program] => (Some(*program), 0),
        [program, "--busy", busy] => (Some(*program), busy.parse()?),
        _ => bail!("cargo xtask bench {NAME} [PROGRAM] [--busy N]"),
    };
    let program = program.map_or_else(build_program, |program| Ok(PathBuf::from(program)))?;
    let folder = std::path::absolute(target().join(NAME))?;
    fresh_folder(&folder)?;
    let driver = driver()?;
    let bench = Bench { program: std::path::absolute(program)?, driver, folder };
    let server = bench.serve()?;
    let clients: Vec<Client> = CLIENTS.into_iter().filter(Client::is_installed).collect();
    let mut all: Vec<Vec<Numbers>> = vec![Vec::new(); clients.len()];
    let mut computing = Vec::new();
    for _ in 0..busy {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        computing.push(Running(command.spawn().context("a program that computes")?));
    }
    for round in 0..ROUNDS {
        for (client, results) in clients.iter().zip(&mut all) {
            results.push(bench.measure(*client, &server, round)?);
        }
    }
    print(&clients, &all);
    Ok(())
}

/// A measuring client: its name, the program of a browser, the query of the page's address.
#[derive(Clone, Copy)]
struct Client {
    name: &'static str,
    browser: Option<&'static str>,
    query: &'static str,
}

const CLIENTS: [Client; 5] = [
    Client { name: "`measure`", browser: None, query: "" },
    Client { name: "Chromium", browser: Some("chromium"), query: "" },
    Client { name: "Chromium, no workers", browser: Some("chromium"), query: "?workers=none" },
    Client { name: "Firefox", browser: Some("firefox-esr"), query: "" },
    Client { name: "Firefox, no workers", browser: Some("firefox-esr"), query: "?workers=none" },
];

impl Client {
    /// Whether the client is installed; reports a skip if not.
    fn is_installed(&self) -> bool {
        let Some(browser) = self.browser else { return true };
        let version = Command::new(browser).arg("--version").output();
        let is_installed = version.is_ok_and(|version| version.status.success());
        if !is_installed {
            crate::process::skip(self.name, &format!("apt install {browser}"));
        }
        is_installed
    }
}

struct Server {
    _process: Running,
    _output: BufReader<ChildStdout>,
    port: u64,
    page: u64,
    fingerprint: String,
}

struct Bench {
    program: PathBuf,
    driver: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // A separate home, so that the fingerprints of this benchmark do not mix with others.
        command.env("HOME", &self.folder).env_remove("XDG_DATA_HOME").stdin(Stdio::null());
        command
    }

    fn serve(&self) -> anyhow::Result<Server> {
        let mut command = self.command();
        command.args(["serve", "--bind", "0.0.0.0", "--port", "0", "--web", "0", "--json"]);
        command.args(["--anonymous", "--quota", "1000GB", "--anonymous-quota", "1000GB"]);
        command.args(["--capacity-up", "1gbit", "--capacity-down", "1gbit", "--interface", "none"]);
        let (process, mut output) = Running::start(&mut command)?;
        let mut text = String::new();
        let listens: Value = loop {
            if output.read_line(&mut text)? == 0 {
                bail!("`serve` ended: {text}");
            }
            if let Ok(document) = serde_json::from_str(&text) {
                break document;
            }
        };
        let port_of = |name: &str| {
            let text = listens.pointer(name).and_then(Value::as_str);
            let port = text.and_then(|text| text.rsplit(':').next()?.parse().ok());
            port.with_context(|| format!("no {name} in {listens}"))
        };
        let fingerprint = listens["fingerprint"].as_str().context("no fingerprint")?.to_owned();
        let (port, page) = (port_of("/addresses/0")?, port_of("/other_tools/0/address")?);
        Ok(Server { _process: process, _output: output, port, page, fingerprint })
    }

    /// Runs one measurement by one client behind separate links.
    fn measure(&self, client: Client, server: &Server, round: usize) -> anyhow::Result<Numbers> {
        let named: String = client.name.chars().filter(char::is_ascii_alphabetic).collect();
        let file = self.folder.join(format!("{named}-{round}.json"));
        let mut command = self.command();
        command.arg("link").args(LINK).args(["--", "sh", "-c"]);
        if let Some(browser) = client.browser {
            // `measure` also sends with cubic; a browser would use the machine's default.
            let script = format!(
                "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control && \
                 UNDERLOAD_WEB_URL=https://$UNDERLOAD_BASE:{}/{} \
                 exec \"$0\" --ignored --exact {DRIVER}",
                server.page, client.query
            );
            command.arg(script).arg(&self.driver).env("UNDERLOAD_WEB_RESULT", &file);
            if browser == "firefox-esr" {
                command.env("UNDERLOAD_FIREFOX", browser);
            }
        } else {
            let Server { port, fingerprint, .. } = server;
            let out = self.folder.join(format!("measured-{round}"));
            let script = format!(
                "exec \"$0\" measure $UNDERLOAD_BASE:{port} --trust {fingerprint} --flows 3 \
                 --json --out {}",
                out.display()
            );
            command.arg(script).arg(&self.program);
            let to = File::create(&file).with_context(|| file.display().to_string())?;
            command.stdout(to).stderr(Stdio::null());
        }
        succeed(&mut command)?;
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let document: Value = serde_json::from_str(&text)?;
        let is_page = client.browser.is_some();
        let numbers = if is_page { of_page(&document) } else { of_measure(&document) };
        eprintln!("{} {}: {numbers:?}", client.name, round + 1);
        if is_page {
            let rows = document["summary"].as_array().into_iter().flatten();
            let own = rows.map(|row| format!("{} {}", row["held_up_ms_p99"], row["mirror_ms_p99"]));
            let own: Vec<String> = own.collect();
            let own = own.join(", ");
            let [probe, threads, lost] =
                ["probe", "threads", "lost_up_down"].map(|name| &document[name]);
            eprintln!("  {probe} {threads}; lost {lost}; held up, mirrored (p99, ms): {own}");
        }
        Ok(numbers)
    }
}

/// Builds the test program that drives browsers.
fn driver() -> anyhow::Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--workspace", "--test", "web"]);
    command.args(["--no-run", "--message-format=json"]).stderr(Stdio::inherit());
    let output = command.output().context("cargo test --no-run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = messages.filter(|message| message["target"]["name"] == "web");
    let path = found.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.filter(|path| Path::exists(path)).context("the test program was not built")
}

/// Reads the document of `measure --json`.
fn of_measure(document: &Value) -> Numbers {
    let finding = |step: &str| {
        let findings = document["findings"].as_array().into_iter().flatten();
        findings.clone().find(|finding| finding["step"] == step).cloned().unwrap_or_default()
    };
    let of = |step: &str, phase: &str, name: &str| {
        let finding = finding(step);
        let latencies = finding["latencies"].as_array().into_iter().flatten();
        let mut ours =
            latencies.filter(|it| it["probe"] == "probe" && it["window"]["phase"] == phase);
        ours.next().and_then(|it| Some(it["distribution"][name].as_f64()? / 1e6))
    };
    [
        of("down", "idle", "p50_ns"),
        of("down", "load", "p50_ns"),
        of("down", "load", "p99_ns"),
        finding("down")["goodput_down_mbit_s"].as_f64(),
        of("up", "load", "p50_ns"),
        of("up", "load", "p99_ns"),
        finding("up")["goodput_up_mbit_s"].as_f64(),
        None,
        None,
    ]
}

/// Reads the file that the page stores.
fn of_page(document: &Value) -> Numbers {
    let of = |phase: &str, name: &str| {
        let rows = document["summary"].as_array().into_iter().flatten();
        rows.clone().find(|row| row["phase"] == phase).and_then(|row| row[name].as_f64())
    };
    let own = |phase: &str| {
        let both = ["held_up_ms_p99", "mirror_ms_p99"].map(|name| of(phase, name));
        both.into_iter().flatten().reduce(f64::max)
    };
    [
        of("idle", "p50"),
        of("down", "p50"),
        of("down", "p99"),
        of("down", "rate"),
        of("up", "p50"),
        of("up", "p99"),
        of("up", "rate"),
        own("down"),
        own("up"),
    ]
}

/// Returns the median of a column; `None` unless most rounds have a value.
fn median(results: &[Numbers], column: usize) -> Option<f64> {
    let values: Vec<f64> = results.iter().filter_map(|numbers| numbers[column]).collect();
    if values.len() * 2 <= results.len() { None } else { numbers::median(values) }
}

fn print(clients: &[Client], all: &[Vec<Numbers>]) {
    let titles = COLUMNS.map(|(title, _)| title.to_owned());
    println!("{}", row([format!("medians of {ROUNDS}")].into_iter().chain(titles)));
    println!("{}", rule(COLUMNS.len() + 1));
    let base = &all[0];
    for (client, results) in clients.iter().zip(all) {
        let value =
            |column| median(results, column).map_or("-".to_owned(), |it| format!("{it:.1}"));
        let name = client.name.to_owned();
        println!("{}", row([name].into_iter().chain((0..COLUMNS.len()).map(value))));
        if client.browser.is_none() {
            continue;
        }
        let difference = |(column, (_, goal)): (usize, &(&str, Goal))| {
            let (Some(own), Some(base)) = (median(results, column), median(base, column)) else {
                return "missed: none".to_owned();
            };
            let (apart, most, unit) = match goal {
                Goal::Ms(most) => (own - base, *most, ""),
                Goal::Percent(most) => (100.0 * (own / base - 1.0), *most, " %"),
            };
            let met = if apart.abs() <= most { "" } else { ", missed" };
            format!("{apart:+.1}{unit}{met}")
        };
        let name = format!("{}, less", client.name);
        println!("{}", row([name].into_iter().chain(COLUMNS.iter().enumerate().map(difference))));
        let Singles { near, near_warned, far, far_warned } = singles(results, base);
        eprintln!(
            "{}: single 99th percentiles: {near} within the goal, where the page warned \
             {near_warned} times that the device was busy; {far} not, where it warned {far_warned} \
             times",
            client.name
        );
    }
}

/// Counts the single 99th percentiles within the goal and outside of it, and how many of each the
/// page accompanied by a warning that its device was busy.
#[derive(Debug, Default, PartialEq)]
struct Singles {
    near: usize,
    near_warned: usize,
    far: usize,
    far_warned: usize,
}

fn singles(results: &[Numbers], base: &[Numbers]) -> Singles {
    let mut singles = Singles::default();
    for (column, own) in OWN {
        let (Goal::Ms(most), Some(base)) = (COLUMNS[column].1, median(base, column)) else {
            continue;
        };
        for numbers in results {
            let is_warned = usize::from(numbers[own].is_some_and(|own| own > OWN_WARNED_MS));
            if numbers[column].is_some_and(|value| (value - base).abs() <= most) {
                singles.near += 1;
                singles.near_warned += is_warned;
            } else {
                singles.far += 1;
                singles.far_warned += is_warned;
            }
        }
    }
    singles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_both_documents_and_missing_ones_are_none() {
        let page = serde_json::json!({ "summary": [
            { "phase": "idle", "p50": 1.0, "p99": null },
            { "phase": "down", "p50": 2.0, "p99": 3.0, "rate": 4.0, "held_up_ms_p99": 8.0,
              "mirror_ms_p99": null },
            { "phase": "up", "p50": 5.0, "p99": null, "rate": 7.0 },
        ]});
        let [five, seven, eight] = [5.0, 7.0, 8.0].map(Some);
        let expected = [Some(1.0), Some(2.0), Some(3.0), Some(4.0), five, None, seven, eight, None];
        assert_eq!(of_page(&page), expected);
        let latency = |probe, phase, p50_ms, p99_ms| {
            let [p50_ns, p99_ns] = [p50_ms, p99_ms].map(|ms: u64| ms * 1_000_000);
            serde_json::json!({ "probe": probe, "window": { "phase": phase },
                                "distribution": { "p50_ns": p50_ns, "p99_ns": p99_ns } })
        };
        let measured = serde_json::json!({ "findings": [
            { "step": "down", "goodput_down_mbit_s": 4.0,
              "latencies": [latency("probe", "idle", 1, 0), latency("probe", "load", 2, 3)] },
            { "step": "up", "goodput_up_mbit_s": 7.0,
              "latencies": [latency("other", "load", 9, 9), latency("probe", "load", 5, 6)] },
        ]});
        assert_eq!(of_measure(&measured)[4..7], [Some(5.0), Some(6.0), Some(7.0)]);
        assert_eq!(of_measure(&measured)[..4], expected[..4]);
        assert_eq!(median(&[expected; 3], 0), Some(1.0));
        assert_eq!(median(&[expected; 3], 5), None);
        let (mut one, mut two) = (expected, expected);
        (one[5], two[5]) = (Some(1.0), Some(2.0));
        assert_eq!(median(&[one, expected, two], 5), Some(2.0));
        assert_eq!(median(&[one, expected], 5), None);
        // The p99 down of both programs; `measure` has no p99 up to compare with.
        let mut far = expected;
        (far[2], far[7]) = (Some(13.1), Some(10.1));
        let counted = Singles { near: 1, near_warned: 0, far: 1, far_warned: 1 };
        assert_eq!(singles(&[expected, far], &[expected]), counted);
    }
}
