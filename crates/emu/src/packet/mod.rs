//! Packets as bytes: headers read once, super-packets cut into what would be on the wire and put
//! together again, in recycled buffers.
//!
//! Functions of their input alone: no device, no clock and no system call.

mod classify;
mod pool;
mod segment;
mod vnet;

pub use classify::{
    Classified, EXTENSION_HEADERS_MAX, FlowKey, Layout, NotAPacket, Version, classify, flow_name,
};
pub use pool::{Frame, Handle, Pool};
pub use segment::{BadSuperPacket, HEADERS_MAX, Headers, assemble, segment_count, segment_length};
pub use vnet::VnetHeader;
