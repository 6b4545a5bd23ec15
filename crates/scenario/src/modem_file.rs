//! SPECs with parameters from a modem's configuration file: `docsis-lld:config=FILE` and
//! `docsis:config=FILE`.
//!
//! `config` is replaced by the parameters in the file, so that the record repeats the run without
//! the file. A parameter in the SPEC overrides the file's.

use underload_aqm::config::{ConfigError, LinkFacts, Spec};
use underload_aqm::registry::{LinkSetup, LoadFile, QueueEntry, QueueSetup};
use underload_docsis::Config;
use underload_docsis::aggregate::{LowLatencyUpstream, Member};
use underload_docsis::modem::Modem;

use crate::source::load_file;

/// Parses a queue's SPEC; `load` reads the configuration file that it names.
pub fn queue(
    spec: &Spec,
    link: &LinkFacts,
    load: &mut LoadFile<'_>,
) -> Result<QueueSetup, ConfigError> {
    let mut spec = spec.clone();
    if let Some(known) = QueueEntry::find(&spec.name) {
        known.definition.name.clone_into(&mut spec.name);
    }
    QueueSetup::from_spec(&expand(&spec, "docsis-lld", load, queue_items)?, link)
}

/// Parses a link's SPEC; `load` reads the trace or configuration file that it names.
pub fn link(spec: &Spec, load: &mut LoadFile<'_>) -> Result<LinkSetup, ConfigError> {
    let spec = expand(spec, "docsis", load, link_items)?;
    // Through the text form: a value with a comma must not become two items.
    LinkSetup::parse_with(&spec.to_string(), load)
}

/// Parses the SPEC of a queue outside of a scenario, which may name built-in files and files of the
/// current folder.
pub fn queue_of(text: &str, link: &LinkFacts) -> Result<QueueSetup, ConfigError> {
    queue(&Spec::parse(text)?, link, &mut |name| load_file("", name))
}

/// As [`queue_of`], of a link.
pub fn link_of(text: &str) -> Result<LinkSetup, ConfigError> {
    link(&Spec::parse(text)?, &mut |name| load_file("", name))
}

type Item = (&'static str, String);

const KEY: &str = "config";
/// Larger than any file that a modem accepts.
const MAX_FILE_BYTES: usize = 1 << 16;
/// The hardware that buffers are selected for: 1 KiB blocks, 16 MiB.
const MODEM: (u64, u64) = (1_024, 1 << 24);

fn expand(
    spec: &Spec,
    name: &str,
    load: &mut LoadFile<'_>,
    items: fn(&LowLatencyUpstream) -> Vec<Item>,
) -> Result<Spec, ConfigError> {
    let is_file = |key: &Option<String>| key.as_deref() == Some(KEY);
    let mut files = spec.items.iter().filter(|item| is_file(&item.key));
    let Some(file) = files.next().filter(|_| spec.name == name) else { return Ok(spec.clone()) };
    if files.next().is_some() {
        return Err(ConfigError::repeated(name, KEY));
    }
    let upstream = load(&file.value)
        .and_then(|bytes| read(&bytes).map_err(|problem| format!("{}: {problem}", file.value)));
    let upstream = upstream.map_err(|problem| ConfigError::inside(name, KEY, problem))?;
    let mut full = spec.clone();
    full.items.retain(|item| !is_file(&item.key));
    let is_given = |key: &str| spec.items.iter().any(|item| item.key.as_deref() == Some(key));
    let from_file = items(&upstream).into_iter().filter(|(key, _)| !is_given(key));
    Ok(from_file.fold(full, |full, (key, value)| full.with(key, &value)))
}

/// Decodes the upstream of a configuration file.
pub fn read(bytes: &[u8]) -> Result<LowLatencyUpstream, String> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err("more than 64 KiB; expected a modem's configuration file".to_owned());
    }
    let config = Config::decode(bytes).map_err(|error| error.to_string())?;
    let modem = Modem::new(MODEM.0, MODEM.1).map_err(|error| error.to_string())?;
    LowLatencyUpstream::from_config(&config, &modem).map_err(|error| error.to_string())
}

