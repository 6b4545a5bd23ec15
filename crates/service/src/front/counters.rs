//! Counters of a server, and their Prometheus text format.

use std::fmt::Write as _;

use underload_probe::endpoint::ReflectorCounts;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    pub granted: u64,
    pub busy: u64,
    /// Clients that were refused for good.
    pub refused: u64,
    /// Connections without a valid question.
    pub dropped: u64,
    /// Connections closed because too many were waiting.
    pub crowded: u64,
    /// Sessions ended by the server because their time or volume was used up.
    pub expired: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    pub counts: ServiceCounts,
    pub probes: ReflectorCounts,
    pub sessions: u64,
    pub flows: u64,
    pub granted_bit_per_s: (u64, u64),
    /// Largest sum of granted rates, up and down.
    pub capacity_bit_per_s: (u64, u64),
    pub moved_bytes: (u64, u64),
    /// Bytes of probes and their answers up to now, with IP headers.
    pub probed_bytes: u64,
}

impl ServiceState {
    /// Formats the state in the Prometheus text format, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let (counts, probes) = (self.counts, self.probes);
        let both = |(up, down)| vec![("direction=\"up\"", up), ("direction=\"down\"", down)];
        let one = |value| vec![("", value)];
        let connections = vec![
            ("outcome=\"granted\"", counts.granted),
            ("outcome=\"busy\"", counts.busy),
            ("outcome=\"refused\"", counts.refused),
            ("outcome=\"dropped\"", counts.dropped),
            ("outcome=\"crowded\"", counts.crowded),
        ];
        let datagrams = vec![
            ("outcome=\"reflected\"", probes.answered),
            ("outcome=\"answered\"", probes.spoken),
            ("outcome=\"unknown\"", probes.unknown),
            ("outcome=\"malformed\"", probes.malformed),
            ("outcome=\"limited\"", probes.limited),
            ("outcome=\"refused\"", probes.refused),
        ];
        let families = [
            ("underload_connections_total", "Control connections by outcome.", connections),
            (
                "underload_sessions_expired_total",
                "Sessions ended by the server.",
                one(counts.expired),
            ),
            ("underload_datagrams_total", "Datagrams at the UDP port by outcome.", datagrams),
            ("underload_load_octets_total", "Load carried.", both(self.moved_bytes)),
            ("underload_granted_bits_per_second", "Granted now.", both(self.granted_bit_per_s)),
            ("underload_capacity_bits_per_second", "Grantable.", both(self.capacity_bit_per_s)),
            ("underload_probe_bytes_total", "Probes and answers.", one(self.probed_bytes)),
            ("underload_sessions", "Running sessions.", one(self.sessions)),
            ("underload_flows", "Running flows.", one(self.flows)),
        ];
        let mut text = String::new();
        for (name, help, values) in families {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (label, value) in values {
                let label = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
                let _ = writeln!(text, "{name}{label} {value}");
            }
        }
        text
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
