//! PIE, the Proportional Integral controller Enhanced (RFC 8033), in three profiles.
//!
//! # Principle
//! Every `tupdate` the drop probability moves by `alpha * (delay - target) + beta * (delay - old)`,
//! the step scaled down while the probability is low; arrivals are dropped (or marked) with that
//! probability. Nothing is dropped while a burst allowance lasts, while the delay and the
//! probability are both low, or while only about two packets are stored.
//!
//! # Profiles
//! | point | `rfc` | `linux` | `mahimahi` |
//! |---|---|---|---|
//! | source | RFC 8033 sections 4, 5 and appendix A | `sch_pie.c`, `pie.h` (6.12) | `pie_packet_queue.cc` |
//! | clock | nanoseconds | ticks of 64 ns | milliseconds, rounded down |
//! | delay | time stamp of the last departure, 0 once empty | the same, 0 below one tick | backlog over a rate estimate, whole milliseconds |
//! | target, burst, update | 15 ms, 150 ms, 15 ms | the same; the burst is fixed | 15 ms, 150 ms, 30 ms fixed |
//! | gains (alpha, beta) | 0.125, 1.25 Hz | 2/16, 20/16 Hz | 125, 1250 Hz |
//! | step divided by | 2048 .. 1, seven levels | the same | 128, 32, 16 |
//! | step at most | 2 % from p = 10 % on | the same, and +2 % above 250 ms | no limit |
//! | upper bound of p | 1 | none: p = 80 after 30 s at 300 ms | 1 |
//! | decay | 2 % while the delay is 0 twice | 1/64 while it is 0 twice | 2 % while it is 0 twice |
//! | no drop while | burst left; old delay low and p < 20 %; backlog <= 2 mean packets | burst left; *current* delay low and p < 20 %; backlog < 2 MTU | burst left; old delay low and p < 20 %; backlog < 3008 B |
//! | spread of drops | 0.85 / 8.5 (section 5.4) | the same | none |
//! | ECN | marks below 10 % | marks up to 10 %; a mark does not reset the spread, so that it can latch on marking | none |
//! | burst allowance | re-armed on arrival, minus `tupdate` per update | re-armed by an update, minus the time between departures | re-armed by an update, reduced by both |
//! | first update | after one `tupdate` | after 500 ms | after 31 ms |
//!
//! The kernel rounds `tupdate` to jiffies: with HZ=250, 15 ms become 16 ms; use `tupdate=16ms` to
//! compare with such a kernel. `bytemode` and `dq_rate_estimator` of the kernel, both off by
//! default, are not implemented; nor is the optional activation threshold of RFC 8033 section 5.3
//! (DOCSIS-PIE has it).
//!
//! # Time
//! No timer runs: updates that fell due are replayed at their nominal instants, with the backlog of
//! that time, before anything else happens. Once an update changes nothing, all others that are due
//! are left out in one step.
//!
//! # Validation
//! `linux`: probabilities after n updates equal those of the kernel's own function compiled in
//! user space. `rfc`: drop rate p within three standard deviations, bounds, levels. `mahimahi`:
//! hand-computed updates of the published code.

mod linux;
mod mahimahi;
mod params;
mod rfc;

pub use linux::PieLinux;
pub use mahimahi::{PieMahimahi, PieMahimahiConfig};
pub(in crate::queue) use params::TARGET;
pub(crate) use params::{DEFINITION, configure};
pub use params::{PieProfile, PieQueue};
pub use rfc::PieRfc;

use params::{ALPHA, BETA, BURST, DERANDOMIZE, ECN, ECN_THRESHOLD, MTU, TUPDATE, sixteenths};

use crate::config::from_values;
use crate::time::Span;

from_values! {
    /// Parameters of [`PieRfc`], by the names of RFC 8033.
    #[derive(Clone, Debug)]
    pub struct PieRfcConfig(values) {
        /// The target delay (`QDELAY_REF`, section 4.2).
        pub target: Span = values.get(TARGET),
        /// Time between updates of the probability (`T_UPDATE`, section 4.2); not zero.
        pub update_interval: Span = values.get(TUPDATE),
        /// How long a burst passes without drops (`MAX_BURST`, section 4.4).
        pub max_burst: Span = values.get(BURST),
        /// Weight of the delay's distance from its target, in millionths of a hertz (section 4.2).
        pub alpha_microhertz: u64 = values.get(ALPHA),
        /// Weight of the delay's change, in millionths of a hertz (section 4.2).
        pub beta_microhertz: u64 = values.get(BETA),
        /// Size of an average packet: no packet is dropped while two or fewer are stored (section
        /// 4.1).
        pub mean_packet_bytes: u32 = values.get(MTU) as u32,
        /// Whether ECN-capable packets are marked instead of dropped (section 5.1).
        pub ecn: bool = values.get(ECN),
        /// Probability, of 2^32, above which packets are dropped (`mark_ecnth`, section 5.1).
        pub ecn_threshold_q32: u64 = values.get(ECN_THRESHOLD),
        /// Whether drops are spaced evenly (section 5.4), unlike in appendix A.
        pub derandomize: bool = values.get(DERANDOMIZE),
    }
}

from_values! {
    /// Parameters of [`PieLinux`], as in `tc qdisc add ... pie`; `pie` and `fq-pie` share them.
    #[derive(Clone, Debug)]
    pub struct PieLinuxConfig(values) {
        /// The delay that the queue is steered to.
        pub target: Span = values.get(TARGET),
        /// Time between updates; the kernel rounds it up to whole jiffies. Not zero.
        pub update_interval: Span = values.get(TUPDATE),
        /// Weight of the delay's distance from its target, in sixteenths of a hertz, 0 to 32.
        pub alpha_sixteenths: u32 = sixteenths(values, ALPHA)?,
        /// Weight of the delay's change, in sixteenths of a hertz, 0 to 32.
        pub beta_sixteenths: u32 = sixteenths(values, BETA)?,
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
        /// The highest probability at which ECN-capable packets are marked, as a fraction of 2^56.
        pub ecn_up_to_q56: u64 = Self::TENTH_Q56,
        /// The device's MTU with header: nothing is dropped while less than two of them are stored.
        pub mtu_bytes: u32 = values.get(MTU) as u32,
    }
}
