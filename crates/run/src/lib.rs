//! Runs: what a scenario says, and the worlds that do it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scenario`] | the file model of experiments |
//! | [`study`] | distributions that a cohort's conditions are drawn from |
//! | [`flows`] | the flows that an entry of a scenario stands for, by name |
//! | [`world`] | from an arm to a trial |

pub mod flows;
pub mod scenario;
pub mod study;
pub mod world;
