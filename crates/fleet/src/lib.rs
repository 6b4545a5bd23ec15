//! The rules of measuring many lines, without a socket, a clock or a store.
//!
//! Throughput of a fleet's control is small; its test traffic is not. Ten million lines that each
//! fill their upstream six times a day send 243 Gbit/s, and three hundred lines that share a
//! segment of the access network overlap their tests one time in five unless somebody prevents it.
//! So a plan says what to measure on whom, how often and at which cost, and every run asks first.
//!
//! - [`plan`]: what to measure, read from a file; the load that it makes, before it makes it.
//! - [`schedule`]: when a line runs next, so that no two lines fall into step.
//! - [`device`], [`store`]: lines and those who measure them, and where all of it is kept.
//! - [`message`], [`request`], [`lease`]: what is said, by whom, and what is allowed.
//! - [`outcome`], [`bins`]: what became of a run, and the delays that it saw.
//! - [`agent`]: what a device does next, whatever it hears.
//! - [`orchestrator`]: what is answered, as changes of a store; [`agent`]: what a device does next.
//! - [`retention`]: how long what was measured is kept, and in what form.
//! - [`admission`]: who may run now: the line, its segment and a server, all or nothing.
//! - [`blocking`]: how often a pool of servers is full, by the formula that telephone networks use.
//! - [`simulate`]: a day of millions of lines, by the same rules, in virtual time.
//!
//! Time and randomness are arguments: [`Time`](underload_aqm::time::Time) counts from the start
//! of the first day, and a seed repeats a day exactly.

pub mod admission;
pub mod agent;
pub mod bins;
pub mod blocking;
pub mod device;
#[cfg(any(test, feature = "conformance"))]
pub mod faults;
pub mod lease;
pub mod message;
pub mod orchestrator;
pub mod outcome;
pub mod plan;
pub mod removal;
pub mod request;
pub mod retention;
pub mod schedule;
pub mod simulate;
pub mod store;
