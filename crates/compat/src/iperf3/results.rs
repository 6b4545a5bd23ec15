//! The results that both ends exchange at the end, as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Results {
    pub cpu_util_total: f64,
    pub cpu_util_user: f64,
    pub cpu_util_system: f64,
    /// 1 if the server sends over TCP and knows retransmissions, 0 if it sends over UDP, -1 if it
    /// does not send.
    pub sender_has_retransmits: i8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    pub streams: Vec<StreamResult>,
}

/// A stream, without the omitted time except where a field includes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StreamResult {
    pub id: u64,
    pub bytes: u64,
    /// Retransmitted segments; -1 if unknown.
    pub retransmits: i64,
    pub jitter: f64,
    /// Lost datagrams, with those of the omitted time.
    pub errors: u64,
    pub omitted_errors: u64,
    /// Datagrams, with those of the omitted time.
    pub packets: u64,
    pub omitted_packets: u64,
    pub start_time: f64,
    pub end_time: f64,
}

/// Returns the number of the stream at this place: 1, 3, 4, 5 and so on, as in iperf3.
pub(super) fn stream_id(place: usize) -> u64 {
    if place == 0 { 1 } else { place as u64 + 2 }
}

/// Returns true if `json` has a client's results: an object with a list of streams.
pub fn check_results(json: &[u8]) -> bool {
    serde_json::from_slice::<Value>(json)
        .is_ok_and(|value| value.get("streams").is_some_and(Value::is_array))
}

/// Returns the text that `--get-server-output` shows.
pub(super) fn output(sends: &[bool], streams: &[StreamResult], lasted: Duration) -> String {
    let mut text = format!("underload: streams {}, {:.2} s\n", streams.len(), lasted.as_secs_f64());
    for (stream, sends) in streams.iter().zip(sends) {
        let verb = if *sends { "sent" } else { "received" };
        let mbit_per_s = stream.bytes as f64 * 8e-6 / lasted.as_secs_f64().max(1e-9);
        let (id, bytes) = (stream.id, stream.bytes);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{id:3}] {verb} {bytes} bytes, {mbit_per_s:.2} Mbit/s");
    }
    text
}

/// Returns the processor time of this process, user and system.
pub(super) fn processor_time() -> [Duration; 2] {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return [Duration::ZERO; 2] };
    [usage.user_time(), usage.system_time()].map(|time| {
        let micros = time.num_microseconds();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_iperf3_does() {
        assert_eq!((0..4).map(stream_id).collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn results_have_the_keys_that_clients_demand() {
        let results = Results { streams: vec![StreamResult::default()], ..Results::default() };
        let value = serde_json::to_value(&results).unwrap();
        for key in ["cpu_util_total", "cpu_util_user", "cpu_util_system", "sender_has_retransmits"]
        {
            assert!(value[key].is_number(), "{key}");
        }
        assert!(value.get("congestion_used").is_none());
        assert_eq!(value["streams"][0].as_object().unwrap().len(), 10);
        assert!(check_results(&serde_json::to_vec(&results).unwrap()));
        assert!(!check_results(b"[]") && !check_results(b"{\"streams\":1}") && !check_results(b""));
    }
}
