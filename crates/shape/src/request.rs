//! The request of a user: the device, the rates, the queue, and the overhead of the line.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use underload_aqm::config::{ConfigError, Kind, LinkFacts, Spec, Value, closest};
use underload_aqm::rate::Rate;
use underload_aqm::registry::QueueEntry;
use underload_record::schema::{Direction, PerDirection};
use underload_record::text::shell_word;
use underload_tc::printed::Device;
use underload_tc::words;

/// Longest name of a device, which is also the kernel's limit.
const NAME_MAX: usize = 15;
/// Below this rate a packet of 1500 bytes takes more than 1.5 s.
pub const RATE_MIN: Rate = Rate::from_bits_per_second(8_000);

/// Rates and queue of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub device: String,
    /// Rates of what the device sends (up) and receives; `None` leaves a direction unshaped.
    pub rates: PerDirection<Option<Rate>>,
    /// The queue, of both directions unless `down_queue` has another.
    pub queue: Spec,
    /// The queue of what the device receives, if it differs.
    pub down_queue: Option<Spec>,
    pub overhead: Overhead,
}

/// Why a request is refused before the device is examined.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("--{direction}: a rate of {rate} lets nothing pass; expected at least 8kbit")]
    TooSlow { direction: Direction, rate: Rate },
    #[error(
        "--{direction}: {device} passes {port} at most; expected less than that: 90 to 95 % \
         of what the access line carries"
    )]
    AbovePort { direction: Direction, device: String, port: Rate },
    #[error("nothing to shape: expected --up RATE, --down RATE, or both")]
    NoRate,
    #[error("--dev: `{0}` is no name of a device; expected at most 15 letters without `/`")]
    DeviceName(String),
    #[error(
        "--queue cake_mq: {device} has one transmit queue; expected a device with several: use cake"
    )]
    OneQueue { device: String },
    #[error("--queue: CAKE's rate is that of --up and --down; leave out `rate=`")]
    OwnRate,
    #[error("--overhead and `{0}=` of --queue say the same; leave out one of them")]
    OwnOverhead(String),
    #[error(
        "--queue: no Linux queue `{0}`; `underload kernel-queue` has bode and docsis-pie, \
         `underload link` has all queues on an emulated link"
    )]
    NotInLinux(String),
    #[error("--queue")]
    Queue(#[from] ConfigError),
}

impl Request {
    /// Checks rates, names and the queue. `port` is the rate of the device itself, if it is known.
    ///
    /// # Errors
    /// Returns the first value that cannot be applied.
    pub fn check(&self, port: Option<Rate>) -> Result<(), RequestError> {
        let name = &self.device;
        let is_odd = |c: char| c == '/' || c.is_whitespace() || c.is_control();
        let is_special = name.is_empty() || name.starts_with('-') || name == "." || name == "..";
        if is_special || name.len() > NAME_MAX || name.contains(is_odd) {
            return Err(RequestError::DeviceName(name.clone()));
        }
        if self.shaped().next().is_none() {
            return Err(RequestError::NoRate);
        }
        for (direction, rate) in self.shaped() {
            if rate < RATE_MIN {
                return Err(RequestError::TooSlow { direction, rate });
            }
            if let Some(port) = port.filter(|port| rate > *port) {
                return Err(RequestError::AbovePort { direction, device: name.clone(), port });
            }
            self.queue_words(direction, rate)?;
        }
        Ok(())
    }

    /// Returns the directions that are shaped, with their rates.
    pub fn shaped(&self) -> impl Iterator<Item = (Direction, Rate)> {
        self.rates.into_iter().filter_map(|(direction, rate)| Some((direction, rate?)))
    }

    /// Returns the command that shapes the device as requested.
    pub fn apply_command(&self) -> String {
        format!("sudo underload shape apply{}", self.options())
    }

    /// Returns the command that prints the service which shapes the device at each start.
    pub fn write_command(&self) -> String {
        format!("underload shape write systemd{}", self.options())
    }

    fn options(&self) -> String {
        let mut text = format!(" --dev {}", shell_word(&self.device));
        for (direction, rate) in self.shaped() {
            let _ = write!(text, " --{direction} {rate}");
        }
        let _ = write!(text, " --queue {}", shell_word(&self.queue.to_string()));
        if let Some(queue) = &self.down_queue {
            let _ = write!(text, " --down-queue {}", shell_word(&queue.to_string()));
        }
        if self.overhead.is_some() {
            let _ = write!(text, " --overhead {}", self.overhead.name());
        }
        text
    }

    /// Returns the queue of a direction.
    pub fn queue(&self, direction: Direction) -> &Spec {
        match (direction, &self.down_queue) {
            (Direction::Down, Some(queue)) => queue,
            _ => &self.queue,
        }
    }

