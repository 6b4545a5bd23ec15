//! The page of `serve --web` in Chromium and Firefox beside `underload measure`, one after the
//! other behind the same emulated links.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::checks::{FEATURES, succeed, target};

/// Name of the benchmark.
pub const NAME: &str = "web";
/// What it shows.
pub const WHAT: &str =
    "the page in Chromium and Firefox beside `measure` on one line (6 minutes, as root)";

/// A plain buffer each way, of a tenth and a twentieth of a second.
const LINK: [&str; 10] = [
    "--up",
    "10mbit",
    "--up-queue",
    "fifo:limit=128KiB",
    "--down",
    "40mbit",
    "--down-queue",
    "fifo:limit=256KiB",
    "--delay",
    "10ms",
];
const ROUNDS: usize = 3;
/// The test that drives a browser at an address.
const DRIVER: &str = "a_browser_measures_the_page_at_an_address";
/// What is compared, where it lies in `Numbers`, and how far apart it may be.
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

/// A value for each column; none where too few probes came back.
type Numbers = [Option<f64>; 7];

/// Runs every client three times and prints the medians; with the path of a program, with that one
/// instead of a release build.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let program = match arguments {
        [] => {
            succeed(Command::new("cargo").args(["build", "--release", "-p", "underload"]))?;
            target().join("release/underload")
        }
        [program] => PathBuf::from(program),
        _ => bail!("`bench {NAME}` takes the path of a program, or nothing"),
    };
    let folder = std::path::absolute(target().join(NAME))?;
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let driver = driver()?;
    let bench = Bench { program: std::path::absolute(program)?, driver, folder };
    let server = bench.serve()?;
    let mut clients = vec![Client::Measure];
    clients.extend([Client::Chromium, Client::Firefox].into_iter().filter(|it| it.is_there()));
    let mut all: Vec<Vec<Numbers>> = vec![Vec::new(); clients.len()];
    for round in 0..ROUNDS {
        for (client, results) in clients.iter().zip(&mut all) {
            results.push(bench.measure(*client, &server, round)?);
        }
    }
    print(&clients, &all);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Measure,
    Chromium,
    Firefox,
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Measure => "`measure`",
            Self::Chromium => "Chromium",
            Self::Firefox => "Firefox",
        }
    }

    /// The program, as it is usually called.
    fn program(self) -> &'static str {
        if self == Self::Firefox { "firefox-esr" } else { "chromium" }
    }

    /// Whether it is installed; if not, that is told.
    fn is_there(self) -> bool {
        let version = Command::new(self.program()).arg("--version").output();
        let is_there = version.is_ok_and(|version| version.status.success());
        if !is_there {
            eprintln!("SKIPPED {}: apt install {}", self.name(), self.program());
        }
        is_there
    }
}

/// A server under way; it ends when this is dropped.
struct Server {
    child: Child,
    _output: BufReader<ChildStdout>,
    port: u64,
    page: u64,
    fingerprint: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Neither fails but for a process that has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Bench {
    program: PathBuf,
    driver: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Whom it knows is this benchmark's alone.
        command.env("HOME", &self.folder).env_remove("XDG_DATA_HOME").stdin(Stdio::null());
        command
    }

    fn serve(&self) -> anyhow::Result<Server> {
        let mut command = self.command();
        command.args(["serve", "--bind", "0.0.0.0", "--port", "0", "--web", "0", "--json"]);
        command.args(["--anonymous", "--quota", "1000GB", "--anonymous-quota", "1000GB"]);
        command.args(["--capacity-up", "1gbit", "--capacity-down", "1gbit", "--interface", "none"]);
        let mut child = command.stdout(Stdio::piped()).spawn().context("serve")?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let mut text = String::new();
        let listens: Value = loop {
            if output.read_line(&mut text)? == 0 {
                bail!("`serve` ended: {text}");
            }
            if let Ok(document) = serde_json::from_str(&text) {
                break document;
            }
        };
        let of_address = |name: &str| {
            let text = listens.pointer(name).and_then(Value::as_str);
            let port = text.and_then(|text| text.rsplit(':').next()?.parse().ok());
            port.with_context(|| format!("no {name} in {listens}"))
        };
        let fingerprint = listens["fingerprint"].as_str().context("no fingerprint")?.to_owned();
        let (port, page) = (of_address("/addresses/0")?, of_address("/other_tools/0/address")?);
        Ok(Server { child, _output: output, port, page, fingerprint })
    }

    /// One measurement by one client behind links of its own.
    fn measure(&self, client: Client, server: &Server, round: usize) -> anyhow::Result<Numbers> {
        let file = self.folder.join(format!("{}-{round}.json", client.program()));
        let mut command = self.command();
        command.arg("link").args(LINK).args(["--", "sh", "-c"]);
        if client == Client::Measure {
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
        } else {
            // As `measure` sends; else a browser's uploads go as this machine happens to prefer.
            let script = format!(
                "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control && \
                 UNDERLOAD_WEB_URL=https://$UNDERLOAD_BASE:{}/ \
                 exec \"$0\" --ignored --exact {DRIVER}",
                server.page
            );
            command.arg(script).arg(&self.driver).env("UNDERLOAD_WEB_RESULT", &file);
            if client == Client::Firefox {
                command.env("UNDERLOAD_FIREFOX", client.program());
            }
        }
        succeed(&mut command)?;
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let document: Value = serde_json::from_str(&text)?;
        let numbers =
            if client == Client::Measure { of_measure(&document) } else { of_page(&document) };
        eprintln!("{} {}: {numbers:?}", client.name(), round + 1);
        if let Some(probe) = document["probe"].as_str() {
            eprintln!("  {probe}; lost {}", document["lost_up_down"]);
        }
        Ok(numbers)
    }
}

