//! Queues that Linux lacks, as BPF programs: BoDe and DOCSIS-PIE.
//!
//! The C files in `queues` have the laws; this module has the request of the user, and the settings
//! as the C files lay them out: 64-bit numbers without gaps.

mod maps;

pub use maps::{Backlog, Counts, Maps, MapsError, Place, Report};

use std::fmt;

use underload_aqm::config::{ConfigError, Kind, LinkFacts, Spec, Value};
use underload_aqm::queue::bode::BodeProfile;
use underload_aqm::queue::store::Limit;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QueueConfig, QueueEntry, QueueSetup};
use underload_aqm::time::Span;

underload_aqm::named! {
    /// A queue discipline that is a BPF program, with its name in SPECs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Law {
        Bode = "bode",
        DocsisPie = "docsis-pie",
    }
}

/// A queue of a [`Law`] with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelQueue {
    pub law: Law,
    /// Rate, limits and the law's parameters, as `struct settings` has them after the version.
    settings: Vec<u64>,
}

/// Why a SPEC cannot be a queue of the kernel.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "ecn=on: a BPF queue cannot mark packets, because the kernel has no function for it that \
         such a program may call; leave out `ecn=`"
    )]
    Ecn,
    #[error("`{0}` is no queue that underload brings to the kernel; expected bode or docsis-pie")]
    Unknown(String),
    #[error("rate: `{0}` is no rate; expected 1kbit to 400gbit, such as rate=20mbit")]
    Rate(String),
    #[error("{0}: a kernel queue shapes to one rate; leave out `{0}=`")]
    Bucket(String),
    #[error("limit: a kernel queue stores at most {PACKETS_MAX} packets, but limit={0}p")]
    Limit(u64),
}

impl Law {
    /// Returns the name of its queue in the kernel, as `tc` prints it.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Bode => "ul_bode",
            Self::DocsisPie => "ul_docsis_pie",
        }
    }

    /// Returns the law of a queue that `tc` prints with this kind.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|law| law.kind() == kind)
    }

    /// Returns the compiled BPF object.
    pub const fn object(self) -> &'static [u8] {
        match self {
            Self::Bode => include_bytes!("../../queues/bode.bpf.o"),
            Self::DocsisPie => include_bytes!("../../queues/docsis_pie.bpf.o"),
        }
    }

    /// Returns the names of the parameters in `struct law_settings`, in their order.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Bode => &["bound_ns", "exempt_packets", "is_patch"],
            Self::DocsisPie => &["target_ns", "rate", "peak", "burst_bytes", "buffer_bytes"],
        }
    }

    fn find(name: &str) -> Option<Self> {
        Self::from_name(QueueEntry::find(name)?.definition.name)
    }
}

