//! Tests the laws that every queue discipline and profile obeys.
//!
//! The subjects come from the registry, so a new discipline is tested as soon as it is listed
//! there. Each is built with its defaults and with the variants of [`subject`]: small limits, ECN
//! on, no guard.
//!
//! The laws are functions of `underload_laws`, which describes them and which other crates
//! apply to their own queues. Here proptest makes the random operations, and reports the shortest
//! sequence that breaks a law.
//!
//! | where | what |
//! |---|---|
//! | [`random_operations`] | books, order and fields |
//! | [`replay`] | same seed, same fates; extra polls change nothing |
//! | [`hazards`] | idle time, wraps of a clock, packets beyond every limit, starvation, whole ms |
//!
//! The absence of allocations after warm-up is checked in `tests/no_allocation.rs`.

mod hazards;
mod random_operations;
mod replay;
mod subject;
