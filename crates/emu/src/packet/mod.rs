//! Packets as bytes: parsed headers, super-packets that are cut into the packets of the wire and
//! joined again, and recycled buffers.
//!
//! All functions depend only on their arguments: no device, clock or system call.

mod classify;
mod pool;
mod segment;
mod vnet;

pub use classify::{
    Classified, EXTENSION_HEADERS_MAX, Layout, NotAPacket, Version, classify, flow_name,
};
pub use pool::{Frame, Handle, Pool};
pub use segment::{BadSuperPacket, HEADERS_MAX, Headers, assemble, segment_count, segment_length};
pub use underload_aqm::packet::FlowKey;
pub use vnet::VnetHeader;