/// The test program that drives browsers, built.
fn driver() -> anyhow::Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--workspace", "--test", "web"]).args(FEATURES);
    command.args(["--no-run", "--message-format=json"]).stderr(Stdio::inherit());
    let output = command.output().context("cargo test --no-run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = messages.filter(|message| message["target"]["name"] == "web");
    let path = found.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.filter(|path| Path::exists(path)).context("the test program was not built")
}

/// Of the document of `measure --json`.
fn of_measure(document: &Value) -> Numbers {
    let finding = |step: &str| {
        let findings = document["findings"].as_array().into_iter().flatten();
        findings.clone().find(|finding| finding["step"] == step).cloned().unwrap_or_default()
    };
    let of = |step: &str, phase: &str, name: &str| {
        let finding = finding(step);
        let latencies = finding["latencies"].as_array().into_iter().flatten();
        let mut ours = latencies.filter(|it| it["probe"] == "probe" && it["phase"] == phase);
        ours.next().and_then(|it| it[name].as_f64())
    };
    [
        of("down", "idle", "p50_ms"),
        of("down", "load", "p50_ms"),
        of("down", "load", "p99_ms"),
        finding("down")["goodput_down_mbit_s"].as_f64(),
        of("up", "load", "p50_ms"),
        of("up", "load", "p99_ms"),
        finding("up")["goodput_up_mbit_s"].as_f64(),
    ]
}

/// Of the file that the page keeps.
fn of_page(document: &Value) -> Numbers {
    let of = |phase: &str, name: &str| {
        let rows = document["summary"].as_array().into_iter().flatten();
        rows.clone().find(|row| row["phase"] == phase).and_then(|row| row[name].as_f64())
    };
    [
        of("idle", "p50"),
        of("down", "p50"),
        of("down", "p99"),
        of("down", "rate"),
        of("up", "p50"),
        of("up", "p99"),
        of("up", "rate"),
    ]
}

/// The middle one; none unless all rounds have one.
fn median(results: &[Numbers], column: usize) -> Option<f64> {
    let values: Option<Vec<f64>> = results.iter().map(|numbers| numbers[column]).collect();
    let mut values = values?;
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn print(clients: &[Client], all: &[Vec<Numbers>]) {
    let titles = COLUMNS.map(|(title, _)| title).join(" | ");
    println!("| medians of {ROUNDS} | {titles} |\n|---{}|", "|---".repeat(COLUMNS.len()));
    let base = &all[0];
    for (client, results) in clients.iter().zip(all) {
        let value =
            |column| median(results, column).map_or("-".to_owned(), |it| format!("{it:.1}"));
        let values: Vec<String> = (0..COLUMNS.len()).map(value).collect();
        println!("| {} | {} |", client.name(), values.join(" | "));
        if *client == Client::Measure {
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
        let differences: Vec<String> = COLUMNS.iter().enumerate().map(difference).collect();
        println!("| {}, less | {} |", client.name(), differences.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_both_documents_and_are_missing_where_they_are() {
        let page = serde_json::json!({ "summary": [
            { "phase": "idle", "p50": 1.0, "p99": null },
            { "phase": "down", "p50": 2.0, "p99": 3.0, "rate": 4.0 },
            { "phase": "up", "p50": 5.0, "p99": null, "rate": 7.0 },
        ]});
        let expected = [Some(1.0), Some(2.0), Some(3.0), Some(4.0), Some(5.0), None, Some(7.0)];
        assert_eq!(of_page(&page), expected);
        let latency = |phase, p50, p99| {
            let probe = "probe";
            serde_json::json!({ "probe": probe, "phase": phase, "p50_ms": p50, "p99_ms": p99 })
        };
        let measured = serde_json::json!({ "findings": [
            { "step": "down", "goodput_down_mbit_s": 4.0,
              "latencies": [latency("idle", 1.0, 0.0), latency("load", 2.0, 3.0)] },
            { "step": "up", "goodput_up_mbit_s": 7.0,
              "latencies": [{ "probe": "other", "phase": "load", "p50_ms": 9.0 },
                            latency("load", 5.0, 6.0)] },
        ]});
        assert_eq!(of_measure(&measured)[4..], [Some(5.0), Some(6.0), Some(7.0)]);
        assert_eq!(of_measure(&measured)[..4], expected[..4]);
        assert_eq!(median(&[expected; 3], 0), Some(1.0));
        assert_eq!(median(&[expected; 3], 5), None);
    }
}
