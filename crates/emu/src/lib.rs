//! Real-time emulation: the links of `underload-aqm` on live packets between namespaces.
//!
//! | module | what it promises |
//! |---|---|
//! | [`privilege`] | the right to create namespaces, or what to change to get it |
//! | [`namespace`] | network namespaces that vanish with this process, and commands in them |
//! | [`lab`] | [`Lab`](lab::Lab): a client, a server, and the wire between them that is this process |
//! | [`gateway`] | [`Gateway`](gateway::Gateway): the wire, running: links and queues on live packets |
//! | [`report`] | what it did, in the terms of `underload-report` |
//! | [`link_command`] | a command behind an emulated link |
//! | [`uplink`], [`resolver`] | its way to the host's network, and to names |
//! | [`lock`], [`watcher`] | who may set up what, and who undoes it after a kill |
//! | [`link_log`] | logs that Mahimahi's scripts read, and samples |
//! | [`tun`] | the ends of the wire |
//! | [`lane`] | one direction of the data path |
//! | [`recorder`], [`journal`] | every packet's fate: counted and timed, or written down |
//! | [`classify`] | a packet's headers, read once |
//! | [`segment`] | super-packets cut into what would be on the wire, and put together again |
//! | [`pool`] | recycled buffers |
//! | [`clock`], [`realtime`] | real time, and what lets a thread keep it |

pub mod checksum;
pub mod classify;
pub mod clock;
pub mod gateway;
pub mod journal;
pub mod lab;
pub mod lane;
pub mod link_command;
pub mod link_log;
pub mod lock;
pub mod namespace;
pub mod pool;
pub mod privilege;
pub mod realtime;
pub mod recorder;
pub mod report;
pub mod resolver;
pub mod segment;
mod sys;
pub mod tun;
pub mod uplink;
pub mod vnet;
pub mod watcher;
