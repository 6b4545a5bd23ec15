//! A question without a file: one access line, several queues, and what the line is used for.
//!
//! [`Question::scenario`] builds the scenario that answers it, with every key that matters written
//! out, so that its text is a file to begin with. Faults name the [`Part`] of the question that
//! causes them.

mod follow;
pub mod home;
mod words;

use std::collections::BTreeSet;
use std::fmt;

use toml::Value;
use underload_aqm::config::{LinkFacts, Spec};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup, deployed, our_form};
use underload_record::comparison::REPEATS;
use underload_record::schema::{Direction, Marking, PerDirection};

use crate::keys::{alternatives, did_you_mean};
use crate::source::load_file;
use crate::{Builder, Keys, Options, Scenario, ScenarioError, simulated_controls};

/// An access line, the queues that are compared on it, and its uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name of the line, if its links are those of one of [`home::lines`].
    pub line: Option<String>,
    /// The links from and to the client, each a rate or another SPEC.
    pub links: PerDirection<String>,
    /// The round trip without queues.
    pub rtt: String,
    /// The queues that the line has: before the link from the client, as in a modem, and before the
    /// link to the client, at the provider.
    pub installed: PerDirection<String>,
    /// Rates that the provider enforces behind the line by dropping what exceeds them.
    pub policer: Option<PerDirection<String>>,
    /// The rate of a Wi-Fi between the client and the line.
    pub wifi: Option<String>,
    /// Shapers in a router between the client and the line, `SPEC` or `SPEC@DOWN/UP`. Each is a
    /// variant, beside one without a shaper, and the line keeps its own queues.
    pub routers: Vec<String>,
    /// The rates between which the router follows the line, as `underload shape auto`. A variant, beside
    /// the best fixed rate, an oracle that knows the rate, and no shaper.
    pub follow: PerDirection<Option<follow::Range>>,
    /// SPECs of queues, or [`INSTALLED`]. Without routers, each is a variant, and before the links of
    /// both directions.
    pub queues: Vec<String>,
    /// Bulk transfers from the client.
    pub uploads: u32,
    /// Bulk transfers to the client.
    pub downloads: u32,
    /// A backup, from the client: its rate, its congestion control, or `RATE:CONTROL`. Without a
    /// congestion control it is packets at equal intervals.
    pub backup: Option<String>,
    /// Congestion controls of the transfers. If there are several, each is a variant of each queue.
    pub congestion_controls: Vec<String>,
    /// Applications, which only the simulator runs; several of a kind stand one after another.
    pub uses: Vec<Use>,
    /// The length of the load phase.
    pub load: String,
    pub repeats: u32,
    pub seed: u64,
    /// Whether the live world answers it, which has the congestion controls of its machine.
    pub is_live: bool,
}

impl Default for Question {
    /// Does CAKE help a video call beside an upload, compared with a plain buffer?
    fn default() -> Self {
        Self {
            line: None,
            links: PerDirection::new("20mbit", "100mbit").map(str::to_owned),
            rtt: "30ms".to_owned(),
            installed: PerDirection::from_fn(|_| PLAIN.to_owned()),
            policer: None,
            wifi: None,
            routers: Vec::new(),
            follow: PerDirection::default(),
            queues: [PLAIN, CURE].map(str::to_owned).to_vec(),
            uploads: 1,
            downloads: 0,
            backup: None,
            congestion_controls: vec![DEFAULT_CONTROL.to_owned()],
            uses: vec![Use::Call],
            load: "30s".to_owned(),
            repeats: REPEATS,
            seed: 1,
            is_live: false,
        }
    }
}

/// The queue that most lines have.
const PLAIN: &str = "fifo";
/// The usual improvement.
const CURE: &str = "cake";
/// The queues that the line has, in place of one for both directions.
pub const INSTALLED: &str = "as-installed";
const DEFAULT_CONTROL: &str = "cubic";
/// Bit rates of a film in 4K, Mbit/s: those of `video`, then about what services recommend for 1440p
/// and 4K.
const RATES_4K: [f64; 9] = [0.3, 0.75, 1.2, 1.85, 2.85, 4.3, 8.0, 15.0, 25.0];

