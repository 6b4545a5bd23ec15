//! The laws that every queue discipline and profile obeys.
//!
//! The subjects come out of the registry, so a new discipline is covered the moment it is in
//! there. Each is built with its defaults and with the variants of [`subject`]: small limits, ECN
//! on, no guard.
//!
//! | law | where |
//! |---|---|
//! | offered = sent + dropped + backlog, in packets and bytes; each drop and mark told once | [`ledger`] |
//! | no reordering inside a flow | [`ledger`] |
//! | Not-ECT never marked, CE never cleared, no other field changed | [`ledger`] |
//! | never `Empty` while something is stored; `NotBefore` names a later instant | [`ledger`] |
//! | counters only grow; a limit given is kept | [`ledger`] |
//! | same seed, same fates | [`replay`] |
//! | extra polls change nothing | [`replay`] |
//! | once drained and idle, a packet that finds the queue empty passes untouched | [`hazards`] |
//! | wrap of a 32-bit clock, packets beyond every limit, 64 kB packets, starvation, whole ms | [`hazards`] |
//!
//! That nothing allocates once warm is checked in `tests/no_allocation.rs`.

mod hazards;
mod ledger;
mod random_operations;
mod replay;
mod script;
mod subject;
