//! Compares the orchestrator with its OpenAPI description: schemathesis, an independent tool, sends
//! valid and invalid requests and judges the answers.
//! `UNDERLOAD_SCHEMATHESIS=SEED,EXAMPLES,SECONDS` runs it for longer than the default.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::path::Path;
use std::process::Command;

use underload_fleet::message::NextAnswer;
use underload_orchestrator::http::Limits;
use underload_orchestrator::operator::Role;

use super::client::{Fleet, Sender};
use super::{next, with_plan};

/// A seed, the maximum number of requests of each kind, and seconds for all of them.
const EFFORT: &str = "1,40,120";

/// `None`, with a report of the skip, if the tool is not installed.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("UNDERLOAD_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import schemathesis"]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED {test}: schemathesis is not installed (python3 -m venv, pip install");
    eprintln!("        schemathesis, then UNDERLOAD_PYTHON=VENV/bin/python)");
    None
}

fn session(sender: &Sender) -> String {
    format!("{} {}", sender.session.session, sender.session.key)
}

#[test]
fn schemathesis_finds_no_deviation_from_the_description() {
    let test = "schemathesis_finds_no_deviation_from_the_description";
    let Some(python) = python(test) else { return };
    let (device_per_minute, strangers_per_minute) = (u32::MAX, u32::MAX);
    let limits = Limits { device_per_minute, strangers_per_minute, ..Limits::default() };
    let fleet = Fleet::new(limits);
    let server = with_plan(&fleet);
    let device = fleet.enrolled(1, None);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http");
    let scratch = underload_disk::faults::private_tempdir().expect("a folder");
    let effort = std::env::var("UNDERLOAD_SCHEMATHESIS").unwrap_or_else(|_| EFFORT.to_owned());
    let [seed, examples, seconds]: [&str; 3] =
        effort.split(',').collect::<Vec<_>>().try_into().expect("SEED,EXAMPLES,SECONDS");
    let output = Command::new(python)
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(here.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("http://{}/v1/openapi.json", fleet.address()))
        .args(["--max-examples", examples, "--max-time", seconds, "--seed", seed, "--no-color"])
        .args(["--suppress-health-check", "all", "--generation-database", "none"])
        .args(["--continue-on-failure", "--request-timeout", "60", "--warnings", "off"])
        // The headers depend on the body, so they are not drawn at random.
        .args(["--generation-with-security-parameters", "false"])
        .current_dir(scratch.path())
        .env("SCHEMATHESIS_HOOKS", here.join("schemathesis_hooks.py"))
        .env("UNDERLOAD_TOKEN", fleet.token("chief", Role::Operator))
        .env("UNDERLOAD_DEVICE", session(&device))
        .env("UNDERLOAD_SERVER", session(&server))
        .env("UNDERLOAD_NOW_MS", fleet.now_ms().to_string())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaints}");
    assert!(said.contains("Tested: 11"), "the premise: {said}");
    let other = fleet.enrolled(2, None);
    let _: NextAnswer = fleet.signed(&other, "/v1/next", &next(1)).good();
}
