//! The rules of measuring many lines, without a socket, a clock or a store.
//!
//! The control traffic of a fleet is small; its test traffic is not. Ten million lines that each
//! fill their upstream six times a day send 243 Gbit/s, and of three hundred lines that share a
//! segment of the access network one test in five overlaps another unless that is prevented. So a
//! plan defines what is measured, on which lines, how often and at which cost, and every run needs
//! permission.
//!
//! - [`plan`]: what to measure, parsed from a file, and the load that it causes.
//! - [`schedule`]: when a line runs next, so that lines do not synchronise.
//! - [`device`], [`store`]: devices and their attributes, and the state of a fleet.
//! - [`mod@line`]: lines as the operator records them.
//! - [`message`], [`request`], [`lease`], [`removal`]: messages and their authentication.
//! - [`operator`], [`token`]: messages of operators, and their tokens.
//! - [`outcome`], [`bins`]: outcomes of runs, and delays in bins.
//! - [`agent`]: what a device does next.
//! - [`orchestrator`]: the answers to requests, as changes of a store.
//! - [`retention`]: how long results are stored, and in which form.
//! - [`admission`]: who may run now: a line, its segment and a server, all or nothing.
//! - [`blocking`]: how often a pool of servers is full, by the formula of telephone networks.
//! - [`rollout`]: a configuration in stages, which stop on measured latency.
//! - [`simulate`]: a day of millions of lines in virtual time, by the same rules.
//!
//! Time and randomness are arguments: [`Time`](underload_aqm::time::Time) counts from the start
//! of the first day, and a seed repeats a day exactly.

pub mod admission;
pub mod agent;
pub mod bins;
pub mod blocking;
pub mod device;
pub mod lease;
pub mod line;
pub mod message;
pub mod operator;
pub mod orchestrator;
pub mod outcome;
pub mod plan;
pub mod removal;
pub mod request;
pub mod retention;
pub mod rollout;
pub mod schedule;
pub mod simulate;
pub mod store;
pub mod token;
