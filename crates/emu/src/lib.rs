//! Real-time emulation: the links of `underload-aqm` on live packets between namespaces.
//!
//! | module | what it promises |
//! |---|---|
//! | [`privilege`] | the right to create namespaces, or what to change to get it |
//! | [`namespace`] | network namespaces that vanish with this process, and commands in them |
//! | [`lab`] | [`Lab`](lab::Lab): a client, a server, and the wire between them that is this process |
//! | [`tun`] | the ends of the wire |
//! | [`classify`] | a packet's headers, read once |
//! | [`segment`] | super-packets cut into what would be on the wire, and put together again |
//! | [`pool`] | recycled buffers |
//! | [`clock`] | real time |

pub mod checksum;
pub mod classify;
pub mod clock;
pub mod lab;
pub mod namespace;
pub mod pool;
pub mod privilege;
pub mod segment;
mod sys;
pub mod tun;
pub mod vnet;
