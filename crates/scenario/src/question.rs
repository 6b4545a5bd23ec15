//! A question without a file: one access line, several queues, and what the line is used for.
//!
//! [`Question::scenario`] builds the scenario that answers it, with every key that matters written
//! out, so that its text is a file to begin with. Faults name the [`Part`] of the question that
//! causes them.

use std::collections::BTreeSet;
use std::fmt;

use toml::Value;
use underload_aqm::registry::our_form;
use underload_record::comparison::REPEATS;

use crate::keys::{alternatives, did_you_mean};
use crate::source::load_file;
use crate::{Builder, Keys, Options, Scenario, ScenarioError, simulated_controls};

/// An access line, the queues that are compared on it, and its uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The link from the client, a rate or another SPEC.
    pub up: String,
    /// The link to the client.
    pub down: String,
    /// The round trip without queues.
    pub rtt: String,
    /// SPECs of queues. Each is a variant, and before the links of both directions.
    pub queues: Vec<String>,
    /// Bulk transfers from the client.
    pub uploads: u32,
    /// Bulk transfers to the client.
    pub downloads: u32,
    /// Congestion controls of the transfers. If there are several, each is a variant of each queue.
    pub congestion_controls: Vec<String>,
    /// Applications, which only the simulator runs.
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
            up: "20mbit".to_owned(),
            down: "100mbit".to_owned(),
            rtt: "30ms".to_owned(),
            queues: QUEUES.map(str::to_owned).to_vec(),
            uploads: 1,
            downloads: 0,
            congestion_controls: vec![DEFAULT_CONTROL.to_owned()],
            uses: vec![Use::Call],
            load: "30s".to_owned(),
            repeats: REPEATS,
            seed: 1,
            is_live: false,
        }
    }
}

/// The queue that most lines have, and the usual cure.
const QUEUES: [&str; 2] = ["fifo", "cake"];
const DEFAULT_CONTROL: &str = "cubic";

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
}

impl Use {
    pub const ALL: [Self; 4] = [Self::Call, Self::Game, Self::Page, Self::Video];

    /// Returns the word for the use: `call`, `game`, `page` or `video`.
    pub const fn name(self) -> &'static str {
        self.flow().0
    }

    /// Returns the name of its flow and the kind.
    const fn flow(self) -> (&'static str, &'static str) {
        match self {
            Self::Call => ("call", "interactive-video"),
            Self::Game => ("game", "game"),
            Self::Page => ("page", "web"),
            Self::Video => ("video", "video"),
        }
    }
}

/// A part of a question that may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Up,
    Down,
    Rtt,
    Queue,
    Load,
    CongestionControl,
}

impl Part {
    /// Keys of the scenario that other keys' problems may name, and the parts that set them.
    const KEYS: [(&str, Self); 6] = [
        ("path.up", Self::Up),
        ("path.down", Self::Down),
        ("path.rtt", Self::Rtt),
        ("path.up_queue", Self::Queue),
        ("path.down_queue", Self::Queue),
        ("phases.load", Self::Load),
    ];

    /// Returns the option of `underload try` that sets the part.
    const fn option(self) -> &'static str {
        match self {
            Self::Up => "--up",
            Self::Down => "--down",
            Self::Rtt => "--rtt",
            Self::Queue => "--queue",
            Self::Load => "--load",
            Self::CongestionControl => "--congestion-control",
        }
    }

    /// Returns the part that sets a key of the scenario.
    fn of_key(key: &str) -> Option<Self> {
        match Self::KEYS.iter().find(|(known, _)| *known == key) {
            Some((_, part)) => Some(*part),
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

impl QuestionFault {
    fn of_controls(problem: String) -> Vec<Self> {
        vec![Self { part: Some(Part::CongestionControl), key: String::new(), problem }]
    }

    fn of_scenario(ScenarioError { key, problem, .. }: ScenarioError) -> Self {
        Self { part: Part::of_key(&key), key, problem }
    }
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
const PROBE_INTERVAL: &str = "10ms";
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
            return Err(QuestionFault::of_controls(problem));
        }
        let load = &mut |file: &str| load_file("", file);
        let scenario = self.builder(name).finish_with(&Options::default(), load);
        let scenario = scenario.map_err(|errors| {
            errors.0.into_iter().map(QuestionFault::of_scenario).collect::<Vec<_>>()
        })?;
        let known = simulated_controls();
        match self.congestion_controls.iter().find(|name| !known.contains(name)) {
            Some(name) if !self.is_live => {
                let known = || known.iter().map(String::as_str);
                let (listed, meant) = (alternatives(known()), did_you_mean(name, known()));
                let problem = format!("`{name}` is not simulated; expected {listed}{meant}");
                Err(QuestionFault::of_controls(problem))
            }
            _ => Ok(scenario),
        }
    }

    fn builder(&self, name: &str) -> Builder {
        let queues = self.queues.join(", ");
        let description =
            format!("A question of `underload try`: {queues}, each in both directions.");
        let path = Keys::new()
            .set("up", self.up.as_str())
            .set("down", self.down.as_str())
            .set("rtt", self.rtt.as_str());
        let phases = Keys::new().set("idle", "2s").set("load", self.load.as_str());
        let mut builder = Scenario::build(name)
            .set("title", self.title())
            .set("description", description)
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
        for (name, kind) in self.uses.iter().map(|it| it.flow()) {
            builder = builder.flow(name, kind, Keys::new());
        }
        builder = builder.flow("probe", "probe", Keys::new().set("interval", PROBE_INTERVAL));
        for queue in self.queues.iter().map(|queue| our_form(queue)) {
            let both = Keys::new()
                .set("path.up_queue", queue.as_str())
                .set("path.down_queue", queue.as_str());
            match self.congestion_controls.as_slice() {
                [] | [_] => builder = builder.variant(&variant_name(&queue), both),
                several => {
                    for control in several {
                        let name = variant_name(&format!("{queue}+{control}"));
                        builder = builder.variant(&name, self.with_control(both.clone(), control));
                    }
                }
            }
        }
        builder
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
        uses.extend(self.uses.iter().map(|it| it.flow().0.to_owned()));
        let Self { up, down, rtt, .. } = self;
        format!("{up} up, {down} down, {rtt} away: {}", uses.join(", "))
    }
}

/// Returns a seed as a value of a file; TOML has no larger numbers than `i64`.
fn seed(seed: u64) -> Value {
    Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX))
}

/// Returns the name of a queue's variant: its SPEC with the characters that a name may have.
fn variant_name(queue: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_+:=,%.".contains(c) { c } else { '-' };
    queue.chars().map(plain).take(NAME_CHARS).collect()
}
