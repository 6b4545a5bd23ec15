//! A question without a file: one access line, several queues, and what the line is used for.
//!
//! [`Question::scenario`] builds the scenario that answers it, with every key that matters written
//! out, so that its text is a file to begin with.

use toml::Value;
use underload_aqm::registry::our_form;

use crate::scenario::{Builder, Keys, Scenario};

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
}

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

/// Starts of transfers are spread over this time, so that repeats differ.
const START_JITTER: &str = "1s";
const PROBE_INTERVAL: &str = "10ms";
/// Longest name of a variant.
const NAME_CHARS: usize = 80;

impl Question {
    /// Returns the scenario named `name`. `description` is its description.
    pub fn scenario(&self, name: &str, description: &str) -> Builder {
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
