//! The two stages of a path's examination, in virtual time.

use underload_aqm::packet::{Dscp, Ecn};
use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_probe::path::{CLASSES, Evidence, OVERLOAD, OVERLOAD_PACKET_BYTES, Stage, UdpLoad};
use underload_record::schema::Direction;
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule, UdpConfig};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

use super::cells::Cell;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Flows of the first stage.
const FLOWS: usize = 4;
/// IPv4, and that with UDP.
const IP_HEADER_BYTES: u16 = 20;
const HEADER_BYTES: u16 = IP_HEADER_BYTES + 8;
const PROBE_INTERVAL: Span = Span::from_millis(20);

/// Simulates both stages of a cell and reads them.
pub fn observe(cell: &Cell) -> Result<Evidence, Error> {
    let algorithm = Algorithm::from_name(cell.control)
        .ok_or_else(|| format!("no congestion control is called '{}'", cell.control))?;
    let mut flows = probes();
    flows.extend((0..FLOWS).map(|index| {
        let tcp = TcpConfig { algorithm, ..TcpConfig::default() };
        FlowConfig::new(format!("bulk-{index}"), FlowKind::Tcp(tcp))
    }));
    let tcp = stage(cell, flows, 3_000, 8_000, 0)?;
    let read = |overload: Option<Stage<'_>>| {
        Evidence::from_stages(Direction::Up, cell.control, stage_of(&tcp, None), overload)
            .ok_or("nothing to read")
    };
    let rate = stage_of(&tcp, None).busiest_bit_per_s().ok_or("nothing to read")? * OVERLOAD;
    let mut flows = probes();
    let udp = UdpConfig {
        rate: Rate::from_bits_per_second(rate as u64),
        payload_bytes: OVERLOAD_PACKET_BYTES - HEADER_BYTES,
        ecn: Ecn::NotEct,
    };
    flows.push(FlowConfig::new("overload", FlowKind::Udp(udp)));
    let overload = stage(cell, flows, 1_000, 3_000, 1)?;
    let goodput = overload.record.flows.iter().find_map(|flow| flow.goodput_up_bit_per_s);
    let (header, packet) = (f64::from(HEADER_BYTES), f64::from(OVERLOAD_PACKET_BYTES));
    let offered = rate * (packet - header) / packet;
    let udp = goodput.map(|goodput| goodput as f64).map(|goodput_bit_per_s| UdpLoad {
        arrived: goodput_bit_per_s / offered,
        goodput_bit_per_s,
    });
    Ok(read(Some(stage_of(&overload, udp)))?)
}

fn probes() -> Vec<FlowConfig> {
    let apart = PROBE_INTERVAL.as_nanos() / CLASSES.len() as u64;
    let probe = |(index, class): (usize, &underload_record::schema::Marking)| {
        let schedule = ProbeSchedule::Open { interval: PROBE_INTERVAL };
        let ecn = Ecn::from_bits(class.ecn.bits());
        let kind = FlowKind::Probe(ProbeConfig { schedule, ecn, ..ProbeConfig::default() });
        let mut flow = FlowConfig::new(format!("probe-{index}"), kind);
        flow.dscp = Dscp::new(class.dscp).unwrap_or(Dscp::DEFAULT);
        flow.start = Some(Time::from_nanos(apart * index as u64));
        flow
    };
    CLASSES.iter().enumerate().map(probe).collect()
}

fn stage(
    cell: &Cell,
    flows: Vec<FlowConfig>,
    ramp_ms: u64,
    load_ms: u64,
    stage: u64,
) -> Result<TrialOutcome, Error> {
    let delay_us = cell.rtt_ms * 500;
    let link = format!("{}mbit:delay={delay_us}us", cell.mbit);
    let back = format!("{}mbit:delay={delay_us}us", cell.mbit.max(50) * 4);
    let config = SimConfig {
        up: vec![HopConfig::parse(&cell.queue, &link)?],
        down: vec![HopConfig::parse("fifo:limit=10000p", &back)?],
        flows,
        phases: Phases {
            idle: Span::from_millis(1_000),
            ramp: Span::from_millis(ramp_ms),
            load: Span::from_millis(load_ms),
            drain: Span::ZERO,
        },
        seed: cell.seed * 2 + stage,
        sample_interval: Some(Span::from_millis(100)),
        label: TrialLabel::default(),
    };
    Ok(run(config)?)
}

fn stage_of(outcome: &TrialOutcome, udp: Option<UdpLoad>) -> Stage<'_> {
    let (samples, series, phases) = (&outcome.samples, &outcome.series, &outcome.record.phases);
    Stage { samples, series, phases, udp, ip_header_bytes: IP_HEADER_BYTES }
}
