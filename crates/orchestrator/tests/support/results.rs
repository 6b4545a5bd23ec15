//! Made-up results for tests.

use std::collections::BTreeMap;

use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::line::Line;
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::{
    Archive, Device, Dimension, Filter, LogEntry, Needs, Outcomes, PlanRow, Server, Store,
    StoreError, StoredResult, Sum, Summed, Transaction,
};
use underload_record::judgement::Grade;

/// 2026-01-01, milliseconds since 1970.
pub(super) const START_MS: u64 = 1_767_225_600_000;

/// The identifier of a device by its number.
pub(super) fn device_id(device: u64) -> DeviceId {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&device.to_le_bytes());
    DeviceId(id)
}

/// The line of a device.
pub(super) fn attributes(device: u64) -> Attributes {
    Attributes {
        model: format!("model-{}", device % 2),
        firmware: format!("1.{}", device % 3),
        tier_up_bit_per_s: 10_000_000 * (1 + device % 3),
        tier_down_bit_per_s: 100_000_000 * (1 + device % 3),
        segment: format!("segment-{}", device / 10),
        region: format!("region-{}", device % 5),
        configured: "aqm".to_owned(),
        measured: String::new(),
    }
}

/// A device by its number.
pub(super) fn device(number: u64) -> Device {
    let (id, key) = (device_id(number), [number as u8; 32]);
    Device {
        seen_ms: START_MS + number,
        is_removed: number.is_multiple_of(11),
        epoch: 1,
        request: u64::MAX - number,
        waiting: number,
        settle_ms: if number.is_multiple_of(2) { u64::MAX } else { START_MS + number },
        made: 2,
        ..Device::new(id, key, attributes(number), START_MS)
    }
}

/// Returns a result of a device: a measurement of a load with two markings, or, for every tenth
/// sequence number, a refusal.
pub(super) fn result(device: u64, sequence: u64) -> StoredResult {
    let outcome = if sequence % 10 == 9 { Outcome::Refused } else { Outcome::Measured };
    let series = |dscp: u8| {
        let mut bins = Bins::default();
        for probe in 0..500_u64 {
            let spread = (probe * 7_919 + device * 104_729 + sequence * 31) % 1_000;
            bins.add(if dscp == 45 { 8_000.0 } else { 12_000.0 } + 30.0 * spread as f64);
        }
        let us = |share| bins.quantile(share).map(|us| us as u64);
        SeriesResult {
            dscp,
            sent: 502,
            lost: 2,
            p50_us: us(0.5),
            p99_us: us(0.99),
            mean_us: us(0.5),
            max_us: us(1.0),
            bins,
        }
    };
    let step = |step: &str, kind, goodput| StepResult {
        step: step.to_owned(),
        kind,
        goodput_bit_per_s: goodput,
        tier_percent: goodput.map(|_| 97.5),
        grade: goodput.map(|_| Grade::B),
        series: vec![series(0), series(45)],
        inside: None,
    };
    let steps = vec![step("idle", Kind::Latency, None), step("up", Kind::Upload, Some(9_750_000))];
    StoredResult {
        device: device_id(device),
        epoch: 1,
        sequence,
        stored_ms: START_MS + sequence * 14_400_000 + 5_000,
        pseudonym: Pseudonym(device_id(device + 1_000_000).0),
        cohort: ["control", "treated"][(device % 2) as usize].to_owned(),
        attributes: attributes(device),
        result: RunResult {
            plan: "trial".to_owned(),
            run: sequence,
            at_ms: START_MS + sequence * 14_400_000,
            outcome,
            reason: if outcome == Outcome::Refused { "segment" } else { "" }.to_owned(),
            server: "server-1".to_owned(),
            version: "underload-agent 0.1.0".to_owned(),
            steps: if outcome == Outcome::Measured { steps } else { Vec::new() },
        },
    }
}

/// Adds round trips of the load to the loaded steps of a result.
pub(super) fn with_inside(mut stored: StoredResult) -> StoredResult {
    for step in stored.result.steps.iter_mut().filter(|step| step.kind != Kind::Latency) {
        let mut bins = Bins::default();
        (0..500).for_each(|reading| bins.add(90_000.0 + 10.0 * f64::from(reading)));
        let us = |share| bins.quantile(share).map(|us| us as u64);
        step.inside = Some(SeriesResult {
            dscp: 0,
            sent: 500,
            lost: 0,
            p50_us: us(0.5),
            p99_us: us(0.99),
            mean_us: us(0.5),
            max_us: us(1.0),
            bins,
        });
    }
    stored
}

/// A plan that has the series of [`result`].
pub(super) fn plan() -> PlanRow {
    let text = "title = \"t\"\nruns_per_day = 6\n[lines]\ncount = 9\n[[tier]]\nup = \"9mbit\"
        down = \"9mbit\"\n[servers]\ncount = 1\ncapacity = \"1gbit\"
        [[step]]\nname = \"idle\"\nkind = \"latency\"\nduration = \"5s\"\nclasses = [0, 45]
        [[step]]\nname = \"up\"\nkind = \"upload\"\nduration = \"5s\"\nclasses = [0, 45]\n";
    let (name, text) = ("trial".to_owned(), text.to_owned());
    PlanRow { name, text, applied_ms: START_MS, stopped_ms: None }
}

