//! Shapes an access line with the kernel's queues, and never leaves a machine without a network.
//!
//! Whatever is changed is recorded first, and undone unless the user confirms it. The rules are
//! functions without a clock, a file or a process; [`machine`] executes them.
//!
//! | module | what it has |
//! |---|---|
//! | [`request`] | what a user asks for: device, rates, queue, overhead of the line |
//! | [`judge`] | whether the queues of a device may be replaced, and could be restored |
//! | [`auto`] | the rate of a direction of a line that varies |
//! | [`suggest`] | rates and queue of a line, from measurements behind several of them |
//! | [`trial`] | the hours with and without a shaper of a trial |
//! | [`plan`] | the commands that shape a device, in an order that never cuts it off |
//! | [`rate`] | the rate of a queue, as `tc` and the kernel express it |
//! | [`record`] | what stood before, and when the change is undone |
//! | [`permanent`] | files that shape the device after each start of the machine |
//! | [`kernel_queue`] | queues that Linux lacks, as BPF programs: their settings |
//! | [`machine`] | the records' directory, the process that undoes |
//!
//! The crate `tc` has the arguments and the output of `tc`.

pub mod auto;
pub mod judge;
pub mod kernel_queue;
#[cfg(target_os = "linux")]
pub mod machine;
pub mod permanent;
pub mod plan;
pub mod rate;
pub mod record;
pub mod request;
pub mod suggest;
pub mod trial;
