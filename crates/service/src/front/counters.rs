//! What became of everything so far, and the same in the text form that Prometheus reads.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use underload_probe::endpoint::ReflectorCounts;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub granted: Counter,
    pub busy: Counter,
    pub refused: Counter,
    pub dropped: Counter,
    pub crowded: Counter,
    pub expired: Counter,
}

/// What became of connections and sessions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Sessions granted.
    pub granted: u64,
    /// Told to come back later.
    pub busy: u64,
    /// Told no.
    pub refused: u64,
    /// Connections that never asked properly.
    pub dropped: u64,
    /// Connections turned away because too many were waiting.
    pub crowded: u64,
    /// Sessions ended by the server: their time or their volume was used up.
    pub expired: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> ServiceCounts {
        ServiceCounts {
            granted: self.granted.read(),
            busy: self.busy.read(),
            refused: self.refused.read(),
            dropped: self.dropped.read(),
            crowded: self.crowded.read(),
            expired: self.expired.read(),
        }
    }
}

/// A moment of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// Counted so far.
    pub counts: ServiceCounts,
    /// Counted so far at the UDP port.
    pub probes: ReflectorCounts,
    /// Sessions under way.
    pub sessions: u64,
    /// Load flows under way.
    pub flows: u64,
    /// Granted now, up and down, bit/s.
    pub granted_bit_per_s: (u64, u64),
    /// Rates that may be granted in all, up and down, bit/s.
    pub capacity_bit_per_s: (u64, u64),
    /// Bytes of load moved so far, up and down.
    pub moved_bytes: (u64, u64),
    /// Bytes of probes and their answers so far, IP headers included.
    pub probed_bytes: u64,
}

impl ServiceState {
    /// In the Prometheus text format, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let (counts, probes) = (self.counts, self.probes);
        let mut text = String::new();
        family(
            &mut text,
            "underload_connections_total",
            "counter",
            "Control connections by what became of them.",
            &[
                ("outcome=\"granted\"", counts.granted),
                ("outcome=\"busy\"", counts.busy),
                ("outcome=\"refused\"", counts.refused),
                ("outcome=\"dropped\"", counts.dropped),
                ("outcome=\"crowded\"", counts.crowded),
            ],
        );
        let expired = [("", counts.expired)];
        let name = "underload_sessions_expired_total";
        family(&mut text, name, "counter", "Sessions ended by the server.", &expired);
        family(
            &mut text,
            "underload_datagrams_total",
            "counter",
            "Datagrams at the UDP port by what became of them.",
            &[
                ("outcome=\"reflected\"", probes.answered),
                ("outcome=\"answered\"", probes.spoken),
                ("outcome=\"unknown\"", probes.unknown),
                ("outcome=\"malformed\"", probes.malformed),
                ("outcome=\"limited\"", probes.limited),
                ("outcome=\"refused\"", probes.refused),
            ],
        );
        let both = |(up, down)| [("direction=\"up\"", up), ("direction=\"down\"", down)];
        for (name, kind, help, values) in [
            ("underload_load_octets_total", "counter", "Load carried.", self.moved_bytes),
            ("underload_granted_bits_per_second", "gauge", "Granted now.", self.granted_bit_per_s),
            ("underload_capacity_bits_per_second", "gauge", "Grantable.", self.capacity_bit_per_s),
        ] {
            family(&mut text, name, kind, help, &both(values));
        }
        let name = "underload_probe_bytes_total";
        family(&mut text, name, "counter", "Probes and answers.", &[("", self.probed_bytes)]);
        let sessions = [("", self.sessions)];
        family(&mut text, "underload_sessions", "gauge", "Sessions under way.", &sessions);
        family(&mut text, "underload_flows", "gauge", "Flows under way.", &[("", self.flows)]);
        text
    }
}

fn family(text: &mut String, name: &str, kind: &str, help: &str, values: &[(&str, u64)]) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (label, value) in values {
        let _ = match *label {
            "" => writeln!(text, "{name} {value}"),
            label => writeln!(text, "{name}{{{label}}} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_value() {
        let state = ServiceState { sessions: 3, moved_bytes: (5, 7), ..ServiceState::default() };
        let text = state.to_prometheus();
        assert!(text.contains("\nunderload_sessions 3\n"));
        assert!(text.contains("\nunderload_load_octets_total{direction=\"down\"} 7\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("underload_") && value.parse::<u64>().is_ok(), "{line}");
        }
    }
}