/// An application beside the transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A video call, both ways.
    Call,
    /// An online game: small packets both ways.
    Game,
    /// Pages loaded by a browser, one after another.
    Page,
    /// A video that is streamed.
    Video,
    /// A video that is streamed at up to 25 Mbit/s.
    Video4k,
}

impl Use {
    pub const ALL: [Self; 5] = [Self::Call, Self::Game, Self::Page, Self::Video, Self::Video4k];

    /// Returns the word for the use: `call`, `game`, `page`, `video` or `video:4k`.
    pub const fn name(self) -> &'static str {
        self.flow().0
    }

    /// Returns the word and the kind of its flow.
    const fn flow(self) -> (&'static str, &'static str) {
        match self {
            Self::Call => ("call", "interactive-video"),
            Self::Game => ("game", "game"),
            Self::Page => ("page", "web"),
            Self::Video => ("video", "video"),
            Self::Video4k => ("video:4k", "video"),
        }
    }
}

/// A part of a question that may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Up,
    Down,
    Rtt,
    UpQueue,
    DownQueue,
    Queue,
    Router,
    Policer,
    Wifi,
    Backup,
    Load,
    CongestionControl,
}

impl Part {
    /// Keys of the scenario that other keys' problems may name, and the parts that set them.
    const KEYS: [(&str, Self); 6] = [
        ("path.up", Self::Up),
        ("path.down", Self::Down),
        ("path.rtt", Self::Rtt),
        ("path.up_queue", Self::UpQueue),
        ("path.down_queue", Self::DownQueue),
        ("phases.load", Self::Load),
    ];

    /// Returns the option of `underload try` that sets the part.
    const fn option(self) -> &'static str {
        match self {
            Self::Up => "--up",
            Self::Down => "--down",
            Self::Rtt => "--rtt",
            Self::UpQueue => "--up-queue",
            Self::DownQueue => "--down-queue",
            Self::Queue => "--queue",
            Self::Router => "--router",
            Self::Policer => "--policer",
            Self::Wifi => "--wifi",
            Self::Backup => "--backup",
            Self::Load => "--load",
            Self::CongestionControl => "--congestion-control",
        }
    }

    /// Returns the part that sets a key of the scenario.
    fn of_key(key: &str) -> Option<Self> {
        let key = key.replace("hop.line.", "");
        match Self::KEYS.iter().find(|(known, _)| *known == key) {
            Some((_, part)) => Some(*part),
            None if key.starts_with("path.hop.wifi") => Some(Self::Wifi),
            None if key.contains("hop.provider") => Some(Self::Policer),
            None if key.contains("hop.router") => Some(Self::Router),
            None if key.starts_with("flow.backup") => Some(Self::Backup),
            None if key.ends_with(".congestion_control") => Some(Self::CongestionControl),
            None if key.starts_with("variant") => Some(Self::Queue),
            None => None,
        }
    }
}

/// Why a question has no scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionFault {
    /// `None` if no part alone is the cause.
    pub part: Option<Part>,
    /// The faulty key; may be empty.
    pub key: String,
    problem: String,
}

impl fmt::Display for QuestionFault {
    /// Names the parts of the question by the options of `underload try`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = Part::KEYS.iter().fold(self.problem.clone(), |text, (key, part)| {
            let word = key.rsplit('.').next().unwrap_or_default();
            text.replace(&format!("`{word}`"), &format!("`{}`", part.option()))
        });
        let name = match self.part {
            Some(part) => part.option(),
            None => &self.key,
        };
        write!(f, "{name}: {problem}")
    }
}

/// Starts of transfers are spread over this time, so that repeats differ.
const START_JITTER: &str = "1s";
/// Longest name of a variant.
const NAME_CHARS: usize = 80;