impl KernelQueue {
    /// Parses a SPEC. `bode` has a parameter `rate` here, to which it shapes; DOCSIS-PIE shapes to
    /// its own.
    ///
    /// # Errors
    /// Returns [`SpecError`] if the queue, a parameter or a value cannot be a BPF program's.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut spec = Spec::parse(text)?;
        let law = Law::find(&spec.name).ok_or_else(|| SpecError::Unknown(spec.name.clone()))?;
        if let Some(ecn) = remove(&mut spec, "ecn")
            && ecn != "off"
        {
            return Err(SpecError::Ecn);
        }
        let mut shaped = None;
        match law {
            Law::Bode => {
                shaped = remove(&mut spec, "rate").map(|text| rate(&text)).transpose()?;
            }
            Law::DocsisPie => {
                for key in ["peak", "burst"] {
                    if remove(&mut spec, key).is_some() {
                        return Err(SpecError::Bucket(key.to_owned()));
                    }
                }
            }
        }
        let setup = QueueSetup::from_spec(&spec, &LinkFacts::default());
        let setup = setup.map_err(|error| with_rate(law, error))?;
        if let QueueConfig::DocsisPie(queue) = &setup.config {
            shaped = Some(queue.0.rate);
        }
        let queue = Self::new(&setup.config, shaped).ok_or(SpecError::Unknown(spec.name))?;
        // A limit in bytes sets the limit in packets to `u32::MAX`.
        match queue.settings[1] {
            packets if packets > PACKETS_MAX && packets < u64::from(u32::MAX) => {
                Err(SpecError::Limit(packets))
            }
            _ => Ok(queue),
        }
    }

    /// Returns the queue of a configuration, shaped to a rate; `None` if no law is its.
    pub fn new(config: &QueueConfig, shaped: Option<Rate>) -> Option<Self> {
        let (law, limit, parameters) = match config {
            QueueConfig::Bode(queue) => {
                let bode = queue.config;
                let is_patch = u64::from(bode.profile == BodeProfile::Patch);
                let exempt = u64::from(bode.exempt_packets);
                (Law::Bode, queue.limit, vec![bode.bound.as_nanos(), exempt, is_patch])
            }
            QueueConfig::DocsisPie(queue) => {
                let pie = &queue.0;
                let (rate, peak) = (pie.rate.bits_per_second(), pie.peak.bits_per_second());
                let target = pie.target.as_nanos();
                let parameters = vec![target, rate, peak, pie.burst_bytes, pie.buffer_bytes];
                (Law::DocsisPie, Limit::bytes(pie.buffer_bytes), parameters)
            }
            _ => return None,
        };
        let rate = shaped.map_or(0, Rate::bits_per_second);
        let mut settings = vec![rate, u64::from(limit.packets), limit.bytes];
        settings.extend(parameters);
        Some(Self { law, settings })
    }

    /// Returns the rate to which the queue shapes.
    pub fn rate(&self) -> Option<Rate> {
        self.settings.first().filter(|rate| **rate > 0).map(|it| Rate::from_bits_per_second(*it))
    }

    /// Returns BoDe's bound or DOCSIS-PIE's target, which both have first.
    pub fn bound_ns(&self) -> u64 {
        self.settings.get(SHAPING.len()).copied().unwrap_or_default()
    }

    /// Returns the numbers of `struct settings`. `version` must differ from the previous settings'
    /// version.
    pub fn words(&self, version: u64) -> Vec<u64> {
        let mut words = vec![version];
        words.extend(&self.settings);
        words
    }

    /// Reads `struct settings` as `bpftool` prints it; `None` if a field is missing.
    fn from_json(law: Law, json: &serde_json::Map<String, serde_json::Value>) -> Option<Self> {
        let shaping = SHAPING.iter().map(|name| json.get(*name)?.as_u64());
        let parameters = law.fields().iter().map(|name| json.get("law")?.get(*name)?.as_u64());
        Some(Self { law, settings: shaping.chain(parameters).collect::<Option<_>>()? })
    }
}

impl fmt::Display for KernelQueue {
    /// Formats the queue as a complete SPEC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = Rate::from_bits_per_second;
        match (self.law, self.settings.as_slice()) {
            (Law::Bode, &[shaped, packets, bytes, bound, exempt, is_patch]) => {
                let profile = if is_patch == 0 { "paper" } else { "patch" };
                let bound = Span::from_nanos(bound);
                write!(f, "bode:profile={profile},bound={bound},exempt={exempt}p")?;
                match bytes {
                    u64::MAX => write!(f, ",limit={packets}p")?,
                    bytes => write!(f, ",limit={bytes}B")?,
                }
                if shaped > 0 { write!(f, ",rate={}", rate(shaped)) } else { Ok(()) }
            }
            (Law::DocsisPie, &[_, _, limit, target, sustained, ..]) => {
                let (target, rate) = (Span::from_nanos(target), rate(sustained));
                write!(f, "docsis-pie:target={target},rate={rate},limit={limit}B")
            }
            (law, _) => f.write_str(law.name()),
        }
    }
}

/// Maximum number of packets in a queue of the kernel: `RING` in `kernel.h`.
const PACKETS_MAX: u64 = 16_384;
/// Queues of one law that the kernel can have, in all network namespaces: as in `kernel.h`.
pub const QUEUES_MAX: usize = 32;
/// Names of the first numbers of `struct settings`, after the version.
const SHAPING: [&str; 3] = ["rate", "limit_packets", "limit_bytes"];

