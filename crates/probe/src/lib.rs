//! Latency under load: wire protocol, client, server.
