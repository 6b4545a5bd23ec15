//! Virtual time: event loop, transports and applications.
//!
//! A trial is one thread, one seed and one event loop over virtual nanoseconds. What makes it fast:
//! constant delays keep order, so packets in flight wait in rings and only the heads of the rings
//! compete for the next event; each flow has one timer, re-armed lazily; packets travel by value;
//! an acknowledgement is handled where it arrives; the only dynamic dispatch per packet is the
//! queue discipline's and, for a packet of an application, the application's. Memory per flow and
//! per packet in flight is fixed and small, and nothing is allocated once the rings have grown to
//! their high-water marks.
//!
//! | module | what it holds |
//! |---|---|
//! | [`trial`] | configuration of a trial, its execution and record |
//! | [`env`](mod@env) | a trial that somebody steers step by step |
//! | [`runner`] | trials spread over cores |
//! | [`flow`] | what sends, by configuration: transports, datagrams, probes, applications |
//! | [`application`] | calls, web pages, games and video, and how good they are for their users |
//! | [`tcp`], [`sprout`] | the transports: TCP, and the one for cellular links over UDP |
//! | [`congestion`] | congestion control, one file per algorithm |
//! | `endpoint` | what every sender and receiver does, and its port to the network |
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
pub mod net;
pub mod runner;
mod simulation;
pub mod sprout;
mod sys;
pub mod tcp;
pub mod trial;
