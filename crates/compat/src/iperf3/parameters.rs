//! The parameters of a test: the client's JSON, checked against the limits.

use std::time::Duration;

use serde::Deserialize;
use underload_record::schema::FlowDirection;

use super::Iperf3Limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub protocol: Protocol,
    pub direction: FlowDirection,
    /// Streams per direction, at least 1.
    pub streams: u32,
    /// How long the client sends after the omitted time; zero if the amount ends the test.
    pub duration: Duration,
    /// Payload of a direction after the omitted time, all streams together; `None` if only the time
    /// ends the test.
    pub amount: Option<u64>,
    /// Time at the start whose traffic does not count.
    pub omit: Duration,
    /// Bytes of a write, or of a datagram's payload.
    pub len: usize,
    /// Rate of each stream, bit/s of payload; `None` for no limit.
    pub bit_per_s: Option<u64>,
    pub no_delay: bool,
    /// Requested size of the socket buffers, bytes.
    pub window: Option<usize>,
    /// The IP header's byte with the DSCP to send; 0 if the DSCP is not allowed.
    pub traffic_class: u8,
    /// Congestion control of the server's streams.
    pub congestion: Option<String>,
    /// Whether datagrams have 64-bit counters.
    pub counters_64bit: bool,
    /// Whether the client requests the server's text output.
    pub wants_output: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// An error number of iperf3, which its client turns into a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

impl Refusal {
    pub const DURATION: Self = Self(5);
    pub const STREAMS: Self = Self(6);
    pub const BLOCK_SIZE: Self = Self(7);
    pub const WINDOW: Self = Self(8);
    pub const OMIT: Self = Self(12);
    /// The sum of the rates exceeds the limit, or no rate is declared.
    pub const TOTAL_RATE: Self = Self(27);
    pub const PARAMETERS: Self = Self(114);
    pub const PROTOCOL: Self = Self(131);
    pub const CONGESTION: Self = Self(134);
}

/// The JSON of the client. Numbers are floats, because iperf3's JSON library writes large ones that
/// way; unknown keys are skipped, because every version adds some.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of a foreign format")]
struct Wire {
    tcp: bool,
    udp: bool,
    sctp: bool,
    omit: f64,
    time: f64,
    num: f64,
    blockcount: f64,
    parallel: Option<f64>,
    reverse: bool,
    bidirectional: bool,
    nodelay: bool,
    window: f64,
    len: f64,
    bandwidth: f64,
    fqrate: f64,
    #[serde(rename = "TOS")]
    tos: f64,
    congestion: Option<String>,
    udp_counters_64bit: f64,
    get_server_output: f64,
}

/// Largest block that iperf3 itself accepts, bytes.
const TCP_LEN_MAX: u64 = 1 << 20;
const TCP_LEN_DEFAULT: u64 = 128 << 10;
const UDP_LEN_DEFAULT: u64 = 1460;
/// A datagram's header: two words of time, a counter of up to 64 bits.
const UDP_LEN_MIN: u64 = 16;
const UDP_LEN_MAX: u64 = 65_507;
const WINDOW_MAX: u64 = 512 << 20;
const OMIT_MAX_S: u64 = 60;

