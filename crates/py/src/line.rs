//! Measurements of an access line, and the stored runs of weeks.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use underload_line::history::{History, collect, followed};
use underload_line::target::Family;
use underload_line::{
    BadSetting, LineError, Locate, NO_VERDICT, Place, Progress, Request, Session, Setting,
    UDP_PACKET_BYTES, class, label, preset,
};
use underload_measure::Tier;
use underload_probe::control::in_full;
use underload_probe::preset::{Knobs, LoadDirections, UdpLoad};
use underload_record::history::Windows;
use underload_record::schema::Direction;
use underload_record::text::plain_text;
use underload_store::RunDir;
use underload_terminal::COMMIT;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::{down_and_up, duration, rate};

use crate::errors::raise;
use crate::interruptible::run_interruptible;
use crate::run::Run;

/// The arguments of `underload.measure`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Arguments {
    server: String,
    preset: String,
    load: Option<String>,
    flows: Option<u32>,
    congestion_control: String,
    udp: Option<String>,
    burst: u16,
    classes: Vec<String>,
    duration: Option<String>,
    idle: Option<String>,
    interval: Option<String>,
    tier: Option<String>,
    trust: String,
    token_file: Option<PathBuf>,
    wait: Option<String>,
    family: Option<u8>,
    keep_address: bool,
    dev: Option<String>,
    #[pyo3(item("where"))]
    where_delayed: bool,
    peer: Option<String>,
    label: Option<String>,
    out: Option<PathBuf>,
}

impl Arguments {
    fn request(&self) -> Result<Request, String> {
        fn read<T>(
            name: &str,
            text: Option<&String>,
            parse: impl Fn(&str) -> Result<T, String>,
        ) -> Result<Option<T>, String> {
            text.map(|text| parse(text).map_err(|error| format!("{name}: {error}"))).transpose()
        }
        if self.server == "ndt7" || self.server.contains("://") {
            let expected = "expected the name or address of a machine that runs `underload serve`";
            return Err(format!("server: `{}`; {expected}", self.server));
        }
        if self.peer.is_some() && !self.where_delayed {
            return Err("peer: only accepted with where=True".to_owned());
        }
        let directions = match self.load.as_deref() {
            None => LoadDirections::AsPreset,
            Some("up") => LoadDirections::Only(Direction::Up),
            Some("down") => LoadDirections::Only(Direction::Down),
            Some("both") => LoadDirections::Both,
            Some(other) => return Err(format!("load: `{other}`; expected up, down or both")),
        };
        let time = |name, text: &Option<String>| read(name, text.as_ref(), duration);
        let classes = self.classes.iter().map(|text| class(text));
        let request = Request {
            host: self.server.clone(),
            preset: preset(&self.preset).map_err(|error| format!("preset: {error}"))?,
            knobs: Knobs {
                congestion_control: self.congestion_control.clone(),
                directions,
                flows: self.flows,
                udp: read("udp", self.udp.as_ref(), rate)?.map(|rate_bit_per_s| UdpLoad {
                    rate_bit_per_s,
                    packet_bytes: UDP_PACKET_BYTES,
                    burst_packets: self.burst,
                }),
                duration: time("duration", &self.duration)?,
                idle: time("idle", &self.idle)?,
                interval: time("interval", &self.interval)?,
                classes: classes
                    .collect::<Result<_, _>>()
                    .map_err(|error| format!("classes: {error}"))?,
            },
            tier: read("tier", self.tier.as_ref(), down_and_up)?
                .map(|(down_bit_per_s, up_bit_per_s)| Tier { down_bit_per_s, up_bit_per_s }),
            trust: self.trust.clone(),
            token_file: self.token_file.clone(),
            wait: time("wait", &self.wait)?,
            family: family(self.family)?,
            keep_address: self.keep_address,
            interface: self.dev.clone(),
            locate: self.where_delayed.then(|| Locate { peer: self.peer.clone() }),
            bytes_max: None,
            label: read("label", self.label.as_ref(), label)?.unwrap_or_default(),
        };
        request.check().map_err(|error| words(&error))?;
        Ok(request)
    }
}