/// Returns the parameters of the link: the aggregate's token bucket.
fn link_items(upstream: &LowLatencyUpstream) -> Vec<Item> {
    let rate = upstream.sustained_bit_per_s;
    let peak = upstream.rates.peak_bit_per_s.filter(|bit_per_s| *bit_per_s > 0).unwrap_or(rate);
    let burst = upstream.rates.burst_bytes.map(|bytes| ("burst", format!("{bytes}B")));
    let rates = [("rate", format!("{rate}bit")), ("peak", format!("{peak}bit"))];
    rates.into_iter().chain(burst).collect()
}

fn queue_items(upstream: &LowLatencyUpstream) -> Vec<Item> {
    const LOW_LATENCY: [&str; 5] = [
        "low-latency-rate", "low-latency-peak", "low-latency-burst", "low-latency-limit",
        "low-latency-histogram",
    ];
    const CLASSIC: [&str; 5] =
        ["classic-rate", "classic-peak", "classic-burst", "classic-limit", "classic-histogram"];
    let mut items = vec![("rate", format!("{}bit", upstream.sustained_bit_per_s))];
    items.extend(member_items(&upstream.low_latency, LOW_LATENCY));
    items.extend(member_items(&upstream.classic, CLASSIC));
    if let Some(grants) = upstream.proactive {
        items.push(("grant-rate", format!("{}bit", grants.bit_per_s)));
        items.push(("grant-interval", format!("{}us", grants.interval_us)));
    }
    let immediate = &upstream.low_latency.aqm;
    let text = |value: Option<u64>| value.map(|value| value.to_string());
    let us = |value: Option<u16>| value.map(|us| format!("{us}us"));
    let tenths = upstream.coupling_tenths.map(|k| format!("{}.{}", k / 10, k % 10));
    let protection = upstream.protection.map(|on| if on { "on" } else { "off" }.to_owned());
    let codepoints: Vec<String> = upstream.codepoints.iter().map(u8::to_string).collect();
    let settings = [
        ("target", upstream.classic.aqm.latency_target_ms.map(|ms| format!("{ms}ms"))),
        ("threshold", us(immediate.immediate_max_threshold_us)),
        ("range", text(immediate.immediate_range_exponent.map(u64::from))),
        ("coupling", tenths),
        ("weight", text(upstream.weight.map(u64::from))),
        ("protection", protection),
        ("critical-delay", us(upstream.critical_delay_us)),
        ("critical-score", us(upstream.critical_score_us)),
        ("aging", text(upstream.aging_exponent.map(u64::from))),
        ("dscp", Some(codepoints.join("+"))),
    ];
    items.extend(settings.into_iter().filter_map(|(key, value)| Some((key, value?))));
    items
}