impl Parameters {
    /// Parses and checks a client's JSON.
    ///
    /// # Errors
    /// Returns the error number to send to the client.
    pub fn decode(json: &[u8], limits: &Iperf3Limits) -> Result<Self, Refusal> {
        let wire: Wire = serde_json::from_slice(json).map_err(|_| Refusal::PARAMETERS)?;
        let protocol = match (wire.tcp, wire.udp, wire.sctp) {
            (true, false, false) => Protocol::Tcp,
            (false, true, false) => Protocol::Udp,
            _ => return Err(Refusal::PROTOCOL),
        };
        let direction = match (wire.reverse, wire.bidirectional) {
            (_, true) => FlowDirection::Both,
            (true, false) => FlowDirection::Down,
            (false, false) => FlowDirection::Up,
        };
        let streams_max = u64::from(limits.streams_max);
        let streams =
            whole(wire.parallel.unwrap_or(1.0), 1, streams_max).ok_or(Refusal::STREAMS)? as u32;
        let omit = whole(wire.omit, 0, OMIT_MAX_S).ok_or(Refusal::OMIT)?;
        let time = whole(wire.time, 0, u64::from(u32::MAX)).ok_or(Refusal::DURATION)?;
        if time + omit > limits.duration_max.as_secs() {
            return Err(Refusal::DURATION);
        }
        let len = wire.len(protocol).ok_or(Refusal::BLOCK_SIZE)?;
        let window = whole(wire.window, 0, WINDOW_MAX).ok_or(Refusal::WINDOW)?;
        let parameters = Self {
            protocol,
            direction,
            streams,
            duration: Duration::from_secs(time),
            omit: Duration::from_secs(omit),
            amount: wire.amount(len)?,
            len,
            bit_per_s: wire.bit_per_s()?,
            no_delay: wire.nodelay,
            window: (window > 0).then_some(window as usize),
            traffic_class: wire.traffic_class(limits),
            congestion: wire.congestion,
            counters_64bit: wire.udp_counters_64bit > 0.0,
            wants_output: wire.get_server_output > 0.0,
        };
        parameters.check_rate(limits)?;
        Ok(parameters)
    }

    fn check_rate(&self, limits: &Iperf3Limits) -> Result<(), Refusal> {
        let Some(limit) = limits.bit_per_s_max else { return Ok(()) };
        let is_over = match self.bit_per_s {
            Some(rate) => rate.saturating_mul(u64::from(self.streams)) > limit,
            None => self.protocol == Protocol::Udp && self.direction != FlowDirection::Down,
        };
        if is_over { Err(Refusal::TOTAL_RATE) } else { Ok(()) }
    }

    /// Returns the number of streams in both directions.
    pub fn streams_in_all(&self) -> usize {
        let directions = if self.direction == FlowDirection::Both { 2 } else { 1 };
        self.streams as usize * directions
    }

    /// Returns whether the server sends on the stream at `place`, in the order of opening: in a
    /// test of both directions the client first opens the streams on which it sends.
    pub fn server_sends_on(&self, place: usize) -> bool {
        match self.direction {
            FlowDirection::Up => false,
            FlowDirection::Down => true,
            FlowDirection::Both => place >= self.streams as usize,
        }
    }
}

impl Wire {
    fn len(&self, protocol: Protocol) -> Option<usize> {
        let (min, max, default) = match protocol {
            Protocol::Tcp => (1, TCP_LEN_MAX, TCP_LEN_DEFAULT),
            Protocol::Udp => (UDP_LEN_MIN, UDP_LEN_MAX, UDP_LEN_DEFAULT),
        };
        let len = if self.len == 0.0 { default } else { whole(self.len, min, max)? };
        Some(len as usize)
    }

    /// Returns the amount of `-n` or `-k`; the smaller one ends the test.
    fn amount(&self, len: usize) -> Result<Option<u64>, Refusal> {
        let read = |count| whole(count, 0, u64::MAX).ok_or(Refusal::PARAMETERS);
        let block_bytes = read(self.blockcount)?.saturating_mul(len as u64);
        Ok([read(self.num)?, block_bytes].into_iter().filter(|amount| *amount > 0).min())
    }

    fn bit_per_s(&self) -> Result<Option<u64>, Refusal> {
        let read = |rate| whole(rate, 0, u64::MAX).ok_or(Refusal::PARAMETERS);
        let rates = [read(self.bandwidth)?, read(self.fqrate)?];
        Ok(rates.into_iter().filter(|rate| *rate > 0).min())
    }

    fn traffic_class(&self, limits: &Iperf3Limits) -> u8 {
        let class = whole(self.tos, 0, 255).unwrap_or(0) as u8 & !3;
        if limits.policy.allows_dscp(class >> 2) { class } else { 0 }
    }
}

