//! The laws that every queue discipline and profile obeys.
//!
//! The subjects come out of the registry, so a new discipline is covered the moment it is in
//! there. Each is built with its defaults and with the variants of [`subject`]: small limits, ECN
//! on, no guard.
//!
//! The laws themselves are functions of `underload_aqm::laws`, which says what each of them is:
//! other crates hold their own queues to them. Random operations are made by proptest here, which
//! tells the shortest sequence that breaks a law.
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
