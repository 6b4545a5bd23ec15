//! The queues of a device, as `tc -j -s -d qdisc show` prints them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use underload_aqm::rate::Rate;

/// Longest output that is parsed, in bytes: a device with a thousand queues prints less.
const TEXT_MAX: usize = 4 << 20;

/// A queue discipline of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qdisc {
    pub kind: String,
    /// The qdisc's number, such as `8001:`; `0:` if the kernel created it by default.
    pub handle: String,
    /// The class that it belongs to; `None` for the root.
    pub parent: Option<String>,
    pub options: Map<String, Value>,
    /// Whether `tc` could not print the options, because the kernel is newer.
    pub is_unknown: bool,
}

/// The counters of a queue discipline since its creation, and its present backlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Counts {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub dropped: u64,
    /// Packets that were marked CE; `None` if this kind does not count them.
    pub marked: Option<u64>,
    pub backlog_bytes: u64,
    pub backlog_packets: u64,
    /// Delay of recent packets in microseconds; `None` if this kind does not measure it.
    pub delay_us: Option<u64>,
}

/// A queue discipline with its counts, and its classes if it has some.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The device; empty if `tc` was called for a single device.
    pub device: String,
    pub qdisc: Qdisc,
    pub counts: Counts,
    pub classes: Vec<Class>,
    /// All that `tc` printed of the queue: also the numbers that only its kind has.
    printed: Map<String, Value>,
}

impl Reading {
    /// Returns a count of the queue by its key in JSON, such as `drop_overlimit`; 0 if it has none.
    pub fn count(&self, key: &str) -> u64 {
        self.printed.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns a number of the queue by its key in JSON, such as `prob`.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.printed.get(key)?.as_f64()
    }
}

/// A class (tin) of CAKE.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    pub name: String,
    /// The rate above which the class loses its precedence, in bit/s; 0 if it never does.
    pub threshold_bit_per_s: u64,
    #[serde(flatten)]
    pub counts: Counts,
    /// The longest delay of recent packets, microseconds.
    pub peak_delay_us: u64,
}

/// Why the output of `tc` or `ip` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PrintedError {
    #[error("`{command}` printed more than {TEXT_MAX} bytes")]
    TooLong { command: &'static str },
    #[error("`{command}` printed no JSON: expected iproute2 4.17 or newer")]
    Json { command: &'static str, source: serde_json::Error },
    #[error("`{command}` printed JSON without `{key}`")]
    Lacks { command: &'static str, key: &'static str },
}

impl Qdisc {
    /// Whether the kernel created the queue discipline by default, and would create it again.
    pub fn is_default(&self) -> bool {
        self.handle == "0:"
    }

    /// Whether the queue discipline is for received packets; such a discipline stores no packets.
    pub fn is_ingress(&self) -> bool {
        ["ingress", "clsact"].contains(&self.kind.as_str())
    }

    /// Returns the rate to which the queue limits the line; `None` if it limits none.
    pub fn limit(&self) -> Option<Rate> {
        let bytes_per_s =
            ["bandwidth", "rate"].into_iter().find_map(|key| self.options.get(key)?.as_u64());
        bytes_per_s.map(|bytes| Rate::from_bits_per_second(bytes.saturating_mul(8)))
    }
}

/// Parses what `tc -j -s -d qdisc show` prints; the root of a device is its first queue.
///
/// # Errors
/// Returns [`PrintedError`] if the text is not what `tc` prints.
pub fn parse_readings(text: &str) -> Result<Vec<Reading>, PrintedError> {
    entries(QDISC_SHOW, text)?.into_iter().map(reading).collect()
}

/// A filter of packets that a device receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub preference: u64,
    pub kind: String,
    /// The device that packets are redirected to.
    pub redirects_to: Option<String>,
}

/// Parses what `tc -j filter show dev DEVICE ingress` prints.
///
/// # Errors
/// As [`parse_readings`].
pub fn parse_filters(text: &str) -> Result<Vec<Filter>, PrintedError> {
    let mut filters: Vec<Filter> = Vec::new();
    for entry in entries(FILTER_SHOW, text)? {
        let lacks = |key| PrintedError::Lacks { command: FILTER_SHOW, key };
        let preference = entry.get("pref").and_then(Value::as_u64).ok_or(lacks("pref"))?;
        let kind = text_of(&entry, "kind").ok_or(lacks("kind"))?;
        let actions = entry.get("options").and_then(|options| options.get("actions"));
        let actions = actions.and_then(Value::as_array).into_iter().flatten();
        let mut targets = actions.filter_map(|action| text_of(action.as_object()?, "to_dev"));
        let redirects_to = targets.next();
        // `tc` prints several entries per filter: the filter, its tables and its rules.
        match filters.iter_mut().find(|known| known.preference == preference) {
            Some(known) => known.redirects_to = redirects_to.or(known.redirects_to.take()),
            None => filters.push(Filter { preference, kind, redirects_to }),
        }
    }
    Ok(filters)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub index: u64,
    /// `ether`, `ppp`, `none`: what its packets begin with.
    pub link_type: String,
    /// Queues that the device transmits from.
    pub tx_queues: u64,
}

