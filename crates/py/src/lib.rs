//! The Python package's native module: it converts between Python and the libraries.
//!
//! The libraries do the work. The documentation for users is in the package `python/underload`.

#![allow(clippy::needless_pass_by_value, reason = "Python hands its arguments over")]

mod docsis;
mod env;
mod errors;
mod frame;
mod interruptible;
#[cfg(unix)]
mod line;
mod own;
mod queue;
mod run;
mod scenario;
mod stats;
mod sweep;

use pyo3::prelude::*;

#[pymodule]
mod _underload {
    #[pymodule_export]
    use super::docsis::{
        docsis_check, docsis_decode, docsis_describe, docsis_encode, docsis_recommend,
    };
    #[pymodule_export]
    use super::env::Environment;
    #[pymodule_export]
    use super::frame::Frame;
    #[cfg(unix)]
    #[pymodule_export]
    use super::line::{history, measure};
    #[pymodule_export]
    use super::own::{Ack, Backlog, CongestionEvent, PacketMeta};
    #[pymodule_export]
    use super::queue::{Link, Queue, queue_label, queue_names, replay};
    #[pymodule_export]
    use super::run::{Run, load, run};
    #[pymodule_export]
    use super::scenario::{Scenario, congestion_controls, quantity_between, scenario_names};
    #[pymodule_export]
    use super::stats::{cluster_quantiles, hodges_lehmann, mann_whitney, mean_interval};

    #[pymodule_export]
    use super::sweep::{Sweep, SweepFolder};

    /// The commit that the package was built from.
    #[pymodule_export]
    const COMMIT: &str = super::sweep::COMMIT;
    /// The version, which is also the program's.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