impl Question {
    /// Returns the scenario named `name`.
    ///
    /// # Errors
    /// Returns the faults of the scenario, each with the part of the question that causes it.
    pub fn scenario(&self, name: &str) -> Result<Scenario, Vec<QuestionFault>> {
        let mut controls = BTreeSet::new();
        if let Some(twice) = self.congestion_controls.iter().find(|name| !controls.insert(*name)) {
            let problem = format!("`{twice}` is given twice; expected different ones");
            let part = Some(Part::CongestionControl);
            return Err(vec![QuestionFault { part, key: String::new(), problem }]);
        }
        let load = &mut |file: &str| load_file("", file);
        let builder = self.builder(name).map_err(|fault| vec![fault])?;
        let scenario = builder.finish_with(&Options::default(), load).map_err(|errors| {
            errors.0.into_iter().map(|error| self.fault(error)).collect::<Vec<_>>()
        })?;
        let known = simulated_controls();
        let backup = self.backup.as_deref().and_then(|text| home::backup_parts(text).1);
        let controls =
            self.congestion_controls.iter().map(|name| (Part::CongestionControl, &**name));
        let mut controls = controls.chain(backup.map(|name| (Part::Backup, name)));
        match controls.find(|(_, name)| !known.iter().any(|it| it == name)) {
            Some((part, name)) if !self.is_live => {
                let known = || known.iter().map(String::as_str);
                let (listed, meant) = (alternatives(known()), did_you_mean(name, known()));
                let problem = format!("`{name}` is not simulated; expected {listed}{meant}");
                Err(vec![QuestionFault { part: Some(part), key: String::new(), problem }])
            }
            _ => Ok(scenario),
        }
    }

    /// Returns the fault of a key. Variants replace the queues of the line, and have its keys.
    fn fault(&self, ScenarioError { key, problem, .. }: ScenarioError) -> QuestionFault {
        let is_valid = |queue: &str| QueueSetup::parse(queue, &LinkFacts::UNKNOWN).is_ok();
        let part = match Part::of_key(&key) {
            Some(Part::UpQueue) if is_valid(&self.installed.up) => Some(Part::Queue),
            Some(Part::DownQueue) if is_valid(&self.installed.down) => Some(Part::Queue),
            Some(Part::Queue) if !self.routers.is_empty() => Some(Part::Router),
            part => part,
        };
        QuestionFault { part, key, problem }
    }

    /// Sets the queues that are compared. If there are none and the line has a policer or a queue other
    /// than FIFO, its queues are compared with CAKE: in the simulator in a router before the line, and
    /// in a live run, which has no router, in place of the line's queues.
    pub fn set_queues(&mut self, queues: &[String]) {
        let has_own =
            self.policer.is_some() || self.installed.iter().any(|(_, queue)| queue != PLAIN);
        if !queues.is_empty() {
            self.queues = queues.to_vec();
        } else if has_own && self.is_live {
            self.queues = [INSTALLED, CURE].map(str::to_owned).to_vec();
        } else if has_own && self.routers.is_empty() {
            self.routers.push(CURE.to_owned());
        }
    }

    fn builder(&self, name: &str) -> Result<Builder, QuestionFault> {
        let variants = self.variants()?;
        let hops = self.hops();
        let path = Keys::new().set("rtt", self.rtt.as_str());
        let path = if hops.is_empty() {
            path.then(each("", "", &self.links))
        } else {
            path.set("hop", hops)
        };
        let phases = Keys::new().set("idle", "2s").set("load", self.load.as_str());
        let mut builder = Scenario::build(name)
            .set("title", self.title())
            .set("description", self.description())
            .set("repeats", i64::from(self.repeats))
            .set("seed", seed(self.seed))
            .path(path)
            .phases(phases);
        for (name, direction, count) in
            [("upload", "up", self.uploads), ("download", "down", self.downloads)]
        {
            if count > 0 {
                builder = builder.flow(name, "tcp", self.transfers(direction, count));
            }
        }
        if let Some(text) = &self.backup {
            let (kind, keys) = self.backup(text)?;
            builder = builder.flow("backup", kind, keys);
        }
        for (number, it) in self.uses.iter().enumerate() {
            let (name, kind) = it.flow();
            let name = &name.replace(':', "-");
            let earlier = self.uses[..number].iter().filter(|other| *other == it).count();
            let name = if earlier == 0 { name } else { &format!("{name}-{}", earlier + 1) };
            let keys = match it {
                Use::Game if self.has_low_latency_queue() => {
                    Keys::new().set("dscp", i64::from(Marking::NQB))
                }
                Use::Video4k => {
                    Keys::new().set("rates", RATES_4K.map(|mbit| format!("{mbit}mbit")).to_vec())
                }
                _ => Keys::new(),
            };
            builder = builder.flow(name, kind, keys);
        }
        builder =
            builder.flow("probe", "probe", Keys::new().set("interval", self.probe_interval()));
        for (name, overrides) in variants {
            match self.congestion_controls.as_slice() {
                [] | [_] => builder = builder.variant(&variant_name(&name), overrides),
                several => {
                    for control in several {
                        let name = variant_name(&format!("{name}+{control}"));
                        let overrides = self.with_control(overrides.clone(), control);
                        builder = builder.variant(&name, overrides);
                    }
                }
            }
        }
        Ok(builder)
    }