/// Names a setting as the argument of `underload.measure`.
fn words(BadSetting { setting, source }: &BadSetting) -> String {
    let argument = match setting {
        Setting::Classes => "classes",
        Setting::CongestionControl => "congestion_control",
        setting => setting.name(),
    };
    format!("{argument}: {}", in_full(source))
}

fn family(number: Option<u8>) -> Result<Family, String> {
    match number {
        None => Ok(Family::Any),
        Some(4) => Ok(Family::V4),
        Some(6) => Ok(Family::V6),
        Some(other) => Err(format!("family: {other}; expected 4 or 6")),
    }
}

/// Collects the notes of a session.
struct Notes(Vec<String>);

impl Progress for Notes {
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// Measures a line and stores the run. Returns the document of `underload measure --json`, the run
/// directory, and notes about the session.
#[pyfunction]
pub fn measure(py: Python<'_>, arguments: Arguments) -> PyResult<(String, PathBuf, Vec<String>)> {
    let request = arguments.request().map_err(|problem| raise(py, "RunError", (problem,)))?;
    let place = arguments.out.as_deref().map_or(Place::Default, Place::Directory);
    let interrupt = Interrupt::default();
    let mut notes = Notes(Vec::new());
    let measured = run_interruptible(py, interrupt.flag(), || -> Result<_, LineError> {
        place.check_vacant()?;
        let test = Session::open(&request, &mut notes, &interrupt.shared())?;
        let (test, stop) = (Box::new(test), interrupt.shared());
        let measured = underload_line::measure(test, &request, place, COMMIT, &stop)?;
        measured.write_files()?;
        Ok(measured)
    })?;
    let measured = measured.map_err(|error| line_error(py, &error, None))?;
    let document = serde_json::to_string(&measured)
        .map_err(|error| raise(py, "RunError", (error.to_string(),)))?;
    let path = measured.directory.clone();
    if !measured.has_verdict() {
        notes.0.push(NO_VERDICT.to_owned());
    }
    match measured.into_result(interrupt.flag()) {
        Ok(()) => Ok((document, path, notes.0)),
        Err(error) => Err(line_error(py, &error, Some(&path))),
    }
}

/// Compares the runs in a directory over time. Returns the document of `underload history --json`.
#[pyfunction]
pub fn history(
    py: Python<'_>,
    directory: PathBuf,
    metric: &str,
    baseline: &str,
    recent: &str,
) -> PyResult<String> {
    let metric = followed(metric)
        .map_err(|error| raise(py, "NoSuchMetric", (format!("metric: `{metric}`; {error}"),)))?;
    let seconds = |name: &str, text: &str| {
        let time =
            duration(text).map_err(|error| raise(py, "Error", (format!("{name}: {error}"),)));
        time.map(|time| time.as_secs() as i64)
    };
    let windows = Windows {
        baseline_s: seconds("baseline", baseline)?,
        recent_s: seconds("recent", recent)?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let store_error = |words: String| raise(py, "StoreError", (words,));
    let collected = py.detach(|| collect(&directory, now.as_secs() as i64));
    let collected = collected.map_err(|error| store_error(plain_text(&in_full(&error))))?;
    if collected.runs.is_empty() {
        return Err(store_error(format!("{}: no run that can be read", directory.display())));
    }
    Ok(py.detach(|| History::new(collected, metric, windows).document()).to_string())
}

/// Converts an error of the library. The exception has the finished steps of the run in
/// `directory`.
fn line_error(py: Python<'_>, error: &LineError, directory: Option<&Path>) -> PyErr {
    let class = if matches!(error, LineError::Store(_)) { "StoreError" } else { "RunError" };
    let words = match error {
        LineError::Setting(bad) => words(bad),
        error => plain_text(&in_full(error)),
    };
    let run = directory.and_then(|path| Some((RunDir::read_record(path).ok()?, path)));
    match run {
        Some((record, path)) => {
            raise(py, class, (words, Run::of_directory(record, path.to_owned())))
        }
        None => raise(py, class, (words,)),
    }
}