/// Adds `rate` to the keys that an error lists, because only here has BoDe that key.
fn with_rate(law: Law, mut error: ConfigError) -> ConfigError {
    if let (Law::Bode, ConfigError::UnknownKey { known, .. }) = (law, &mut error) {
        known.insert_str(0, "rate, ");
    }
    error
}

/// Removes a key from a SPEC and returns its last value.
fn remove(spec: &mut Spec, key: &str) -> Option<String> {
    let is_key = |item: &underload_aqm::config::Item| item.key.as_deref() == Some(key);
    let value = spec.items.iter().rev().find(|item| is_key(item))?.value.clone();
    spec.items.retain(|item| !is_key(item));
    Some(value)
}

fn rate(text: &str) -> Result<Rate, SpecError> {
    let range = 1_000..=400_000_000_000;
    match Kind::Rate.read(text) {
        Some(Value::Rate(rate)) if range.contains(&rate.bits_per_second()) => Ok(rate),
        _ => Err(SpecError::Rate(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_laid_out_as_the_c_files_read_them() {
        let queue = KernelQueue::parse("bode:bound=10ms,rate=20mbit").expect("a queue");
        let words = queue.words(7);
        assert_eq!(words, [7, 20_000_000, 1_000, u64::MAX, 10_000_000, 3, 0]);
        let queue = KernelQueue::parse("docsis_pie:rate=8mbit,limit=64KiB").expect("a queue");
        let words = queue.words(1);
        let shaping = [1, 8_000_000, u64::from(u32::MAX), 65_536];
        assert_eq!(words[..4], shaping);
        assert_eq!(words[4..], [10_000_000, 8_000_000, 8_000_000, 0, 65_536]);
        assert_eq!(KernelQueue::parse("bode").expect("a queue").words(0)[1], 0, "no shaping");
    }

    #[test]
    fn a_queue_prints_a_spec_that_parses_to_it() {
        for spec in [
            "bode",
            "bode:profile=patch,bound=1500us,exempt=0p,limit=30KB,rate=7777kbit",
            "docsis-pie:rate=10mbit",
            "docsis-pie:target=3ms,rate=1gbit,limit=3s",
        ] {
            let queue = KernelQueue::parse(spec).expect(spec);
            let printed = queue.to_string();
            assert_eq!(KernelQueue::parse(&printed).ok().as_ref(), Some(&queue), "{printed}");
        }
    }

    #[test]
    fn settings_that_bpf_queues_lack_are_refused_by_name() {
        for (spec, expected) in [
            ("bode:ecn=on", "ecn=on: a BPF queue cannot mark packets"),
            ("docsis-pie:rate=1mbit,ecn=on", "ecn=on"),
            ("codel", "expected bode or docsis-pie"),
            ("nonsense", "`nonsense` is no queue"),
            ("bode:rate=fast", "`fast` is no rate"),
            ("bode:rate=0bit", "expected 1kbit to 400gbit"),
            ("bode:rate=1000gbit", "expected 1kbit to 400gbit"),
            ("docsis-pie", "rate"),
            ("docsis-pie:rate=1mbit,peak=2mbit", "leave out `peak=`"),
            ("docsis-pie:rate=1mbit,burst=10KB", "leave out `burst=`"),
            ("bode:limit=16385p", "limit: a kernel queue stores at most 16384 packets"),
            ("bode:bound=61s", "bound"),
            ("bode:colour=red", "known: rate, profile"),
            ("bode:[", "bode"),
        ] {
            let error = KernelQueue::parse(spec).expect_err(spec).to_string();
            assert!(error.contains(expected), "{spec}: {error}");
        }
        for spec in ["bode:ecn=off", "bode:limit=16384p", "bode:limit=64MB"] {
            assert!(KernelQueue::parse(spec).is_ok(), "{spec}");
        }
        for limit in [format!("RING {PACKETS_MAX}"), format!("QUEUES_MAX {QUEUES_MAX}")] {
            let definition = format!("#define {limit}\n");
            assert!(include_str!("../../queues/kernel.h").contains(&definition), "{limit}");
        }
    }
}