    /// Returns the kind and the keys of a backup.
    ///
    /// # Errors
    /// Returns a rate that the line cannot carry: packets without a congestion control would drop
    /// others in step with them.
    fn backup(&self, text: &str) -> Result<(&'static str, Keys), QuestionFault> {
        let keys = Keys::new().set("direction", "up");
        let (rate, control) = home::backup_parts(text);
        if let Some(control) = control {
            let keys = keys.set("congestion_control", control).set("start_jitter", START_JITTER);
            return Ok(("tcp", rate.map_or(keys.clone(), |rate| keys.set("max_rate", rate))));
        }
        let line = &self.links.up;
        let is_below = |known: Rate| home::rate_of(text).is_none_or(|backup| backup < known);
        if home::rate_of(line).is_none_or(is_below) {
            return Ok(("udp", keys.set("rate", text)));
        }
        Err(QuestionFault {
            part: Some(Part::Backup),
            key: String::new(),
            problem: format!(
                "{text} is not below the line's {line}; a backup as fast as it can is --upload"
            ),
        })
    }

    /// Returns the name and the overrides of each variant.
    fn variants(&self) -> Result<Vec<(String, Keys)>, QuestionFault> {
        if self.is_followed() {
            return Ok(self.followed());
        }
        if self.routers.is_empty() {
            let line = if self.hops().is_empty() { "path." } else { "path.hop.line." };
            let queues = self.queues.iter().map(|queue| our_form(queue));
            let variant = |queue: String| {
                self.check_grants(&queue)?;
                let keys = each(line, "_queue", &self.before(&queue));
                Ok((queue, keys))
            };
            return queues.map(variant).collect();
        }
        let shaped = self.routers.iter().map(|text| {
            let keys = self.router(text)?;
            Ok((format!("router-{text}"), keys))
        });
        let none = Keys::new().set("path.hop.router.up_queue", PLAIN);
        [Ok((home::NO_ROUTER.to_owned(), none))].into_iter().chain(shaped).collect()
    }

    /// Returns a queue as it is set up before the link up and the link down.
    fn before(&self, queue: &str) -> PerDirection<String> {
        if queue == INSTALLED {
            return self.installed();
        }
        PerDirection::from_fn(|it| self.plain(&deployed(queue, &self.facts(it)), it))
    }

    fn facts(&self, direction: Direction) -> LinkFacts {
        let link = LinkSetup::parse(&self.links[direction]);
        link.map_or(LinkFacts::UNKNOWN, |link| link.facts())
    }

    /// Refuses a queue that shapes on a link whose packets wait for grants.
    fn check_grants(&self, queue: &str) -> Result<(), QuestionFault> {
        let waits = |link: &String| {
            LinkSetup::parse(link).is_ok_and(|link| link.facts().request_loop.is_some())
        };
        let is_cake = Spec::parse(queue).is_ok_and(|spec| spec.name == CURE);
        if !is_cake || !self.links.iter().any(|(_, link)| waits(link)) {
            return Ok(());
        }
        Err(QuestionFault {
            part: Some(Part::Queue),
            key: String::new(),
            problem: format!(
                "a shaper in a cable modem wastes the grants that the modem asked for; expected it \
                 in the router: --router {CURE}"
            ),
        })
    }

