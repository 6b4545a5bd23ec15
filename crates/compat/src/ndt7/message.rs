//! The protocol's text messages, which report the state of a running test.

use serde::Deserialize;

/// Longest text message that is read; real ones have less than 1 KiB.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Largest plausible round trip; a test lasts 13 s at most.
const ROUND_TRIP_US_MAX: f64 = 60e6;
/// Largest plausible duration of a test, us.
const ELAPSED_US_MAX: f64 = 60e6;
/// More than a line of 1 Tbit/s carries in that time.
const BYTES_MAX: f64 = 8e12;

/// The used part of a measurement. Missing and implausible numbers are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurement {
    /// The connection's smoothed round trip, us.
    pub rtt_us: Option<f64>,
    pub rtt_min_us: Option<f64>,
    /// Bytes that the sender's kernel has sent, including retransmissions.
    pub sent_bytes: Option<f64>,
    pub sent_again_bytes: Option<f64>,
    /// Bytes that the server's kernel has received, and the time in which it did, us.
    pub received: Option<(f64, f64)>,
    /// Bytes that the server's program has moved, and the time in which it did, us.
    pub moved: Option<(f64, f64)>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "AppInfo", default)]
    app: Option<App>,
    #[serde(rename = "TCPInfo", default)]
    tcp: Option<Tcp>,
}

#[derive(Deserialize)]
struct App {
    #[serde(rename = "ElapsedTime", default)]
    elapsed_us: Option<f64>,
    #[serde(rename = "NumBytes", default)]
    bytes: Option<f64>,
}

#[derive(Deserialize)]
struct Tcp {
    #[serde(rename = "RTT", default)]
    rtt_us: Option<f64>,
    #[serde(rename = "MinRTT", default)]
    rtt_min_us: Option<f64>,
    #[serde(rename = "BytesSent", default)]
    sent: Option<f64>,
    #[serde(rename = "BytesRetrans", default)]
    sent_again: Option<f64>,
    #[serde(rename = "BytesReceived", default)]
    received: Option<f64>,
    #[serde(rename = "ElapsedTime", default)]
    elapsed_us: Option<f64>,
}

impl Measurement {
    /// Parses a text message.
    ///
    /// # Errors
    /// Returns what is wrong with it, for a message.
    pub fn decode(text: &str) -> Result<Self, &'static str> {
        if text.len() > MESSAGE_BYTES_MAX {
            return Err("a measurement that is longer than 64 KiB");
        }
        // Unknown keys are skipped without recursion, whatever their depth.
        let wire: Wire = serde_json::from_str(text)
            .map_err(|_| "a measurement that is not the JSON expected")?;
        let mut measurement = Self::default();
        if let Some(tcp) = wire.tcp {
            measurement.rtt_us = within(tcp.rtt_us, ROUND_TRIP_US_MAX).filter(|it| *it > 0.0);
            measurement.rtt_min_us =
                within(tcp.rtt_min_us, ROUND_TRIP_US_MAX).filter(|it| *it > 0.0);
            measurement.sent_bytes = within(tcp.sent, BYTES_MAX);
            measurement.sent_again_bytes = within(tcp.sent_again, BYTES_MAX);
            measurement.received = pair(tcp.received, tcp.elapsed_us);
        }
        if let Some(app) = wire.app {
            measurement.moved = pair(app.bytes, app.elapsed_us);
        }
        Ok(measurement)
    }

    /// Share of the bytes that were retransmitted, percent.
    pub fn sent_again_percent(&self) -> Option<f64> {
        let (again, all) = self.sent_again_bytes.zip(self.sent_bytes)?;
        (all > 0.0 && again <= all).then(|| again * 100.0 / all)
    }
}

fn within(value: Option<f64>, most: f64) -> Option<f64> {
    value.filter(|value| (0.0..=most).contains(value))
}

fn pair(bytes: Option<f64>, elapsed_us: Option<f64>) -> Option<(f64, f64)> {
    let elapsed_us = within(elapsed_us, ELAPSED_US_MAX).filter(|it| *it > 0.0);
    within(bytes, BYTES_MAX).zip(elapsed_us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A shortened message of the reference server.
    const REAL: &str = r#"{"AppInfo":{"NumBytes":1048576,"ElapsedTime":250125},
        "ConnectionInfo":{"Client":"192.0.2.1:5","Server":"192.0.2.2:443","UUID":"a_1"},
        "BBRInfo":{"BW":12,"MinRTT":20001,"ElapsedTime":250200},
        "TCPInfo":{"State":1,"RTT":43210,"MinRTT":20500,"BytesSent":2000000,"BytesRetrans":20000,
        "BytesReceived":517,"ElapsedTime":250200,"Options":7},"Origin":"server"}"#;

    #[test]
    fn messages_of_the_reference_server_are_parsed() {
        let read = Measurement::decode(REAL).unwrap();
        assert_eq!((read.rtt_us, read.rtt_min_us), (Some(43_210.0), Some(20_500.0)));
        assert_eq!(read.moved, Some((1_048_576.0, 250_125.0)));
        assert_eq!(read.received, Some((517.0, 250_200.0)));
        assert_eq!(read.sent_again_percent(), Some(1.0));
        assert_eq!(Measurement::decode("{}").unwrap(), Measurement::default());
    }

    #[test]
    fn impossible_numbers_of_a_server_are_rejected() {
        for wrong in ["-1", "1e300", "61000000", "0"] {
            let text = format!("{{\"TCPInfo\":{{\"RTT\":{wrong},\"ElapsedTime\":{wrong}}}}}");
            assert_eq!(Measurement::decode(&text).unwrap(), Measurement::default(), "{wrong}");
        }
        let more_again_than_sent = r#"{"TCPInfo":{"BytesSent":1,"BytesRetrans":2}}"#;
        assert_eq!(Measurement::decode(more_again_than_sent).unwrap().sent_again_percent(), None);
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(9_000), "]".repeat(9_000));
        assert_eq!(Measurement::decode(&deep).unwrap(), Measurement::default(), "passed over");
        let deep = deep.replacen("\"x\"", "\"TCPInfo\"", 1);
        assert!(Measurement::decode(&deep).is_err());
        let long = format!("{{\"x\":\"{}\"}}", "a".repeat(MESSAGE_BYTES_MAX));
        assert!(Measurement::decode(&long).is_err());
        for wrong in ["", "1", "{\"TCPInfo\":3}", "{\"AppInfo\":{\"NumBytes\":\"1\"}}"] {
            assert!(Measurement::decode(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn parsed_numbers_are_within_their_limits(
            text in "\\PC{0,200}",
            rtt in any::<f64>(), sent in any::<i64>(), again in any::<i64>(), us in any::<i64>(),
        ) {
            let _ = Measurement::decode(&text);
            let rtt = if rtt.is_finite() { rtt } else { 0.0 };
            let text = format!(
                "{{\"TCPInfo\":{{\"RTT\":{rtt:e},\"BytesSent\":{sent},\"BytesRetrans\":{again},\
                 \"BytesReceived\":{sent},\"ElapsedTime\":{us}}}}}"
            );
            let read = Measurement::decode(&text).unwrap();
            prop_assert!(read.rtt_us.is_none_or(|it| it > 0.0 && it <= ROUND_TRIP_US_MAX));
            prop_assert!(read.sent_again_percent().is_none_or(|it| (0.0..=100.0).contains(&it)));
            prop_assert!(read.received.is_none_or(|(bytes, us)| bytes >= 0.0 && us > 0.0));
        }
    }
}
