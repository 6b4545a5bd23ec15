//! Latency under load: wire protocol, client, server.

pub mod wire;
