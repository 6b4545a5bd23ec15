//! One trial: a new lab with a gateway, probes and load through it, and the record.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockRef, Socket, Type};
use underload_emu::machine::{Clock, Ends, Namespace, SERVER_V4};
use underload_probe::RunClock;
use underload_probe::endpoint::{Reflector, ReflectorConfig};
use underload_probe::load::{LoadServer, LoadServerConfig, set_congestion_control};
use underload_probe::measure::{Endpoints, FarClock, Measurement, MeasurementResult};
use underload_probe::network::SocketSource;
use underload_probe::wire::MarkingPolicy;
use underload_record::schema::TrialRecord;
use underload_scenario::Variant;

use super::between::{Between, Report};
use super::plan::{self, Clockwork, Queues};
use super::tasks::{Finished, Tasks};
use crate::error::{Doing as _, RunError};
use crate::trial::{Trial, TrialData};

/// Runs one trial, and calls `show` with each phase as it begins. `None` if it was interrupted.
pub(in crate::world) fn run_trial(
    trial: &Trial<'_>,
    time: Clockwork,
    queues: &Queues,
    show: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Option<TrialData>, RunError> {
    let variant = trial.variant;
    show("setting up");
    // Both read the monotonic clock, a few hundred nanoseconds apart.
    let (clock, run_clock) = (Clock::start(), RunClock::start());
    let between = Between::start(trial, time, queues, clock)?;
    let ends = between.ends();
    let far_end = FarEnd::start(&ends, variant)?;
    let endpoints = far_end.endpoints(&ends);
    let mut tasks = Tasks::start(&ends, variant)?;
    let mut failure = None;
    let mut current = None;
    let measured = Measurement::run(
        &plan::measurement(trial, time),
        &endpoints,
        run_clock,
        &mut |progress| {
            if current != Some(progress.phase) {
                current = Some(progress.phase);
                between.begin(progress.phase);
                show(progress.phase.name());
            }
            failure = failure.take().or(tasks.start_and_stop(progress.phase).err());
        },
        stop,
    )
    .of_world()?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if measured.cancelled || stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let finished = tasks.finish()?;
    let kernel_drops = ends.kernel_drops().of_world()?;
    drop((endpoints, far_end));
    let report = between.stop(trial.index)?;
    Ok(Some(assemble(trial, measured, report, finished, kernel_drops)))
}

/// The reflector of probes and the load server, in the server's namespace.
struct FarEnd {
    reflector: SocketAddr,
    load_server: SocketAddr,
    _reflector: Reflector,
    _load_server: LoadServer,
}

impl FarEnd {
    fn start(ends: &Arc<Ends>, variant: &Variant) -> Result<Self, RunError> {
        let any_port = (SERVER_V4, 0);
        let reflecting = ends
            .server()
            .open(|| UdpSocket::bind(any_port))
            .doing("opening the reflector's socket")?;
        let listener = ends
            .server()
            .open(|| TcpListener::bind(any_port))
            .doing("opening the load server's socket")?;
        if let Some(tcp) = variant.tcp_flows().find(|tcp| tcp.always_uses_ecn()) {
            // DCTCP requests ECN by a SYN that is itself ECT, which a listener of another
            // congestion control takes for damage (`tcp_ecn_create_request`).
            set_congestion_control(&SockRef::from(&listener), &tcp.congestion_control)
                .of_world()?;
        }
        let reflector = reflecting.local_addr().of_world()?;
        let load_server = listener.local_addr().of_world()?;
        // Only this trial can reach them: they need no limits of a public server.
        let reflector_config = ReflectorConfig::lab();
        let flows: usize = plan::flow_count(variant);
        let server_config = LoadServerConfig {
            flows_max: flows.max(1),
            duration_max: plan::longest(&variant.phases),
            udp_rate_max_bit_per_s: u64::MAX,
            policy: MarkingPolicy::LAB,
            ..LoadServerConfig::default()
        };
        let network = sockets_of(ends, Ends::server);
        Ok(Self {
            reflector,
            load_server,
            _reflector: Reflector::start(vec![reflecting], reflector_config).of_world()?,
            _load_server: LoadServer::start(listener, network, server_config).of_world()?,
        })
    }

    fn endpoints(&self, ends: &Arc<Ends>) -> Endpoints {
        Endpoints {
            network: sockets_of(ends, Ends::client),
            reflector: self.reflector,
            load_server: self.load_server,
            far_clock: FarClock::Shared,
        }
    }
}

/// Returns a source of sockets in the network of one end, usable from any thread.
fn sockets_of(ends: &Arc<Ends>, end: fn(&Ends) -> &Namespace) -> Arc<dyn SocketSource> {
    let ends = Arc::clone(ends);
    Arc::new(move |domain: Domain, kind: Type| end(&ends).open(|| Socket::new(domain, kind, None)))
}

/// Assembles the trial's data from what prober, load, queues and commands recorded.
fn assemble(
    trial: &Trial<'_>,
    mut measured: MeasurementResult,
    report: Report,
    finished: Finished,
    kernel_drops: u64,
) -> TrialData {
    measured.timeliness.emulator_lateness = report.lateness;
    measured.incomplete.extend(finished.incomplete);
    if kernel_drops > 0 {
        let what = format!("the kernel dropped {kernel_drops} packets outside our queues");
        measured.incomplete.push(what);
    }
    measured.flows.extend(finished.records);
    let identity = TrialRecord {
        index: trial.index,
        variant: trial.variant.name.clone(),
        repeat: trial.repeat,
        seed: trial.seed,
        bottlenecks: report.bottlenecks,
        ..TrialRecord::default()
    };
    let outcome = underload_measure::trial(identity, measured);
    let mut series = Vec::new();
    if trial.keeps_curves {
        series = report.series;
        series.extend(outcome.series);
    }
    let mut data = TrialData {
        record: outcome.trial,
        samples: outcome.samples,
        series,
        outputs: finished.outputs,
        notes: Vec::new(),
    };
    data.drop_wide_links(&trial.variant.path);
    data
}
