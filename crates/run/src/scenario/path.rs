//! `[path]`: an up link and a down link, each with its queue, or `[[path.hop]]`: chains of them.

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Table;
use underload_aqm::config::{ConfigError, Spec};
use underload_aqm::queue::own::OwnSpec;
use underload_aqm::registry::{LinkSetup, LoadFile, QueueSetup};
use underload_aqm::time::Span;
use underload_record::schema::Direction;

use super::error::Fault;
use super::quantity::{BytesText, LinkText, QueueText, SpanText};
use super::section::read_section;
use super::trace::{self, closed};
use crate::modem_file;

/// The links of both directions of a path, seen from the client.
#[derive(Debug, Clone)]
pub struct Path {
    /// From the client, in the order of its packets; at least one.
    pub up: Vec<Lane>,
    /// To the client, in the order of its packets; at least one.
    pub down: Vec<Lane>,
}

/// One direction: a queue and the link behind it, with its delay, loss and overhead.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Name of the hop that it belongs to; empty where `[path]` itself names the link.
    pub name: String,
    /// The link, ready to be built.
    pub link: LinkSetup,
    /// The queue before the link.
    pub queue: LaneQueue,
    /// True where the scenario names no link in this direction: wide, and no bottleneck.
    pub is_wide: bool,
}

/// The queue of a lane.
#[derive(Debug, Clone)]
pub enum LaneQueue {
    /// One of the registry, ready to be built.
    Known(Box<QueueSetup>),
    /// One that whoever runs the scenario brings along; see [`crate::own`].
    Own(OwnSpec),
}

impl LaneQueue {
    /// Its SPEC in full.
    pub fn label(&self) -> &Spec {
        match self {
            Self::Known(setup) => &setup.label,
            Self::Own(own) => &own.label,
        }
    }

    /// It, if it is one of the registry.
    pub fn known(&self) -> Option<&QueueSetup> {
        match self {
            Self::Known(setup) => Some(setup),
            Self::Own(_) => None,
        }
    }

    /// What it says, whichever way it was written.
    pub(super) fn meaning(&self) -> String {
        match self {
            Self::Known(setup) => setup.meaning().to_owned(),
            Self::Own(own) => own.label.to_string(),
        }
    }

    fn read(spec: &Spec, link: &LinkSetup, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        match OwnSpec::read(spec)? {
            Some(own) => Ok(Self::Own(own)),
            None => modem_file::queue(spec, &link.facts(), load)
                .map(|known| Self::Known(Box::new(known))),
        }
    }
}

impl Lane {
    /// The link's SPEC without delay, loss and overhead: what distinguishes it for a reader.
    pub fn link_label(&self) -> String {
        let mut label = self.link.label.clone();
        let shared = ["delay", "loss", "overhead"];
        label.items.retain(|item| !item.key.as_deref().is_some_and(|key| shared.contains(&key)));
        label.to_string()
    }
}

impl Path {
    pub(super) fn read(
        table: Table,
        hops: &[(String, Table)],
        load: &mut LoadFile<'_>,
    ) -> Result<Self, Fault> {
        let keys: Result<Keys, Fault> = read_section(table);
        let path = keys.and_then(|keys| match hops {
            [] => keys.check(load),
            hops => keys.check_chain(hops, load),
        });
        path.map_err(|fault| fault.under("path"))
    }

    /// The round trip without load and without transmission times.
    pub fn base_round_trip(&self) -> Span {
        self.lanes().fold(Span::ZERO, |sum, (_, lane)| sum + lane.link.delay)
    }

    /// All links with their directions, those up first.
    pub fn lanes(&self) -> impl Iterator<Item = (Direction, &Lane)> {
        let up = self.up.iter().map(|lane| (Direction::Up, lane));
        up.chain(self.down.iter().map(|lane| (Direction::Down, lane)))
    }

    /// The name of a hop, where the path is made of hops.
    pub fn first_hop(&self) -> Option<&str> {
        self.lanes().map(|(_, lane)| lane.name.as_str()).find(|name| !name.is_empty())
    }
}

/// A link that is no bottleneck beside one that is: fast, with the kernel's customary queue.
const WIDE_LINK: &str = "1gbit";
const WIDE_QUEUE: &str = "fifo:limit=1000p";

