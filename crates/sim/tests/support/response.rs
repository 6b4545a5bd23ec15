//! Mean windows under random loss and marks: of connections, of congestion control without a
//! transport, and by the published equations.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_sim::congestion::{
    Ack, Algorithm, Cause, CongestionControl, Controller, Loss, PragueConfig, Setup, SlowStartExit,
    State, Window,
};
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

/// Mean window in segments of a connection over a link that never queues and has the random
/// `impairment`, such as `loss=1%` or `mark=1%`: the rate times the round trip.
pub fn of_connection(algorithm: Algorithm, impairment: &str, rtt_ms: u64, seconds: u64) -> f64 {
    let tcp = TcpConfig {
        algorithm,
        ecn: algorithm.ecn(EcnUse::Off),
        receive_window_bytes: 64 << 20,
        slow_start_exit: SlowStartExit::Loss,
        ..TcpConfig::default()
    };
    let link = format!("100gbit:delay={}us", rtt_ms * 500);
    let config = SimConfig {
        up: vec![HopConfig::parse("fifo:limit=100000p", &format!("{link},{impairment}")).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=100000p", &link).unwrap()],
        flows: vec![FlowConfig::new("flow", FlowKind::Tcp(tcp))],
        phases: Phases {
            ramp: Span::from_secs(seconds / 10),
            load: Span::from_secs(seconds),
            ..Phases::default()
        },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    };
    let outcome = run(config).unwrap();
    let goodput = outcome.record.flows[0].goodput_up_bit_per_s.unwrap() as f64;
    goodput / 8.0 / 1_448.0 * rtt_ms as f64 / 1e3
}

/// Mean window of CUBIC by the equations of RFC 9438, one step per round trip.
pub fn cubic_by_equations(loss: f64, rtt: f64, rounds: u32, periodic: bool) -> f64 {
    let (c, beta) = (0.4, 0.7);
    let alpha = 3.0 * (1.0 - beta) / (1.0 + beta);
    let (mut window, mut last_max, mut origin) = (10.0_f64, 0.0_f64, 10.0_f64);
    let (mut elapsed, mut friendly, mut k) = (0.0, 10.0_f64, 0.0_f64);
    let (mut since_loss, mut repairing, mut total) = (0.0, false, 0.0);
    let mut rng = Rng::new(5);
    for _ in 0..rounds {
        total += window;
        since_loss += window;
        let lost = if periodic {
            since_loss >= 1.0 / loss
        } else {
            f64::from(rng.next_u32()) / 4_294_967_296.0 > (1.0 - loss).powf(window)
        };
        if lost && !repairing {
            since_loss = 0.0;
            last_max = if window < last_max { window * (1.0 + beta) / 2.0 } else { window };
            window = (window * beta).max(2.0);
            (origin, friendly, elapsed) = (last_max.max(window), window, 0.0);
            k = ((origin - window) / c).cbrt();
            repairing = true;
            continue;
        }
        repairing = false;
        elapsed += rtt;
        friendly += alpha;
        window = (c * (elapsed - k).powi(3) + origin).clamp(window, 1.5 * window).max(friendly);
    }
    total / f64::from(rounds)
}

/// The outcome of the packets of a round trip.
pub enum Answer {
    Arrived,
    Lost,
    /// This number of packets arrived marked.
    Marked(u32),
}

/// Mean window of a congestion control without a transport: round trips of acknowledgements, where
/// `answer` returns the outcome of each for a window. The first tenth is discarded.
pub fn of_control(
    algorithm: Algorithm,
    rtt: Span,
    rounds: u32,
    mut answer: impl FnMut(u32) -> Answer,
) -> f64 {
    let setup = Setup {
        segment_bytes: 1_448,
        packet_bytes: 1_500,
        initial_window: 10,
        slow_start_exit: SlowStartExit::Loss,
        prague: PragueConfig::default(),
        rng: Rng::new(1),
    };
    let mut control = Controller::new(algorithm, setup);
    let mut window = Window::new(10);
    window.threshold = 10;
    let mut path = Path { now: Time::from_secs(1), rtt, sequence: 0 };
    let mut total = 0.0;
    for round in 0..rounds {
        if round >= rounds / 10 {
            total += f64::from(window.size);
        }
        let (marked, cause) = match answer(window.size) {
            Answer::Arrived | Answer::Marked(0) => (0, None),
            Answer::Lost => (0, Some(Cause::Loss)),
            Answer::Marked(marked) => (marked, Some(Cause::Mark)),
        };
        path.round(&mut control, &mut window, marked);
        if let Some(cause) = cause {
            let loss = Loss { now: path.now, cause, in_flight: window.size, min_rtt: rtt };
            control.on_loss(&loss, &mut window);
            // Proportional rate reduction reaches the threshold a round trip later.
            if !control.owns_window() {
                window.size = window.threshold;
            }
            path.now += rtt;
        }
    }
    total / f64::from(rounds - rounds / 10)
}

struct Path {
    now: Time,
    rtt: Span,
    sequence: u32,
}

impl Path {
    /// Acknowledges a window, in as many steps as delayed acknowledgements would, at most 64.
    fn round(&mut self, control: &mut Controller, window: &mut Window, marked: u32) {
        let size = window.size;
        let steps = size.div_ceil(2).min(64);
        for step in 0..steps {
            let share = size * (step + 1) / steps - size * step / steps;
            let marks = marked * (step + 1) / steps - marked * step / steps;
            self.sequence = self.sequence.wrapping_add(share);
            self.now += Span::from_nanos(self.rtt.as_nanos() / u64::from(steps));
            control.on_ack(&self.ack(share, marks, size), window);
        }
    }

    /// Every acknowledged segment has been replaced by a new one.
    fn ack(&self, segments: u32, marked: u32, window: u32) -> Ack {
        Ack {
            now: self.now,
            acknowledged: segments,
            delivered: segments,
            lost: 0,
            marked,
            rtt: Some(self.rtt),
            min_rtt: self.rtt,
            smoothed_rtt: self.rtt,
            prior_in_flight: segments,
            in_flight: 0,
            total_delivered: self.sequence,
            total_lost: 0,
            first_outstanding: self.sequence,
            next_sequence: self.sequence.wrapping_add(window),
            state: State::Open,
            pacing_wait: Span::ZERO,
            window_limited: true,
            rate: None,
        }
    }
}

/// CUBIC without a transport with one loss per 1/`loss` packets, as in the table of RFC 9438
/// section 5.1.
pub fn cubic_with_periodic_loss(loss: f64, rtt: Span, rounds: u32) -> f64 {
    let mut since_loss = 0.0;
    of_control(Algorithm::Cubic, rtt, rounds, |window| {
        since_loss += f64::from(window);
        if since_loss < 1.0 / loss {
            return Answer::Arrived;
        }
        since_loss = 0.0;
        Answer::Lost
    })
}

/// A congestion control without a transport, whose packets are marked independently with
/// probability `share`.
pub fn with_random_marks(algorithm: Algorithm, share: f64, rtt: Span, rounds: u32) -> f64 {
    let mut rng = Rng::new(9);
    let threshold = (share * 4_294_967_296.0) as u32;
    of_control(algorithm, rtt, rounds, |window| {
        Answer::Marked((0..window).filter(|_| rng.next_u32() < threshold).count() as u32)
    })
}

/// Mean windows of CUBIC in RFC 9438 section 5.1, C = 0.4: loss, at 100 ms, at 10 ms.
pub const RFC_9438: [(f64, f64, f64); 6] = [
    (1e-2, 12.0, 12.0),
    (1e-3, 38.0, 38.0),
    (1e-4, 187.0, 120.0),
    (1e-5, 1_054.0, 379.0),
    (1e-6, 5_926.0, 1_200.0),
    (1e-7, 33_325.0, 5_926.0),
];