    /// Formats the queue, or those of both directions.
    pub fn queues(&self) -> String {
        match &self.down_queue {
            Some(down) => format!("{} up and {down} down", self.queue),
            None => self.queue.to_string(),
        }
    }

    /// Returns the kernel's name of a direction's queue if it limits the rate by itself.
    pub fn cake(&self, direction: Direction) -> Option<&'static str> {
        let name = self.queue(direction).name.to_ascii_lowercase().replace('_', "-");
        let kinds = [(CAKE, CAKE), ("cake-mq", CAKE_MQ)];
        kinds.into_iter().find_map(|(known, kind)| (known == name).then_some(kind))
    }

    /// Returns the number of transmit queues of `device` if the queue of a direction has a part for
    /// each of them; `None` for any other queue.
    ///
    /// # Errors
    /// Returns [`RequestError::OneQueue`] if the device has one.
    pub fn parts(
        &self,
        direction: Direction,
        device: &Device,
    ) -> Result<Option<u64>, RequestError> {
        if self.cake(direction) != Some(CAKE_MQ) {
            return Ok(None);
        }
        if device.tx_queues < 2 {
            return Err(RequestError::OneQueue { device: device.name.clone() });
        }
        Ok(Some(device.tx_queues))
    }

    /// Returns the kind of queue of a direction and its arguments, as `tc` expects them.
    ///
    /// # Errors
    /// Returns the parameter that Linux does not have.
    pub fn queue_words(
        &self,
        direction: Direction,
        rate: Rate,
    ) -> Result<Vec<String>, RequestError> {
        let link = LinkFacts::of_rate(rate);
        let queue = self.queue(direction);
        let mut spec = linux_profile(queue);
        let Some(kind) = self.cake(direction) else {
            return words::arguments(&spec, &link, None).map_err(|error| match error {
                ConfigError::UnknownName { .. } if QueueEntry::find(&spec.name).is_some() => {
                    RequestError::NotInLinux(spec.name.clone())
                }
                error => with_cake_mq(error).into(),
            });
        };
        CAKE.clone_into(&mut spec.name);
        let of_kernel = of_kernel(&mut spec)?;
        let is_given = |key: &str| has_key(queue, key);
        if is_given("rate") {
            return Err(RequestError::OwnRate);
        }
        if self.overhead.is_some() {
            if let Some(key) = ["overhead", "mpu", "framing"].into_iter().find(|key| is_given(key))
            {
                return Err(RequestError::OwnOverhead(key.to_owned()));
            }
            spec = spec
                .with("overhead", &format!("{}B", self.overhead.bytes))
                .with("mpu", &format!("{}B", self.overhead.minimum_bytes))
                .with("framing", self.overhead.framing.word());
        }
        // Behind the bottleneck, a packet that is dropped here has already taken its time there.
        if direction == Direction::Down && !is_given("ingress") {
            spec = spec.with("ingress", "on");
        }
        let mut words = words::arguments(&spec.with("rate", &rate.to_string()), &link, None)?;
        kind.clone_into(&mut words[0]);
        words.extend(of_kernel);
        Ok(words)
    }
}

impl fmt::Display for Request {
    /// Formats what the request does, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: shaped by {}", self.device, self.queues())?;
        self.shaped().try_for_each(|(direction, rate)| write!(f, ", {direction} {rate}"))
    }
}

/// Options that only the kernel's CAKE has, with their values and the words of `tc`.
const OF_KERNEL: [(&str, &str, &str); 4] = [
    ("nat", "on", "nat"),
    ("wash", "on", "wash"),
    ("ack-filter", "on", "ack-filter"),
    ("ack-filter", "aggressive", "ack-filter-aggressive"),
];

/// Removes from a SPEC the options that only the kernel's CAKE has, and returns them as words of
/// `tc`.
fn of_kernel(spec: &mut Spec) -> Result<Vec<String>, ConfigError> {
    let mut words = Vec::new();
    for item in &spec.items {
        let Some(key) = &item.key else { continue };
        let known = || OF_KERNEL.iter().filter(|(name, ..)| name == key);
        match known().find(|(_, value, _)| *value == item.value) {
            Some((.., word)) => words.push((*word).to_owned()),
            None if known().next().is_some() && item.value != "off" => {
                let values: Vec<&str> = known().map(|(_, value, _)| *value).collect();
                let expected = format!("off or {}", values.join(" or "));
                return Err(ConfigError::value("cake", key, &item.value, &expected));
            }
            None => {}
        }
    }
    let is_known = |key: &str| OF_KERNEL.iter().any(|(name, ..)| *name == key);
    spec.items.retain(|item| !item.key.as_deref().is_some_and(is_known));
    Ok(words)
}

