//! The simulation of the book's playground, which runs in a browser.
//!
//! The page passes its settings as JSON and receives series, distributions and numbers.
//! [`Settings::scenario`] is a scenario file with which `underload run` produces the same record,
//! byte for byte; tests check this natively and in WebAssembly.
//!
//! Bindings are not generated: [`exports`] has a few functions over linear memory.

pub mod exports;
mod outcome;
mod settings;

pub use outcome::{Outcome, record};
pub use settings::Settings;
