//! One simulated trial behind sliders: what the book's playground runs in a browser.
//!
//! The page hands over its settings as JSON and gets curves, distributions and numbers back. The
//! trial is the program's own: [`Settings::scenario`] is the file with which `underload run` makes
//! the same record, byte for byte, and tests hold that, here and in WebAssembly.
//!
//! No bindings are generated: [`exports`] has a few functions over linear memory.

pub mod exports;
mod outcome;
mod settings;

pub use outcome::{Outcome, record};
pub use settings::Settings;