/// Whether a SPEC has a value for a key.
pub(crate) fn has_key(spec: &Spec, key: &str) -> bool {
    spec.items.iter().any(|item| item.key.as_deref() == Some(key))
}

/// Selects Linux's profile of a queue, if there is one and the user chose none.
fn linux_profile(queue: &Spec) -> Spec {
    const LINUX: &str = "linux";
    let is_chosen = has_key(queue, "profile");
    let entry = QueueEntry::find(&queue.name);
    let has_it = entry
        .is_some_and(|entry| entry.definition.profiles.iter().any(|profile| profile.name == LINUX));
    if is_chosen || !has_it { queue.clone() } else { queue.clone().with("profile", LINUX) }
}

/// Adds `cake_mq` to the known queues: only here is it one.
fn with_cake_mq(mut error: ConfigError) -> ConfigError {
    if let ConfigError::UnknownName { known, .. } = &mut error {
        *known += ", ";
        *known += CAKE_MQ;
    }
    error
}

/// The kernel's name of the queue that shapes by itself.
const CAKE: &str = "cake";
/// CAKE with a part for each transmit queue of a device, from Linux 7.0 on: all parts together keep
/// the rate.
const CAKE_MQ: &str = "cake_mq";

/// The bytes that the line adds to each IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    pub bytes: u32,
    /// Bytes that a packet takes at least, overhead included.
    pub minimum_bytes: u32,
    pub framing: Framing,
}

/// How the line cuts packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    None,
    /// Cells of 53 bytes, 48 of which are data.
    Atm,
    /// 65 bytes for 64.
    Ptm,
}

impl Framing {
    /// Returns the word of `cake:framing=`.
    fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Atm => "atm",
            Self::Ptm => "ptm",
        }
    }
}

/// A kind of access line.
#[derive(Debug)]
pub struct LineKind {
    pub name: &'static str,
    pub overhead: Overhead,
    pub doc: &'static str,
}

const fn kind(
    name: &'static str,
    [bytes, minimum_bytes]: [u32; 2],
    framing: Framing,
    doc: &'static str,
) -> LineKind {
    LineKind { name, overhead: Overhead { bytes, minimum_bytes, framing }, doc }
}

/// Kinds of lines with the overheads of `tc-cake(8)`.
pub const LINE_KINDS: &[LineKind] = &[
    kind("none", [0, 0], Framing::None, "what the device itself adds"),
    kind("ethernet", [38, 84], Framing::None, "Ethernet with preamble and gap; fibre (most)"),
    kind("ethernet-vlan", [42, 84], Framing::None, "Ethernet with a VLAN tag"),
    kind("docsis", [18, 64], Framing::None, "cable"),
    kind("vdsl2", [22, 0], Framing::Ptm, "VDSL2 without PPPoE"),
    kind("vdsl2-pppoe", [30, 0], Framing::Ptm, "VDSL2 with PPPoE"),
    kind("adsl-pppoa", [10, 0], Framing::Atm, "ADSL with PPPoA, VC-Mux"),
    kind("adsl-pppoe", [40, 0], Framing::Atm, "ADSL with PPPoE, LLC-SNAP"),
    kind("conservative", [48, 0], Framing::Atm, "an unknown line: never too little"),
];

impl Overhead {
    /// No overhead in addition to the bytes that the device itself counts.
    pub const NONE: Self = Self { bytes: 0, minimum_bytes: 0, framing: Framing::None };

    /// Parses the name of a kind of line, or a number of bytes such as `44B`.
    ///
    /// # Errors
    /// Returns what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(kind) = LINE_KINDS.iter().find(|kind| kind.name == text) {
            return Ok(kind.overhead);
        }
        if let Some(Value::Bytes(bytes)) = Kind::Bytes.read(text)
            && bytes <= 256
        {
            return Ok(Self { bytes: bytes as u32, ..Self::NONE });
        }
        let names = || LINE_KINDS.iter().map(|kind| kind.name);
        let meant = closest(text, names()).map(|name| format!("; did you mean {name}?"));
        let names = names().collect::<Vec<_>>().join(", ");
        Err(format!("expected {names}, or at most 256B{}", meant.unwrap_or_default()))
    }

    /// Returns what [`Overhead::parse`] accepts for this overhead.
    pub fn name(self) -> String {
        let kind = LINE_KINDS.iter().find(|kind| kind.overhead == self);
        kind.map_or_else(|| format!("{}B", self.bytes), |kind| kind.name.to_owned())
    }

    /// Returns the rate of data on a line of `rate`: 64 of 65 bytes with PTM.
    pub(crate) fn rate_of_data(self, rate: Rate) -> Rate {
        match self.framing {
            Framing::Ptm => Rate::from_bits_per_second(rate.bits_per_second() / 65 * 64),
            Framing::None | Framing::Atm => rate,
        }
    }

    /// Whether the line adds anything.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}
