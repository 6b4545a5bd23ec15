//! Runs and counts all tests. A test that cannot run prints `SKIPPED name: reason` and does not
//! count as passed.
//!
//! Cargo would run the test programs one after the other, and most of them wait for something at
//! their end. Here two run at once, beside those that wait half of the time, for a browser or a
//! measurement in real time.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;
use std::vec;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::cargo::{cargo, succeed};
use crate::skips;

/// Programs that mostly wait, which take half of the time of all tests.
const WAITING: [&str; 6] = ["browser", "demo", "examples", "kill", "measure_foreign", "web"];

/// Programs that drive a browser. It aborts its requests when the machine gets or loses a network
/// device, as by the tests beside it, so these run in a network of their own where that is allowed.
const BROWSING: [&str; 2] = ["browser", "web"];

/// Runs a program in a network namespace that has a loopback device, and what WebRTC asks for: a
/// device with addresses and default routes, which lead nowhere. Nothing of it changes once the
/// program runs: the devices are up, and have no link-local addresses, which come seconds later.
const OWN_NETWORK: &str = r#"set -e
ip link set lo up
ip link add lan type veth peer name far
ip link set lan addrgenmode none up
ip link set far addrgenmode none up
for try in $(seq 100); do
    ip -oneline link show up | grep -c 'state UP' | grep -q 2 && break
    sleep 0.1
done
ip address add 192.0.2.1/24 dev lan
ip address add 2001:db8::1/64 dev lan nodad
ip route add default via 192.0.2.2
ip route add default via 2001:db8::2
exec "$0" "$@""#;

/// The variable with the seconds for which a server talks to clients that pause at random.
const FUZZ_SECONDS: &str = "UNDERLOAD_FUZZ_SECONDS";
const LOG: &str = "target/test.log";

/// The results of all tests that ran.
#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: Vec<String>,
    /// Seconds and name of each program.
    took: Vec<(f64, String)>,
    ended_badly: Vec<String>,
}

struct Program {
    name: String,
    path: PathBuf,
    /// The folder of the package, where Cargo would run the program.
    folder: PathBuf,
}

impl Program {
    fn command(&self) -> Command {
        let apart = || {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", OWN_NETWORK]);
            command
        };
        let is_allowed =
            || apart().arg("true").output().is_ok_and(|output| output.status.success());
        if !BROWSING.contains(&self.name.as_str()) || !is_allowed() {
            return Command::new(&self.path);
        }
        let mut command = apart();
        command.arg(&self.path);
        command
    }
}

/// Builds and runs the tests of the workspace, or those that `extra` arguments for cargo choose;
/// calls `built` when the first test begins. Of the examples only the program that tests of links
/// run is built: clippy compiles the others.
pub fn run(extra: &[&str], built: &mut dyn FnMut()) -> anyhow::Result<()> {
    let programs = build(extra)?;
    built();
    fs::create_dir_all("target")?;
    let log = Mutex::new(File::create(LOG).context(LOG)?);
    let is_waiting = |program: &Program| WAITING.contains(&program.name.as_str());
    let (waiting, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_waiting);
    let (waiting, others) = (Mutex::new(waiting.into_iter()), Mutex::new(others.into_iter()));
    let mut count = std::thread::scope(|scope| {
        let beside = [&waiting, &others].map(|programs| scope.spawn(|| run_each(programs, &log)));
        let mut count = run_each(&others, &log)?;
        if extra.is_empty() {
            let mut documented = cargo_test(&["--doc"]);
            count.run("documentation", documented.args(["--", "--show-output"]), &log)?;
        }
        beside.into_iter().try_fold(count, |count, beside| {
            anyhow::Ok(count.and(beside.join().expect("running programs does not panic")?))
        })
    })?;
    for skipped in &count.skipped {
        eprintln!("skipped: {skipped}");
        skips::record(skipped.clone());
    }
    if count.ignored > 0 {
        eprintln!("not run, marked #[ignore] (by hand only): {}", count.ignored);
    }
    eprintln!("slowest, in s: {}", count.slowest());
    let passed = count.passed.saturating_sub(count.skipped.len());
    println!("{passed} passed, {} failed, {} skipped", count.failed, count.skipped.len());
    if !count.ended_badly.is_empty() {
        print_failures(Path::new(LOG));
        bail!("failed: {}; everything is in {LOG}", count.ended_badly.join(", "));
    }
    Ok(())
}

fn cargo_test(which: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(which);
    command
}