/// What a scenario says of its path. Delay, loss and overhead may stand here or in the link's own
/// SPEC, where the same link is used elsewhere.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    up: Option<LinkText>,
    down: Option<LinkText>,
    up_queue: Option<QueueText>,
    down_queue: Option<QueueText>,
    rtt: Option<SpanText>,
    up_delay: Option<SpanText>,
    down_delay: Option<SpanText>,
    up_loss: Option<String>,
    down_loss: Option<String>,
    overhead: Option<BytesText>,
}

/// The keys of a hop besides its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HopKeys {
    up: Option<LinkText>,
    up_queue: Option<QueueText>,
    down: Option<LinkText>,
    down_queue: Option<QueueText>,
}

impl HopKeys {
    /// The hop's keys by direction, up and down; at least one of them has a link.
    fn lanes(self) -> Result<(LaneKeys, LaneKeys), Fault> {
        if self.up.is_none() && self.down.is_none() {
            let problem = "a hop without a link; expected one in at least one direction, such as \
                           up = \"10mbit\"";
            return Err(Fault::new("", problem));
        }
        let lane =
            |direction, link, queue| LaneKeys { direction, link, queue, delay: None, loss: None };
        Ok((lane("up", self.up, self.up_queue), lane("down", self.down, self.down_queue)))
    }
}

/// What is wrong with the name of a key of `[path]`; `None`: nothing. For whoever writes one key at
/// a time.
pub fn check_path_key(key: &str) -> Option<String> {
    if key == "hop" {
        return None;
    }
    let value = toml::Value::String(String::new());
    let read = read_section::<Keys>(Table::from_iter([(key.to_owned(), value)]));
    read.err().map(|fault| fault.problem).filter(|problem| problem.starts_with("unknown key"))
}

/// The schema of `[path]`.
pub(super) fn schema() -> Value {
    let mut hop = trace::keys::<HopKeys>();
    hop.insert("name".to_owned(), json!({ "type": "string" }));
    let mut keys = trace::keys::<Keys>();
    keys.insert("hop".to_owned(), json!({ "type": ["array", "object"], "items": closed(hop) }));
    closed(keys)
}