    /// Whether a queue serves marked packets apart, so that a game for it marks its own.
    fn has_low_latency_queue(&self) -> bool {
        let installed = self.installed.iter().map(|(_, queue)| queue);
        let mut queues = self.queues.iter().chain(&self.routers).chain(installed);
        queues.any(|queue| our_form(queue).starts_with("docsis-lld"))
    }

    /// Whether a queue or a router gets its rate from a link.
    fn is_shaped(&self) -> bool {
        if self.is_followed() {
            return false;
        }
        if !self.routers.is_empty() {
            return self.routers.iter().any(|router| !router.contains('@'));
        }
        let queues = self.queues.iter().map(|queue| our_form(queue));
        let mut queues = queues.filter(|queue| queue != INSTALLED);
        let is_completed =
            |queue: &str, direction| deployed(queue, &self.facts(direction)) != queue;
        queues.any(|queue| self.links.iter().any(|(direction, _)| is_completed(&queue, direction)))
    }

    fn description(&self) -> String {
        let shaped = if self.is_shaped() { SHAPED } else { "" };
        let compared = if self.is_followed() {
            "CAKE in the router at the best fixed rate, at a rate that follows the line as `underload \
             shape auto` does, and at the rate that the line will have"
                .to_owned()
        } else if self.routers.is_empty() {
            format!("{}, each in both directions", self.queues.join(", "))
        } else {
            format!("{} in the router, before the line's own queues", self.routers.join(", "))
        };
        let assumed = self.assumed().map_or_else(String::new, |words| format!(" {words}"));
        format!("A question of `underload try`: {compared}.{shaped}{assumed}")
    }

    /// Adds a congestion control of all transfers to the overrides of a variant.
    fn with_control(&self, overrides: Keys, control: &str) -> Keys {
        let transfers = [("upload", self.uploads), ("download", self.downloads)];
        let used = transfers.into_iter().filter(|(_, count)| *count > 0);
        used.fold(overrides, |keys, (name, _)| {
            keys.set(&format!("flow.{name}.congestion_control"), control)
        })
    }

    fn transfers(&self, direction: &str, count: u32) -> Keys {
        let keys = Keys::new()
            .set("direction", direction)
            .set("count", i64::from(count))
            .set("start_jitter", START_JITTER);
        match self.congestion_controls.first() {
            Some(first) => keys.set("congestion_control", first.as_str()),
            None => keys,
        }
    }

    /// Returns a title such as `20mbit up, 100mbit down, 30ms away: upload, call`.
    fn title(&self) -> String {
        let transfers = [("upload", self.uploads), ("download", self.downloads)];
        let transfers = transfers.into_iter().filter(|(_, count)| *count > 0);
        let mut uses: Vec<String> = transfers
            .map(|(name, count)| match count {
                1 => name.to_owned(),
                count => format!("{count} {name}s"),
            })
            .collect();
        uses.extend(self.backup.iter().map(|text| match home::backup_parts(text) {
            (Some(rate), Some(control)) => format!("{control} backup of {rate}"),
            (None, Some(control)) => format!("{control} backup"),
            (_, None) => format!("backup of {text}"),
        }));
        uses.extend(Use::ALL.into_iter().filter_map(|it| {
            let name = if it == Use::Video4k { "4K video" } else { it.name() };
            let marked = match it {
                Use::Game if self.has_low_latency_queue() => " marked NQB",
                _ => "",
            };
            match self.uses.iter().filter(|used| **used == it).count() {
                0 => None,
                1 => Some(format!("{name}{marked}")),
                count => Some(format!("{count} {name}s{marked}")),
            }
        }));
        if uses.is_empty() {
            uses.push("only probes".to_owned());
        }
        let PerDirection { up, down } = &self.links;
        let rates = match (&self.line, home::rate_of(up).zip(home::rate_of(down))) {
            (None, _) => format!("{up} up, {down} down"),
            // The description of a line that is followed.
            (Some(text), _) if !home::lines().any(|name| name == text) => text.clone(),
            (Some(name), Some((up, down))) => format!("{name}, {up} up, {down} down"),
            (Some(name), None) => format!("{name}, rates that vary"),
        };
        let policed = self
            .policer
            .as_ref()
            .map(|rates| format!(", policed to {} up, {} down", rates.up, rates.down));
        let policed = policed.unwrap_or_default();
        let wifi = self.wifi.as_ref().map(|rate| format!(", Wi-Fi of {rate}")).unwrap_or_default();
        let shaped = match self.is_shaped() {
            false if self.is_followed() => "; CAKE in the router follows the rate",
            false => "",
            true if self.routers.is_empty() => "; CAKE shapes to 95 %",
            true => "; the router shapes to 95 %",
        };
        let too_fast = self.too_fast().map(|words| format!("; {words}")).unwrap_or_default();
        let rtt = &self.rtt;
        format!("{rates}{policed}, {rtt} away{wifi}: {}{shaped}{too_fast}", uses.join(", "))
    }
}