/// Returns sustained rate, peak, burst, buffer and latency histogram of one flow under these keys.
fn member_items(
    member: &Member,
    [rate, peak, burst, limit, histogram]: [&'static str; 5],
) -> Vec<Item> {
    let rates = member.rates;
    let mut items = Vec::new();
    // A flow without a sustained rate has the rates of the aggregate.
    if let Some(bit_per_s) = rates.sustained_bit_per_s.filter(|bit_per_s| *bit_per_s > 0) {
        items.push((rate, format!("{bit_per_s}bit")));
        let peak_rate = rates.peak_bit_per_s.filter(|bit_per_s| *bit_per_s > 0);
        items.extend(peak_rate.map(|bit_per_s| (peak, format!("{bit_per_s}bit"))));
        items.extend(rates.burst_bytes.map(|bytes| (burst, format!("{bytes}B"))));
    }
    items.extend(member.buffer_bytes.map(|bytes| (limit, format!("{bytes}B"))));
    let edges = member.aqm.histogram_edges.iter();
    let edges: Vec<String> = edges.map(|edge| format!("{}us", u32::from(*edge) * 10)).collect();
    items.extend((!edges.is_empty()).then(|| (histogram, edges.join("+"))));
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_docsis::qos::Direction;
    use underload_docsis::recommend::{Choice, Service};

    fn file() -> Vec<u8> {
        let tier = Service {
            direction: Direction::Upstream,
            sustained_bit_per_s: 20_000_000,
            peak_bit_per_s: 24_000_000,
            burst_bytes: 40_960,
        };
        tier.configuration(Choice::LowLatency(10)).encode().expect("it fits")
    }

    fn parsed(link_spec: &str, queue_spec: &str) -> Result<[String; 2], ConfigError> {
        let mut load = |name: &str| match name {
            "modem.bin" => Ok(file()),
            "short.bin" => Ok(file()[..40].to_vec()),
            "plain.bin" => Ok(Config::new([]).encode().expect("it fits")),
            "huge.bin" => Ok(vec![0; 1 << 20]),
            other => Err(format!("{other}: not there")),
        };
        let link = link(&Spec::parse(link_spec)?, &mut load)?;
        let queue = queue(&Spec::parse(queue_spec)?, &link.facts(), &mut load)?;
        Ok([link.label.to_string(), queue.label.to_string()])
    }

    #[test]
    fn the_settings_of_a_modem_file_become_parameters() {
        let [link, queue] =
            parsed("docsis:config=modem.bin,map=2ms", "docsis-lld:config=modem.bin").expect("both");
        assert_eq!(link, "docsis:map=2ms,rate=20mbit,peak=24mbit,burst=40KiB");
        let expected = "docsis-lld:rate=20mbit,classic-limit=73KiB,target=10ms,coupling=2,\
                        weight=230,protection=on,dscp=45";
        assert_eq!(queue, expected);
        let again = parsed(&link, &queue).expect("what is recorded");
        assert_eq!(again, [link, queue]);
    }

    #[test]
    fn the_histograms_edges_are_the_files() {
        let mut upstream = read(&file()).expect("a file");
        upstream.low_latency.aqm.histogram_edges = vec![50, 100, 65_535];
        let items = queue_items(&upstream);
        let edges = ("low-latency-histogram", "500us+1000us+655350us".to_owned());
        assert!(items.contains(&edges), "{items:?}");
        assert!(!items.iter().any(|(key, _)| *key == "classic-histogram"), "{items:?}");
        let spec = Spec::parse(&format!("docsis-lld:rate=20mbit,{}={}", edges.0, edges.1));
        QueueSetup::from_spec(&spec.expect("a SPEC"), &LinkFacts::UNKNOWN).expect("accepted");
    }

    #[test]
    fn the_spec_overrides_the_modem_file() {
        let queue = "docsis-lld:weight=200,config=modem.bin,classic-limit=90kB";
        let [_, queue] = parsed("20mbit", queue).expect("both");
        assert!(queue.contains("weight=200") && queue.contains("classic-limit=90000B"), "{queue}");
        assert!(!queue.contains("weight=230"), "{queue}");
    }

    #[test]
    fn errors_name_the_file_and_what_would_be_accepted() {
        for (queue, expected) in [
            ("docsis_lld:config=none.bin", "`docsis-lld`: in `config`: none.bin: not there"),
            ("docsis-lld:config=none.bin", "`docsis-lld`: in `config`: none.bin: not there"),
            ("docsis-lld:config=short.bin", "in `config`: short.bin: "),
            ("docsis-lld:config=plain.bin", "no upstream aggregate (70) has low latency"),
            ("docsis-lld:config=huge.bin", "more than 64 KiB"),
            ("docsis-lld:config=modem.bin,config=modem.bin", "`config` is given twice"),
            ("docsis-pie:config=modem.bin", "`docsis-pie` has no parameter `config`"),
        ] {
            let error = parsed("20mbit", queue).expect_err(queue).to_string();
            assert!(error.contains(expected), "{queue}: {error}");
        }
    }
}