/// Parses what `ip -j -d link show` prints.
///
/// # Errors
/// As [`parse_readings`].
pub fn parse_devices(text: &str) -> Result<Vec<Device>, PrintedError> {
    let device = |entry: Map<String, Value>| {
        let lacks = |key| PrintedError::Lacks { command: LINK_SHOW, key };
        Ok(Device {
            name: text_of(&entry, "ifname").ok_or(lacks("ifname"))?,
            index: entry.get("ifindex").and_then(Value::as_u64).ok_or(lacks("ifindex"))?,
            link_type: text_of(&entry, "link_type").unwrap_or_default(),
            tx_queues: entry.get("num_tx_queues").and_then(Value::as_u64).unwrap_or(1),
        })
    };
    entries(LINK_SHOW, text)?.into_iter().map(device).collect()
}

const QDISC_SHOW: &str = "tc -j qdisc show";
const FILTER_SHOW: &str = "tc -j filter show";
const LINK_SHOW: &str = "ip -j -d link show";

/// Parses an array of objects.
fn entries(command: &'static str, text: &str) -> Result<Vec<Map<String, Value>>, PrintedError> {
    if text.len() > TEXT_MAX {
        return Err(PrintedError::TooLong { command });
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let text = without_unknown_options(text);
    serde_json::from_str(&text).map_err(|source| PrintedError::Json { command, source })
}

/// Marks a queue with options that `tc` does not know.
const UNKNOWN: &str = "_unknown";

/// Replaces `{[Unknown qdisc, optlen=112] }`, which is no JSON and what `tc` prints for a kind that
/// is newer than itself, and control characters, which `ip` prints in names of devices.
fn without_unknown_options(text: &str) -> String {
    let text = text.replace(|c: char| c.is_ascii_control(), " ");
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(start) = rest.find("{[Unknown qdisc") {
        let Some(end) = rest[start..].find('}') else { break };
        out.push_str(&rest[..start]);
        out.push_str("{\"_unknown\":true}");
        rest = &rest[start + end + 1..];
    }
    out.push_str(rest);
    out
}

fn reading(entry: Map<String, Value>) -> Result<Reading, PrintedError> {
    let lacks = |key| PrintedError::Lacks { command: QDISC_SHOW, key };
    let kind = text_of(&entry, "kind").ok_or(lacks("kind"))?;
    let handle = text_of(&entry, "handle").ok_or(lacks("handle"))?;
    let mut options = match entry.get("options") {
        Some(Value::Object(options)) => options.clone(),
        _ => Map::new(),
    };
    let is_unknown = options.remove(UNKNOWN).is_some();
    let parent = text_of(&entry, "parent");
    let qdisc = Qdisc { kind, handle, parent, options, is_unknown };
    let number = |key: &str| entry.get(key).and_then(Value::as_u64);
    let classes = match entry.get("tins") {
        Some(Value::Array(tins)) => classes(&qdisc, tins),
        _ => Vec::new(),
    };
    let marks = MARKS.into_iter().filter_map(number);
    let marks = marks.chain(classes.iter().filter_map(|class| class.counts.marked));
    let counts = Counts {
        sent_bytes: number("bytes").unwrap_or(0),
        sent_packets: number("packets").unwrap_or(0),
        dropped: number("drops").unwrap_or(0),
        marked: marks.reduce(|sum, marks| sum + marks),
        backlog_bytes: number("backlog").unwrap_or(0),
        backlog_packets: number("qlen").unwrap_or(0),
        delay_us: number("ldelay").or(number("delay")).or(busiest_delay(&classes)),
    };
    let device = text_of(&entry, "dev").unwrap_or_default();
    Ok(Reading { device, qdisc, counts, classes, printed: entry })
}

/// Names of counters of marked packets: of most queues, of dualpi2, of a CE threshold, and of RED
/// and SFB.
const MARKS: [&str; 4] = ["ecn_mark", "ecn-mark", "ce_mark", "marked"];

/// Returns the average delay of the class that sent most.
fn busiest_delay(classes: &[Class]) -> Option<u64> {
    classes.iter().max_by_key(|class| class.counts.sent_bytes)?.counts.delay_us
}

fn classes(qdisc: &Qdisc, tins: &[Value]) -> Vec<Class> {
    let sorting = qdisc.options.get("diffserv").and_then(Value::as_str).unwrap_or_default();
    let names: &[&str] = match sorting {
        "diffserv3" => &["bulk", "best effort", "voice"],
        "diffserv4" => &["bulk", "best effort", "video", "voice"],
        "besteffort" => &["all"],
        _ => &[],
    };
    let class = |(place, tin): (usize, &Value)| {
        let number = |key: &str| tin.get(key).and_then(Value::as_u64).unwrap_or(0);
        let name = names.get(place).map_or_else(|| format!("class {place}"), ToString::to_string);
        let counts = Counts {
            sent_bytes: number("sent_bytes"),
            sent_packets: number("sent_packets"),
            dropped: number("drops"),
            marked: Some(number("ecn_mark")),
            backlog_bytes: number("backlog_bytes"),
            backlog_packets: 0,
            delay_us: Some(number("avg_delay_us")),
        };
        let threshold_bit_per_s = number("threshold_rate").saturating_mul(8);
        Class { name, threshold_bit_per_s, counts, peak_delay_us: number("peak_delay_us") }
    };
    tins.iter().enumerate().map(class).collect()
}

fn text_of(entry: &Map<String, Value>, key: &str) -> Option<String> {
    entry.get(key).and_then(Value::as_str).map(str::to_owned)
}
