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

pub use linux::{PieLinux, PieLinuxConfig};
pub use mahimahi::{PieMahimahi, PieMahimahiConfig};
pub(crate) use params::{DEFINITION, configure};
pub use params::{PieProfile, PieQueue};
pub(in crate::queue) use params::{TARGET, linux_config};
pub use rfc::{PieRfc, PieRfcConfig};