/// Returns the fault of a word or an option.
fn fault(key: &str, problem: String) -> QuestionFault {
    QuestionFault { part: None, key: key.to_owned(), problem }
}

/// Returns a key for each direction, with its value.
fn each(prefix: &str, suffix: &str, values: &PerDirection<String>) -> Keys {
    values.iter().fold(Keys::new(), |keys, (direction, value)| {
        keys.set(&format!("{prefix}{}{suffix}", direction.name()), value.as_str())
    })
}

const SHAPED: &str = " A shaper without a rate has 95 % of the link's, as on a router.";

/// Returns a seed as a value of a file; TOML has no larger numbers than `i64`.
fn seed(seed: u64) -> Value {
    Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX))
}

/// Returns the name of a queue's variant: its SPEC with the characters that a name may have.
fn variant_name(queue: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_+:=,%.".contains(c) { c } else { '-' };
    queue.chars().map(plain).take(NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cake_shapes_to_a_little_less_than_each_link() {
        let question = Question {
            links: PerDirection::new("500kbit", "100mbit").map(str::to_owned),
            queues: ["fifo", "cake", "CAKE:rate=400kbit", "fq-codel"].map(str::to_owned).to_vec(),
            ..Question::default()
        };
        let text = question.scenario("try").expect("a scenario").text;
        for line in [
            "path.up_queue = \"cake:rate=475kbit\"",
            "path.down_queue = \"cake:rate=95mbit\"",
            "path.up_queue = \"cake:rate=400kbit\"",
            "path.up_queue = \"fq-codel\"",
            "name = \"cake\"",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(question.title().ends_with("CAKE shapes to 95 %"), "{}", question.title());
        let links = PerDirection::new("unlimited", "100mbit").map(str::to_owned);
        let shaped = Question { links, ..question }.before("cake");
        assert_eq!(shaped, PerDirection::new("cake", "cake:rate=95mbit").map(str::to_owned));
    }

    fn asked(options: &[(&str, &str)]) -> (Question, String) {
        let options: Vec<(&str, String)> =
            options.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let question = Question::asked(&[], &options, false).expect("a question");
        let text = question.scenario("try").expect("a scenario").text;
        (question, text)
    }

    #[test]
    fn a_plain_queue_of_a_slow_line_holds_a_second() {
        for (up, queue) in [
            ("1mbit", "fifo:limit=125000B"),
            ("11999kbit", "fifo:limit=1499875B"),
            ("12mbit", "fifo"),
        ] {
            let (_, text) = asked(&[("up", up)]);
            assert!(text.contains(&format!("path.up_queue = \"{queue}\"")), "{up}:\n{text}");
            let (_, text) = asked(&[("up", up), ("wifi", "60")]);
            assert!(text.contains(&format!("path.hop.line.up_queue = \"{queue}\"")), "{text}");
        }
        let (question, _) = asked(&[("up", "1"), ("down", "24")]);
        let assumed = question.assumed().expect("a plain buffer");
        assert!(assumed.ends_with("by 1000 ms up and 500 ms down."), "{assumed}");
        let (question, _) = asked(&[("queue", "codel")]);
        assert_eq!(question.assumed(), None);
        let (_, text) = asked(&[("up", "1"), ("queue", "fifo:limit=1000p")]);
        assert!(text.contains("path.up_queue = \"fifo:limit=1000p\""), "as typed:\n{text}");
    }

    #[test]
    fn a_router_shapes_below_the_policer() {
        let (question, text) = asked(&[("policer", "50/30"), ("download", "")]);
        let title = "20mbit up, 100mbit down, policed to 30mbit up, 50mbit down, 30ms away: \
                     download; the router shapes to 95 %";
        assert_eq!(question.title(), title);
        for line in [
            "up_queue = \"policer:rate=30mbit\"",
            "down_queue = \"policer:rate=50mbit\"",
            // The line up is below its policer.
            "path.hop.router.up_queue = \"cake:rate=19mbit\"",
            "path.hop.router.down_queue = \"cake:rate=47500kbit\"",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let (question, _) = asked(&[("policer", "100/20")]);
        assert!(question.title().ends_with("does not act, because the line is not faster"));
        let fault = |rates: &str| {
            let asked = Question::asked(&[], &[("policer", rates.to_owned())], false);
            asked.expect("a question").scenario("try").expect_err(rates)[0].to_string()
        };
        assert!(fault("fast/1").starts_with("--policer: "), "{}", fault("fast/1"));
    }

    #[test]
    fn a_backup_has_a_rate_a_congestion_control_or_both() {
        for (backup, title, keys) in [
            ("5", "backup of 5mbit", ["kind = \"udp\"", "rate = \"5mbit\""]),
            ("ledbat", "ledbat backup", ["kind = \"tcp\"", "congestion_control = \"ledbat\""]),
            ("5:ledbat", "ledbat backup of 5mbit", ["max_rate = \"5mbit\"", "= \"ledbat\""]),
            // A transfer yields to others, so its highest rate may exceed the line.
            ("50:bbr", "bbr backup of 50mbit", ["max_rate = \"50mbit\"", "= \"bbr\""]),
        ] {
            let (question, text) = asked(&[("backup", backup)]);
            assert!(question.title().contains(&format!(": {title};")), "{}", question.title());
            for key in keys {
                assert!(text.contains(key), "{backup}: {key} is not in\n{text}");
            }
        }
        let fault = |backup: &str| {
            let asked = Question::asked(&[], &[("backup", backup.to_owned())], false);
            asked.expect("a question").scenario("try").expect_err(backup)[0].to_string()
        };
        let said = fault("5:ledbad");
        assert!(said.starts_with("--backup: `ledbad` is not simulated"), "{said}");
        assert!(said.ends_with("did you mean `ledbat`?"), "{said}");
        assert!(fault("fast").starts_with("--backup: "), "{}", fault("fast"));
        assert!(fault("0:ledbat").starts_with("--backup: "), "{}", fault("0:ledbat"));
    }

    #[test]
    fn several_calls_are_a_flow_each() {
        let (question, text) = asked(&[("call", "2"), ("game", ""), ("upload", "")]);
        assert!(question.title().ends_with(": upload, 2 calls, game; CAKE shapes to 95 %"));
        for name in ["call", "call-2", "game"] {
            assert!(text.contains(&format!("name = \"{name}\"")), "{name} is not in\n{text}");
        }
        assert!(!text.contains("call-3"), "{text}");
        let (films, text) = asked(&[("video", "2:4K"), ("video", "")]);
        let expected = ": video, 2 4K videos; CAKE shapes to 95 %";
        assert!(films.title().ends_with(expected), "{}", films.title());
        assert!(text.contains("name = \"video-4k-2\"") && text.contains("\"25mbit\"]"), "{text}");
        assert_eq!(asked(&[("video", "4k")]).0.uses, [Use::Video4k]);
        for wrong in ["24k", "x:4k", "hd"] {
            let question = Question::asked(&[], &[("video", wrong.to_owned())], false);
            question.expect_err(wrong);
        }
        let (none, _) = asked(&[("call", "0")]);
        assert!(none.title().ends_with(": only probes; CAKE shapes to 95 %"), "{}", none.title());
        let many = Question::asked(&[], &[("video", "101".to_owned())], false);
        assert_eq!(many.expect_err("101").to_string(), "video: 101: expected at most 100");
    }
}