/// A delay with the key that gives it.
type Delay = Option<(&'static str, Span)>;

/// The keys of one direction.
struct LaneKeys {
    direction: &'static str,
    link: Option<LinkText>,
    queue: Option<QueueText>,
    delay: Delay,
    loss: Option<String>,
}

impl Keys {
    fn check(self, load: &mut LoadFile<'_>) -> Result<Path, Fault> {
        if self.up.is_none() && self.down.is_none() {
            let problem = "expected a link in at least one direction, such as up = \"10mbit\"";
            return Err(Fault::new("up", problem));
        }
        let (up_delay, down_delay) = self.delays()?;
        let overhead = self.overhead.map(|overhead| overhead.0);
        let up = LaneKeys {
            direction: "up",
            link: self.up,
            queue: self.up_queue,
            delay: up_delay,
            loss: self.up_loss,
        };
        let down = LaneKeys {
            direction: "down",
            link: self.down,
            queue: self.down_queue,
            delay: down_delay,
            loss: self.down_loss,
        };
        let [up, down] = [up.check(overhead, load)?, down.check(overhead, load)?];
        Ok(Path { up: vec![up], down: vec![down] })
    }

    /// The path of these hops, which run from the client to the server. Its delays lie behind the
    /// last hop: they belong to each direction's link that is next to the server.
    fn check_chain(self, hops: &[(String, Table)], load: &mut LoadFile<'_>) -> Result<Path, Fault> {
        let given = [
            ("up", self.up.is_some()),
            ("up_queue", self.up_queue.is_some()),
            ("down", self.down.is_some()),
            ("down_queue", self.down_queue.is_some()),
            ("up_loss", self.up_loss.is_some()),
            ("down_loss", self.down_loss.is_some()),
            ("overhead", self.overhead.is_some()),
        ];
        if let Some((key, _)) = given.iter().find(|(_, is_given)| *is_given) {
            let problem = "stands beside [[path.hop]]; expected it in one of the hops, loss and \
                           overhead in its link's SPEC, or no hops";
            return Err(Fault::new(*key, problem));
        }
        let (up_delay, down_delay) = self.delays()?;
        let mut path = Path { up: Vec::new(), down: Vec::new() };
        // From the server's side, so that the delays meet their links first.
        let (mut delay_up, mut delay_down) = (up_delay, down_delay);
        for (name, table) in hops.iter().rev() {
            // The delays stand beside the hops.
            let at = |fault: Fault| match fault.key.as_str() {
                "rtt" | "up_delay" | "down_delay" => fault,
                _ => fault.under(&format!("hop.{name}")),
            };
            let keys: HopKeys = read_section(table.clone()).map_err(at)?;
            let (up, down) = keys.lanes().map_err(at)?;
            for (mut lane, delay, lanes) in
                [(up, &mut delay_up, &mut path.up), (down, &mut delay_down, &mut path.down)]
            {
                if lane.link.is_some() || lane.queue.is_some() {
                    lane.delay = delay.take();
                    lanes.push(Lane { name: name.clone(), ..lane.check(None, load).map_err(at)? });
                }
            }
        }
        path.up.reverse();
        for (direction, delay, lanes) in
            [("up", up_delay, &mut path.up), ("down", down_delay, &mut path.down)]
        {
            if lanes.is_empty() {
                let wide = LaneKeys { direction, link: None, queue: None, delay, loss: None };
                lanes.push(wide.check(None, load)?);
            }
        }
        Ok(path)
    }

    /// Up and down, either given or the halves of the round trip, each with its key.
    fn delays(&self) -> Result<(Delay, Delay), Fault> {
        let own = |key, delay: &Option<SpanText>| delay.as_ref().map(|text| (key, text.0));
        match &self.rtt {
            Some(_) if self.up_delay.is_some() || self.down_delay.is_some() => {
                let problem = "either the round trip, or `up_delay` and `down_delay`";
                Err(Fault::new("rtt", problem))
            }
            Some(SpanText(rtt)) => {
                let up = Span::from_nanos(rtt.as_nanos() / 2);
                Ok((Some(("rtt", up)), Some(("rtt", rtt.saturating_sub(up)))))
            }
            None => Ok((own("up_delay", &self.up_delay), own("down_delay", &self.down_delay))),
        }
    }
}

impl LaneKeys {
    fn check(self, overhead: Option<u64>, load: &mut LoadFile<'_>) -> Result<Lane, Fault> {
        let at_link = |error: ConfigError| Fault::new(self.direction, error.to_string());
        let queue_key = format!("{}_queue", self.direction);
        let at_queue = |error: ConfigError| Fault::new(queue_key.clone(), error.to_string());
        let is_wide = self.link.is_none();
        let (link, queue) = match (self.link, self.queue) {
            (Some(link), Some(queue)) => (link.0, queue.0),
            (None, None) => (
                Spec::parse(WIDE_LINK).map_err(at_link)?,
                Spec::parse(WIDE_QUEUE).map_err(at_queue)?,
            ),
            (Some(_), None) => {
                let problem = "is missing: which queue stands before the link? For example \
                               \"fifo:limit=256KiB\"";
                return Err(Fault::new(queue_key, problem));
            }
            (None, Some(_)) => {
                let problem = format!("a queue without a link; give `{}` too", self.direction);
                return Err(Fault::new(queue_key, problem));
            }
        };
        let loss_key = format!("{}_loss", self.direction);
        let more = [
            self.delay.map(|(key, delay)| (key, "delay", delay.to_string())),
            self.loss.map(|loss| (loss_key.as_str(), "loss", loss)),
            overhead.map(|bytes| ("overhead", "overhead", format!("{bytes}B"))),
        ];
        let more: Vec<_> = more.into_iter().flatten().collect();
        let link = with_more(&link, self.direction, &more, load)?;
        let queue = LaneQueue::read(&queue, &link, load).map_err(at_queue)?;
        Ok(Lane { name: String::new(), link, queue, is_wide })
    }
}

/// A link with what other keys say of it, each with its name there and in a SPEC; what is wrong is
/// told under the key that says it.
fn with_more(
    link: &Spec,
    direction: &str,
    more: &[(&str, &str, String)],
    load: &mut LoadFile<'_>,
) -> Result<LinkSetup, Fault> {
    let whole = more.iter().fold(link.clone(), |link, (_, own, value)| link.with(own, value));
    let error = match modem_file::link(&whole, load) {
        Ok(link) => return Ok(link),
        Err(error) => Fault::new(direction, error.to_string()),
    };
    if modem_file::link(link, load).is_err() {
        return Err(error);
    }
    for (key, own, value) in more {
        if let Err(error) = modem_file::link(&link.clone().with(own, value), load) {
            let half = if *key == "rtt" { "half of it each way, " } else { "" };
            return Err(Fault::new(*key, format!("{half}{error}")));
        }
    }
    Err(error)
}