/// A result as earlier versions stored it: 64 steps of invented names with 64 series each.
pub(super) fn with_invented_steps(device: u64, sequence: u64) -> StoredResult {
    let mut stored = result(device, sequence);
    let series: Vec<SeriesResult> = (0..64)
        .map(|dscp| SeriesResult { dscp, ..stored.result.steps[0].series[0].clone() })
        .collect();
    stored.result.steps = (0..64)
        .map(|place| StepResult {
            step: format!("{device}.{sequence}.{place}"),
            series: series.clone(),
            ..stored.result.steps[0].clone()
        })
        .collect();
    stored
}

pub(super) fn append(store: &mut dyn Store, results: &[StoredResult]) -> Vec<bool> {
    let mut change = store.begin(&Needs::default()).expect("it begins");
    let are_new = change.append(results).expect("they are kept");
    change.commit().expect("they are on disk");
    are_new
}

/// Returns `each` results of each of `devices` devices, ordered by sequence.
pub(super) fn many(devices: u64, each: u64) -> Vec<StoredResult> {
    (0..devices * each).map(|n| result(n % devices, n / devices)).collect()
}

/// Checks the queries of devices by their attributes, on a store of the devices 0 to 59.
pub(super) fn finds_devices(archive: &mut dyn Archive) {
    let wanted = |name: &str, value: &str| Filter {
        attributes: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..Filter::default()
    };
    assert_eq!(archive.count_devices(&wanted("tier", "20/200")).expect("counted"), 20);
    assert_eq!(archive.count_devices(&wanted("id", "1")).expect("counted"), 0);
    let values = archive.values("model", 10).expect("values");
    assert_eq!(values, [("model-0".to_owned(), 30), ("model-1".to_owned(), 30)]);
    let model = wanted("model", "model-1");
    let first = archive.devices(&model, None, 20).expect("devices");
    let rest = archive.devices(&model, first.last().map(|d| d.id), 20).expect("devices");
    assert_eq!((first.len(), rest.len()), (20, 10));
    let all: Vec<_> = first.iter().chain(&rest).map(|device| device.id).collect();
    assert!(all.is_sorted_by(|one, next| one < next));
}

/// Returns queries of sums by all dimensions and filters that a page may use.
fn questions() -> Vec<(Filter, Vec<Dimension>)> {
    let filter = Filter::default();
    let line = |name: &str, value: &str| Filter {
        attributes: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..filter.clone()
    };
    let day = result(0, 0).day();
    vec![
        (filter.clone(), vec![]),
        (filter.clone(), vec![Dimension::Day, Dimension::Dscp]),
        (filter.clone(), vec![Dimension::Cohort, Dimension::Step, Dimension::Kind]),
        (filter.clone(), vec![Dimension::Hour]),
        (filter.clone(), vec![Dimension::Attribute("model".to_owned()), Dimension::Plan]),
        (line("tier", "20/200"), vec![Dimension::Day]),
        (line("region", "region-3"), vec![Dimension::Attribute("firmware".to_owned())]),
        (line("segment", "segment-1"), vec![Dimension::Cohort]),
        (line("unheard-of", ""), vec![]),
        (Filter { hour: Some(4), ..filter.clone() }, vec![Dimension::Dscp]),
        (Filter { plan: Some("other".to_owned()), ..filter.clone() }, vec![]),
        (
            Filter {
                cohort: Some("treated".to_owned()),
                from_day: Some(day + 1),
                until_day: Some(day + 3),
                ..filter
            },
            vec![Dimension::Day, Dimension::Cohort],
        ),
    ]
}

/// Returns the answers of an archive to all of [`questions`].
pub(super) fn ask(archive: &mut dyn Archive) -> Vec<(Vec<Sum>, Outcomes)> {
    let answers = questions().into_iter().map(|(filter, by)| {
        let sums = archive.sums(&filter, &by).expect("sums");
        (sums, archive.outcomes(&filter).expect("outcomes"))
    });
    answers.collect()
}

/// A store with the archive that reads it, as the conformance suite of all stores needs them.
pub(super) struct Both<S, A> {
    pub(super) store: S,
    pub(super) archive: A,
    /// Called before each transaction and query, for example to fold results.
    pub(super) then: Box<dyn FnMut() + Send>,
}

impl<S: Store, A: Send> Store for Both<S, A> {
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        (self.then)();
        self.store.begin(needs)
    }
}

impl<S: Send, A: Archive> Archive for Both<S, A> {
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes, StoreError> {
        (self.then)();
        self.archive.outcomes(filter)
    }

    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>, StoreError> {
        self.archive.sums(filter, by)
    }

    fn devices(
        &mut self,
        filter: &Filter,
        after: Option<DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>, StoreError> {
        self.archive.devices(filter, after, limit)
    }

    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<Line>, StoreError> {
        self.archive.lines_after(after, limit)
    }

    fn count_devices(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        self.archive.count_devices(filter)
    }

    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        self.archive.values(attribute, limit)
    }

    fn results_of(
        &mut self,
        device: DeviceId,
        limit: usize,
    ) -> Result<Vec<StoredResult>, StoreError> {
        self.archive.results_of(device, limit)
    }

    fn visit(
        &mut self,
        filter: &Filter,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<(), StoreError> {
        self.archive.visit(filter, see)
    }

    fn summed(&mut self, filter: &Filter) -> Result<Summed, StoreError> {
        self.archive.summed(filter)
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        self.archive.servers()
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        self.archive.plans()
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.archive.setting(name)
    }

    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        self.archive.log(limit)
    }
}
