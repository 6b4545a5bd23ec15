//! Algorithms written in Python and called by the simulator: their arguments, their answers, and
//! their failures.
//!
//! An object's first failure ends the run: the [`Watch`] of the run stores it and raises the run's
//! stop, and no Python code is called after it.

/// Implements the `repr` and the getters of a class that wraps one value.
macro_rules! getters {
    (
        $Class:ident($inner:ident): $repr:expr;
        $($(#[$doc:meta])* $name:ident: $Type:ty => $value:expr;)+
    ) => {
        #[pymethods]
        impl $Class {
            fn __repr__(&self) -> String {
                let $inner = &self.0;
                $repr
            }

            $(
                $(#[$doc])*
                #[getter]
                fn $name(&self) -> $Type {
                    let $inner = &self.0;
                    $value
                }
            )+
        }
    };
}

mod control;
mod object;
mod queue;

pub use control::{Ack, CongestionEvent, ecn_use};
pub use object::{PythonAlgorithm, Watch};
pub use queue::{Backlog, PacketMeta};
