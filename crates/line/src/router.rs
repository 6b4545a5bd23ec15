//! The round trips to the router alone: the delay of a Wi-Fi, without the access line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use underload_measure::{Outcome, Step};
use underload_probe::RunClock;
use underload_probe::route::{EchoTarget, PathProbe, Route, RouteProber};
use underload_record::schema::{
    Finding, FlowDirection, FlowRecord, PathHop, Phase, PhaseWindow, Sample, TrialRecord,
    VariantRecord,
};
use underload_record::trial_latencies;
use underload_store::RunDir;

use crate::route::target;
use crate::{LineError, Plan, Progress, Request, Test, store_step};

/// Echoes to the router of the default route. They load nothing, so their delay is that of whatever
/// else uses the Wi-Fi meanwhile.
pub struct RouterTest<'a> {
    request: &'a Request,
    router: EchoTarget,
    progress: &'a mut dyn Progress,
}

/// The name of the step, its variant and its flow.
const ROUTER: &str = "router";
/// An address for documentation (RFC 5737), towards which only the hops on the way answer.
const BEYOND: ([u8; 4], u16) = ([192, 0, 2, 1], 0);
const LENGTH: Duration = Duration::from_secs(10);

impl<'a> RouterTest<'a> {
    /// Whether a host stands for the router.
    pub fn is_wanted(host: &str) -> bool {
        matches!(host, ROUTER | "gateway")
    }

    /// Finds the router by echoes that live for a few hops.
    ///
    /// # Errors
    /// Returns an error if this user may not send echoes, or no router of a private network answers.
    pub fn open(request: &'a Request, progress: &'a mut dyn Progress) -> Result<Self, LineError> {
        let route = Route::discover(SocketAddr::from(BEYOND), request.interface.as_deref())?;
        let mut hops = route.near.into_iter();
        let router = hops.find(|hop| hop.hop == PathHop::Router && hop.address.is_some());
        let router = target(request, router.ok_or(LineError::NoRouter)?);
        Ok(Self { request, router, progress })
    }
}

impl Test for RouterTest<'_> {
    fn plan(&self) -> Plan {
        let (name, label) = (ROUTER.to_owned(), "echoes, no load".to_owned());
        let variants = vec![VariantRecord { name, label, ..VariantRecord::default() }];
        let server = format!("the router {}", self.router.shown);
        Plan { name: ROUTER.to_owned(), server, variants, notes: Vec::new() }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), LineError> {
        let length = self.request.knobs.duration.unwrap_or(LENGTH);
        let (shown, seconds) = (&self.router.shown, length.as_secs_f64());
        self.progress.note(&format!("probing the router {shown} for {seconds:.0} s"));
        let targets = vec![self.router.clone()];
        let prober =
            RouteProber::start(targets, self.request.interface.as_deref(), RunClock::start())
                .map_err(LineError::Echoes)?;
        let start = Instant::now();
        while start.elapsed() < length && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        let probes = prober.finish().into_iter().flat_map(|hop| hop.probes);
        findings.push(store_step(step(&probes.collect::<Vec<_>>()), directory)?);
        Ok(())
    }
}

/// Returns the step of echoes, all in a phase without a load of our own.
fn step(probes: &[PathProbe]) -> Step {
    let samples = (0..).zip(probes).map(|(sequence, probe)| Sample {
        sequence,
        scheduled_ns: probe.sent_ns,
        sent_ns: probe.sent_ns,
        rtt_ns: probe.round_trip_ns,
        ..Sample::default()
    });
    let samples: Vec<Sample> = samples.collect();
    let end_ns = probes.last().map_or(0, |probe| probe.sent_ns) + 1;
    let phases = vec![PhaseWindow { phase: Phase::Idle, start_ns: 0, end_ns }];
    let (name, kind, direction) = (ROUTER.to_owned(), "probe".to_owned(), FlowDirection::Both);
    let flows = vec![FlowRecord { name, kind, direction, ..FlowRecord::default() }];
    let latencies = trial_latencies(&samples, &flows, &phases);
    let step = ROUTER.to_owned();
    let finding = Finding { step, valid: true, latencies: latencies.clone(), ..Finding::default() };
    let variant = ROUTER.to_owned();
    let trial = TrialRecord { variant, phases, flows, latencies, ..TrialRecord::default() };
    Step::new(Outcome { trial, samples, series: Vec::new() }, finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 100 echoes the 95th is 95 ms; two are lost.
    #[test]
    fn echoes_of_the_router_are_an_idle_step() {
        let probe = |number: u64| PathProbe {
            sent_ns: number * 20_000_000,
            round_trip_ns: Some(number * 1_000_000),
        };
        let lost = [101, 102].map(|at| PathProbe { round_trip_ns: None, ..probe(at) });
        let step = step(&(1..=100).map(probe).chain(lost).collect::<Vec<_>>());
        let idle = step.finding.headline(Phase::Idle).expect("probes");
        assert_eq!((idle.sent, idle.lost), (102, 2));
        assert_eq!(idle.highest_answered().map(|(_, ns)| ns), Some(95_000_000));
        let lines = underload_report::finding_lines(&[step.finding]);
        let said = "router: idle latency p50 50.0 ms, p95 95.0 ms, p95 of all probes sent 97.0 ms (102 \
                    probes in 2 s)";
        assert_eq!(lines, [said]);
    }
}
