//! `underload path` against real packets: one line per discipline, in real time.
//!
//! ```text
//! cargo build --release -p underload
//! cargo run --release -p underload --example queue_lab -- \
//!     target/release/underload [RATE] [DELAY] [CC]
//! ```
//!
//! For each discipline, `underload link` puts it in front of an emulated link (default 20mbit,
//! 20ms each way, cubic), and `underload path` inside examines the way up to an `underload serve`
//! outside. About 20 s each; needs root. A line that the tool calls invalid was measured on a
//! machine that was too busy, and counts for nothing.
#![expect(clippy::print_stderr, reason = "an example prints its progress")]
#![expect(clippy::print_stdout, reason = "the table is the result of the program")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use serde_json::Value;

/// SPEC of the queue, and the family that should be found.
const QUEUES: [(&str, &str); 13] = [
    ("fifo:limit=64KiB", "drop-tail"),
    ("fifo:limit=512KiB", "drop-tail"),
    ("head-drop:limit=256KiB", "drop-tail"),
    ("buffer-control:target=250KiB", "drop-tail"),
    ("bode:profile=paper", "drop-tail"),
    ("pie:profile=rfc", "single-queue-aqm"),
    ("pie:profile=linux", "single-queue-aqm"),
    ("docsis-pie", "single-queue-aqm"),
    ("codel:profile=linux", "single-queue-aqm"),
    ("red", "single-queue-aqm"),
    ("fq-codel", "flow-queuing"),
    ("dualpi2", "dual-queue"),
    ("docsis-lld", "dual-queue"),
];

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match examine_all(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue_lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A process that is killed when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn examine_all(arguments: &[String]) -> Result<(), Error> {
    let argument = |index: usize, default: &'static str| {
        arguments.get(index).map_or(default, String::as_str).to_owned()
    };
    let program = std::fs::canonicalize(argument(0, "target/release/underload"))?;
    let (rate, delay, control) = (argument(1, "20mbit"), argument(2, "20ms"), argument(3, "cubic"));
    let folder = tempfile::tempdir()?;
    let (_server, port) = serve(&program, folder.path())?;
    println!("{rate}, {delay} each way, {control}\n");
    println!("| queue | should be | verdict | probability | nearest | valid |");
    println!("|---|---|---|---|---|---|");
    let (mut valid, mut told, mut right) = (0, 0, 0);
    for (queue, truth) in QUEUES {
        let found = match examine(&program, folder.path(), port, [&rate, &delay, queue, &control]) {
            Ok(found) => found,
            Err(error) => {
                println!("| `{queue}` | {truth} | {error} | | | |");
                continue;
            }
        };
        let direction = &found["directions"][0];
        let answer = &direction["queue"]["answer"];
        let is_valid = direction["validity"]["verdict"] == "valid";
        let family = answer["family"].as_str().unwrap_or("-");
        let is_known = answer["answer"] == "known";
        valid += u32::from(is_valid);
        told += u32::from(is_valid && is_known);
        right += u32::from(is_valid && is_known && family == truth);
        let verdict = answer["answer"].as_str().unwrap_or("none");
        let like = answer["like"].as_str().map_or_else(String::new, |like| format!(", {like}"));
        println!(
            "| `{queue}` | {truth} | {verdict}: {family}{like} | {:.3} | {} | {} |",
            answer["probability"].as_f64().unwrap_or(0.0),
            direction["queue"]["nearest"].as_str().unwrap_or("-"),
            direction["validity"]["verdict"].as_str().unwrap_or("-"),
        );
        eprintln!("{}", direction["evidence"]);
    }
    println!("\n{valid} valid, {told} told, {right} right");
    Ok(())
}

fn serve(program: &Path, folder: &Path) -> Result<(Server, u16), Error> {
    let mut command = Command::new(program);
    command.args(["serve", "--bind", "0.0.0.0", "--port", "0", "--identity", "identity"]);
    // The server accepts every client, because it ends with this program.
    command.args(["--anonymous", "--anonymous-quota", "1000GB"]).current_dir(folder);
    let mut server = Server(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let mut line = String::new();
    let pipe = server.0.stdout.take().ok_or("the server has no output")?;
    BufReader::new(pipe).read_line(&mut line)?;
    let address = line.split_whitespace().nth(1).ok_or("the server does not listen")?;
    let port = address.rsplit_once(':').ok_or("no port")?.1.parse()?;
    Ok((server, port))
}

fn examine(
    program: &Path,
    folder: &Path,
    port: u16,
    [rate, delay, queue, control]: [&str; 4],
) -> Result<Value, Error> {
    // Not all of the server's rate: a session whose client died with its link remains until its
    // lease expires.
    let script = format!(
        "exec {} path $UNDERLOAD_BASE:{port} --up --no-marks --no-treatment --json \
         --congestion-control {control} --rate-max 200mbit",
        program.display()
    );
    let output = Command::new(program)
        .args(["link", "--up", rate, "--up-queue", queue, "--delay", delay, "--", "sh", "-c"])
        .arg(script)
        .env("XDG_DATA_HOME", folder)
        .current_dir(folder)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("failed").to_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
