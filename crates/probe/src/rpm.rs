//! Responsiveness: round trips per minute under load, by three formulas that disagree.
//!
//! - **draft-09**: `((60 / mean foreign) + (60 / mean loaded)) / 2`, the arithmetic mean of two
//!   rates. The foreign time is the mean of the trimmed means of TCP handshake, TLS handshake (one
//!   round trip) and HTTP exchange on new connections; the loaded time is the trimmed mean of HTTP
//!   exchanges on the loaded connections. A trimmed mean omits the worst 5 %
//!   (draft-ietf-ippm-responsiveness-09 section 4.3.2).
//! - **goresponsiveness, P90** and **trimmed mean**: `60 / ((loaded + foreign) / 2)`. The program
//!   averages the two round trips and converts their mean to a rate, which is the harmonic mean of
//!   the two rates. It prints one value from 90th percentiles and one from trimmed means
//!   (rpm/calculations.go, 2024). A foreign sample is a third of the sum of the three exchanges of
//!   one new connection.
//!
//! With 60 ms on loaded and 20 ms on new connections the draft yields 2000 and the program 1500: a
//! value needs its formula.

/// Raw round trips, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// TCP handshakes of connections without load.
    pub foreign_tcp_ns: Vec<u64>,
    /// TLS handshakes of the same connections, per round trip; empty over plain TCP.
    pub foreign_tls_ns: Vec<u64>,
    /// HTTP exchanges on the same connections.
    pub foreign_http_ns: Vec<u64>,
    /// HTTP exchanges on the connections with load.
    pub loaded_http_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Responsiveness {
    /// By version 09 of the IETF draft.
    pub draft_09: f64,
    /// As goresponsiveness prints it for 90th percentiles.
    pub goresponsiveness_p90: f64,
    pub goresponsiveness_trimmed_mean: f64,
}

/// Percentage of the best values that a trimmed mean uses (TMP of the draft).
const KEPT_PERCENT: usize = 95;
const NANOS_PER_MINUTE: f64 = 60e9;

impl RoundTrips {
    /// Approximates the round trips by those of packets on separate flows, and of the loaded TCP
    /// connections as the kernel measured them. A handshake and an exchange on a new connection
    /// each count as one such round trip. The far end's time for TLS and HTTP and the wait in the
    /// loaded connection's send buffer are missing, so the value is higher than a browser's.
    pub fn of_packets(foreign_ns: &[u64], loaded_ns: &[u64]) -> Self {
        Self {
            foreign_tcp_ns: foreign_ns.to_vec(),
            foreign_tls_ns: foreign_ns.to_vec(),
            foreign_http_ns: foreign_ns.to_vec(),
            loaded_http_ns: loaded_ns.to_vec(),
        }
    }

    /// Returns all three values; `None` if one kind has no samples.
    pub fn responsiveness(&self) -> Option<Responsiveness> {
        let mean_of = |kinds: &[&Vec<u64>]| -> Option<f64> {
            let means: Option<Vec<f64>> = kinds.iter().map(|it| trimmed_mean(it)).collect();
            means.map(|means| means.iter().sum::<f64>() / means.len() as f64)
        };
        let (tcp, tls, http) = (&self.foreign_tcp_ns, &self.foreign_tls_ns, &self.foreign_http_ns);
        let foreign =
            if tls.is_empty() { mean_of(&[tcp, http])? } else { mean_of(&[tcp, tls, http])? };
        let loaded = trimmed_mean(&self.loaded_http_ns)?;
        let draft_09 = f64::midpoint(per_minute(foreign), per_minute(loaded));
        let thirds = self.thirds();
        let p90 = f64::midpoint(percentile_90(&self.loaded_http_ns)?, percentile_90(&thirds)?);
        let mean = f64::midpoint(loaded, trimmed_mean(&thirds)?);
        Some(Responsiveness {
            draft_09,
            goresponsiveness_p90: per_minute(p90),
            goresponsiveness_trimmed_mean: per_minute(mean),
        })
    }

    /// Returns the mean round trip of each new connection over its exchanges (TCP, TLS unless all
    /// are plain, HTTP), once for each exchange.
    fn thirds(&self) -> Vec<u64> {
        let plain = self.foreign_tls_ns.is_empty();
        let parts = if plain { 2 } else { 3 };
        let probes = self.foreign_tcp_ns.iter().zip(&self.foreign_http_ns).enumerate();
        let sum = |(index, (tcp, http)): (usize, (&u64, &u64))| {
            tcp + http + self.foreign_tls_ns.get(index).copied().unwrap_or(0)
        };
        probes.flat_map(|probe| std::iter::repeat_n(sum(probe) / parts, parts as usize)).collect()
    }
}

fn per_minute(round_trip_ns: f64) -> f64 {
    NANOS_PER_MINUTE / round_trip_ns.max(1.0)
}

/// Returns the mean of the best 95 % (rounded down, at least one value).
fn trimmed_mean(values: &[u64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let kept = (sorted.len() * KEPT_PERCENT / 100).max(1);
    let best = sorted.get(..kept)?;
    Some(best.iter().sum::<u64>() as f64 / best.len() as f64)
}

/// Returns the element at index `0.9 n`, rounded down, as goresponsiveness does.
fn percentile_90(values: &[u64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 9 / 10).map(|value| *value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[expect(clippy::float_cmp, reason = "golden numbers")]
    #[test]
    fn both_rpm_formulas_give_the_values_seen_in_the_field() {
        let trips = RoundTrips::of_packets(&[20 * MS; 40], &[60 * MS; 40]);
        let rpm = trips.responsiveness().unwrap();
        assert_eq!(rpm.draft_09, 2_000.0);
        assert_eq!(rpm.goresponsiveness_p90, 1_500.0);
        assert_eq!(rpm.goresponsiveness_trimmed_mean, 1_500.0);
    }

    #[expect(clippy::float_cmp, reason = "golden numbers")]
    #[test]
    fn rpm_formulas_trim_the_worst_twentieth_or_use_the_90th_percentile() {
        // 1 ms to 20 ms on the loaded connections, of which 20 ms is left out: mean 10 ms. The
        // element at 0.9 n is 19 ms.
        let loaded: Vec<u64> = (1..=20).map(|ms| ms * MS).collect();
        let trips = RoundTrips {
            foreign_tcp_ns: vec![10 * MS; 20],
            foreign_tls_ns: vec![20 * MS; 20],
            foreign_http_ns: vec![30 * MS; 20],
            loaded_http_ns: loaded,
        };
        let rpm = trips.responsiveness().unwrap();
        // (60000/20 + 60000/10) / 2
        assert_eq!(rpm.draft_09, 4_500.0);
        // 60000 / ((19 + 20) / 2)
        assert_eq!(rpm.goresponsiveness_p90, 60_000.0 / 19.5);
        assert_eq!(rpm.goresponsiveness_trimmed_mean, 4_000.0);
    }

    #[expect(clippy::float_cmp, reason = "golden numbers")]
    #[test]
    fn plain_tcp_has_two_exchanges_and_no_samples_have_no_rate() {
        let trips = RoundTrips {
            foreign_tcp_ns: vec![10 * MS],
            foreign_http_ns: vec![30 * MS],
            loaded_http_ns: vec![60 * MS],
            ..RoundTrips::default()
        };
        assert_eq!(trips.responsiveness().unwrap().draft_09, 2_000.0);
        assert_eq!(RoundTrips::default().responsiveness(), None);
        let unloaded = RoundTrips { loaded_http_ns: Vec::new(), ..trips };
        assert_eq!(unloaded.responsiveness(), None);
    }
}