/// Returns a number within a range, without its fraction; `None` outside the range.
fn whole(value: f64, min: u64, max: u64) -> Option<u64> {
    let is_within = value >= min as f64 && value <= max as f64;
    is_within.then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(json: &str) -> Result<Parameters, Refusal> {
        Parameters::decode(json.as_bytes(), &Iperf3Limits::default())
    }

    #[test]
    fn what_iperf3_3_12_sends_is_read() {
        let parameters = decode(
            r#"{"tcp":true,"omit":1,"time":5,"num":0,"blockcount":0,"parallel":2,
               "bidirectional":true,"len":131072,"pacing_timer":1000,"congestion":"cubic",
               "client_version":"3.12"}"#,
        )
        .unwrap();
        assert_eq!((parameters.protocol, parameters.streams), (Protocol::Tcp, 2));
        assert_eq!((parameters.duration.as_secs(), parameters.omit.as_secs()), (5, 1));
        assert_eq!(parameters.streams_in_all(), 4);
        let sends: Vec<bool> = (0..4).map(|place| parameters.server_sends_on(place)).collect();
        assert_eq!(sends, [false, false, true, true]);
        let udp = decode(
            r#"{"udp":true,"time":2,"reverse":true,"len":1448,"bandwidth":1.048576e6,
               "udp_counters_64bit":1,"TOS":181}"#,
        )
        .unwrap();
        assert_eq!((udp.bit_per_s, udp.counters_64bit), (Some(1_048_576), true));
        assert_eq!(udp.traffic_class, 45 << 2, "the DSCP without ECN");
    }

    #[test]
    fn an_amount_is_bytes_or_blocks() {
        let amount = |json| decode(json).unwrap().amount;
        assert_eq!(amount(r#"{"tcp":true,"num":5242880,"blockcount":0}"#), Some(5 << 20));
        assert_eq!(amount(r#"{"tcp":true,"blockcount":3,"len":1000}"#), Some(3_000));
        assert_eq!(amount(r#"{"tcp":true,"time":5,"num":0}"#), None);
        assert_eq!(decode(r#"{"tcp":true,"num":-1}"#), Err(Refusal::PARAMETERS));
    }

    #[test]
    fn what_is_too_much_is_refused_with_iperf3s_number() {
        let cases = [
            ("{", Refusal::PARAMETERS),
            (r#"{"tcp":1}"#, Refusal::PARAMETERS),
            ("{}", Refusal::PROTOCOL),
            (r#"{"sctp":true}"#, Refusal::PROTOCOL),
            (r#"{"tcp":true,"parallel":0}"#, Refusal::STREAMS),
            (r#"{"tcp":true,"parallel":129}"#, Refusal::STREAMS),
            (r#"{"tcp":true,"time":121}"#, Refusal::DURATION),
            (r#"{"tcp":true,"time":-1}"#, Refusal::DURATION),
            (r#"{"tcp":true,"time":100,"omit":30}"#, Refusal::DURATION),
            (r#"{"tcp":true,"omit":1e300}"#, Refusal::OMIT),
            (r#"{"udp":true,"len":15,"bandwidth":1}"#, Refusal::BLOCK_SIZE),
            (r#"{"udp":true}"#, Refusal::TOTAL_RATE),
            (r#"{"tcp":true,"parallel":2,"bandwidth":6e8}"#, Refusal::TOTAL_RATE),
            (r#"{"tcp":true,"window":1e12}"#, Refusal::WINDOW),
        ];
        for (json, refusal) in cases {
            assert_eq!(decode(json).unwrap_err(), refusal, "{json}");
        }
        assert!(decode(r#"{"udp":true,"reverse":true}"#).is_ok(), "the server can slow down");
        let ef = decode(r#"{"tcp":true,"TOS":184}"#).unwrap();
        assert_eq!(ef.traffic_class, 0, "priority is not for the asking");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parameters::decode(&bytes, &Iperf3Limits::default());
        }
    }
}