fn build(extra: &[&str]) -> anyhow::Result<Vec<Program>> {
    let all: &[&str] = &["--lib", "--bins", "--tests"];
    let mut command = cargo_test(if extra.is_empty() { all } else { extra });
    command
        .arg("--no-run")
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit());
    let output = command.output().context("cargo test --no-run")?;
    if !output.status.success() {
        bail!("cargo test --no-run: {}", output.status);
    }
    succeed(cargo("build").args(["--workspace", "--example", "link"]))?;
    let text = String::from_utf8(output.stdout).context("what cargo prints")?;
    let mut programs: Vec<Program> = text.lines().filter_map(program).collect();
    programs.sort_by(|a, b| (&a.folder, &a.path).cmp(&(&b.folder, &b.path)));
    Ok(programs)
}

/// Parses a message of Cargo. Returns `None` unless it reports a test program.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let name = message["target"]["name"].as_str()?.to_owned();
    Some(Program { name, path, folder })
}

/// Runs programs until none is left; several threads may take them from the same list.
fn run_each(programs: &Mutex<vec::IntoIter<Program>>, log: &Mutex<File>) -> anyhow::Result<Count> {
    let mut count = Count::default();
    let next = || programs.lock().expect("no thread panics while it takes a program").next();
    while let Some(program) = next() {
        let mut command = program.command();
        command.arg("--show-output").current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        if std::env::var_os(FUZZ_SECONDS).is_none() {
            command.env(FUZZ_SECONDS, "10");
        }
        count.run(&program.name, &mut command, log)?;
    }
    Ok(count)
}

impl Count {
    /// Runs a program, counts its results and writes its output to the log.
    fn run(&mut self, name: &str, command: &mut Command, log: &Mutex<File>) -> anyhow::Result<()> {
        let start = Instant::now();
        // All output is read, because tests that pass report their skips in it.
        let output = command.output().with_context(|| name.to_owned())?;
        self.took.push((start.elapsed().as_secs_f64(), name.to_owned()));
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).lines().for_each(|line| self.read(line));
        if !output.status.success() {
            self.ended_badly.push(format!("{name} ({})", output.status));
        }
        let mut log = log.lock().expect("no thread panics while it writes");
        writeln!(log, "Running {name}").context(LOG)?;
        log.write_all(&said).context(LOG)
    }

    fn and(mut self, other: Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped);
        self.took.extend(other.took);
        self.ended_badly.extend(other.ended_badly);
        self
    }

    fn read(&mut self, line: &str) {
        if let Some(skipped) = skips::parse(line) {
            self.skipped.push(skipped.to_string());
        }
        let Some((_, totals)) = line.strip_prefix("test result: ").and_then(|l| l.split_once(". "))
        else {
            return;
        };
        for part in totals.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn slowest(&mut self) -> String {
        self.took.sort_by(|a, b| b.0.total_cmp(&a.0));
        let slowest = self.took.iter().take(SLOWEST);
        slowest.map(|(took, name)| format!("{took:.0} {name}")).collect::<Vec<_>>().join(", ")
    }
}

const SLOWEST: usize = 10;

fn print_failures(log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    let signs = ["FAILED", "panicked", "error: ", "error["];
    for line in text.lines().filter(|line| signs.iter().any(|sign| line.contains(sign))) {
        eprintln!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_that_test_programs_print_are_read() {
        let mut count = Count::default();
        for line in [
            "test result: ok. 16 passed; 0 failed; 2 ignored; 0 measured; finished in 0.10s",
            "SKIPPED live_smoke: no /dev/net/tun",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; finished in 12.30s",
        ] {
            count.read(line);
        }
        count.took = vec![(0.1, "underload_aqm".to_owned()), (12.3, "run".to_owned())];
        let mut count = count.and(Count { passed: 1, ..Count::default() });
        assert_eq!((count.passed, count.failed, count.ignored), (20, 1, 2));
        assert_eq!(count.slowest(), "12 run, 0 underload_aqm");
        assert_eq!(count.skipped, ["live_smoke: no /dev/net/tun"]);
    }

    #[test]
    fn test_programs_are_found_among_the_outputs_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml",
                "target":{{"name":"web"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = program(&message(true, r#""/w/target/web-1""#)).expect("a program");
        assert_eq!(
            (found.name.as_str(), found.folder.as_path()),
            ("web", Path::new("/w/crates/a"))
        );
        for other in [message(false, r#""/w/target/a""#), message(true, "null"), String::new()] {
            assert!(program(&other).is_none(), "{other}");
        }
    }
}
