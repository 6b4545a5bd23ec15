//! The playground's trial equals the program's: the same record, samples and series, byte for byte,
//! natively and in WebAssembly.

use std::path::{Path, PathBuf};
use std::process::Command;

use underload_playground::{Settings, record};
use underload_record::schema::{Sample, Series, TrialRecord};
use underload_run::{Destination, Settings as RunSettings, WorldChoice, run};
use underload_scenario::Scenario;
use underload_store::RunDir;

/// Settings at the limits of the page.
const SETTINGS: [&str; 5] = [
    r#"{"rate_kbit_per_s":20000,"rtt_ms":20,"queue":"fifo:limit=256KiB","uploads":1,
       "congestion_control":"cubic","ecn":false,"stream_kbit_per_s":0,"seed":1}"#,
    r#"{"rate_kbit_per_s":10000,"rtt_ms":51,"queue":"codel:profile=linux,target=7ms,ecn=on",
       "uploads":4,"congestion_control":"reno","ecn":true,"stream_kbit_per_s":500,"seed":2}"#,
    r#"{"rate_kbit_per_s":5000,"rtt_ms":100,"queue":"docsis-pie","uploads":2,
       "congestion_control":"bbr","ecn":false,"stream_kbit_per_s":6000,"seed":3}"#,
    r#"{"rate_kbit_per_s":40000,"rtt_ms":10,"queue":"dualpi2","uploads":3,
       "congestion_control":"prague","ecn":true,"stream_kbit_per_s":0,"seed":4}"#,
    r#"{"rate_kbit_per_s":1000,"rtt_ms":0,"queue":"cake","uploads":0,
       "congestion_control":"cubic","ecn":false,"stream_kbit_per_s":2000,"seed":5}"#,
];

fn settings(json: &str) -> Settings {
    Settings::parse(json.as_bytes()).expect("settings")
}

/// Runs the scenario that the page shows, and returns its record.
fn of_program(settings: &Settings) -> String {
    let scenario = Scenario::parse(&settings.scenario(), "playground").expect("a scenario");
    let folder = tempfile::tempdir().expect("a folder");
    let sim = RunSettings {
        world: WorldChoice::Sim,
        destination: Destination::Directory(folder.path().to_owned()),
        ..RunSettings::default()
    };
    run(&scenario, &sim, &mut ()).expect("a run");
    let done = RunDir::read(folder.path()).expect("a run directory");
    let trial: &TrialRecord = &done.record.trials[0];
    let (samples, series): (&[Sample], &[Series]) = (&done.samples, &done.series);
    let lines = [
        serde_json::to_string(trial).expect("a record"),
        serde_json::to_string(samples).expect("samples"),
        serde_json::to_string(series).expect("curves"),
    ];
    lines.join("\n")
}

#[test]
fn the_playground_runs_the_programs_trial() {
    for json in SETTINGS {
        let settings = settings(json);
        let (here, program) = (record(&settings).expect("a trial"), of_program(&settings));
        let place = here.bytes().zip(program.bytes()).position(|(a, b)| a != b);
        assert!(here == program, "{json}: they differ from byte {place:?} on");
        assert!(here.len() > 10_000, "{json}: nothing was recorded");
    }
}

/// The directory to which `cargo xtask book` writes the module.
fn module() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("playground/playground.wasm")
}

/// Calls the module as the page does.
const SCRIPT: &str = r#"
const fs = require("fs");
const [module, settings] = process.argv.slice(1);
WebAssembly.instantiate(fs.readFileSync(module), {}).then(({ instance: { exports } }) => {
    const text = Buffer.from(settings);
    const place = exports.reserve(text.length);
    new Uint8Array(exports.memory.buffer, place, text.length).set(text);
    const length = exports.record();
    process.stdout.write(Buffer.from(exports.memory.buffer, exports.answer(), length));
});
"#;

#[test]
fn a_browser_computes_the_same_bytes() {
    let module = module();
    if !module.exists() {
        let module = module.display();
        eprintln!("SKIPPED a_browser_computes_the_same_bytes: no {module}; cargo xtask book");
        return;
    }
    for json in SETTINGS {
        let output = Command::new("node").args(["-e", SCRIPT]).arg(&module).arg(json).output();
        let Ok(output) = output else {
            eprintln!("SKIPPED a_browser_computes_the_same_bytes: there is no node");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (here, there) = (record(&settings(json)).expect("a trial"), output.stdout);
        assert!(here.as_bytes() == there, "{json}: WebAssembly computes something else");
    }
}
