//! Virtual time: event loop, transports and applications.
//!
//! A trial is one thread, one seed and one event loop over virtual nanoseconds. It is fast because:
//!
//! - constant delays keep packets in order, so packets in flight wait in rings and only the heads
//!   of the rings compete for the next event;
//! - each flow has one timer, re-armed lazily;
//! - packets are passed by value, and an acknowledgement is handled where it arrives;
//! - the only dynamic dispatch per packet is that of the queue discipline and of applications;
//! - memory per flow and per packet in flight is fixed and small, and nothing is allocated once the
//!   rings have reached their final size.
//!
//! | module | contents |
//! |---|---|
//! | [`trial`] | configuration of a trial, its execution and record |
//! | [`env`](mod@env) | a trial that a caller controls step by step |
//! | [`shaped`] | a line behind a shaper whose rates a caller changes as time passes |
//! | [`runner`] | trials spread over cores |
//! | `inside`, `ce_watch`, `flow_curves` | what a trial reads of a running simulation |
//! | `shapers` | rates of links that follow rules |
//! | `simulation` | the event loop |
//! | [`flow`] | the configuration of flows: transports, datagrams, probes, applications |
//! | [`application`] | calls, web pages, games and video with their users' quality metrics |
//! | [`tcp`], [`sprout`] | the transports: TCP, and Sprout for cellular links |
//! | [`congestion`] | congestion control, one file per algorithm |
//! | `endpoint` | the interface of every flow, and its port to the network |
//! | [`net`] | links in chains, delays, packets |
//!
//! Each module uses only those below it.

pub mod application;
mod ce_watch;
pub mod congestion;
mod endpoint;
pub mod env;
pub mod flow;
mod flow_curves;
mod inside;
pub mod net;
pub mod runner;
pub mod shaped;
mod shapers;
mod simulation;
pub mod sprout;
mod sys;
pub mod tcp;
pub mod trial;
