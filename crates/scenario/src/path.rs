//! `[path]`: an up link and a down link, each with its queue; or `[[path.hop]]`: chains of links.

use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::{ConfigError, Item, LinkFacts, Spec};
use underload_aqm::queue::own::OwnSpec;
use underload_aqm::registry::{LinkSetup, LoadFile, QueueSetup};
use underload_aqm::time::Span;
use underload_record::schema::Direction;

use crate::keys::{
    Bytes, Fault, Faults, LinkText, Listed, QueueText, Refusal, Value, keys, listed, read_table,
};
use crate::modem_file;
use crate::rule::LinkRule;

/// The links of both directions of a path, seen from the client.
#[derive(Debug, Clone)]
pub struct Path {
    /// The links from the client to the server, in the order in which packets pass them; at least
    /// one.
    pub up: Vec<Lane>,
    /// The links from the server to the client, in the order in which packets pass them; at least
    /// one.
    pub down: Vec<Lane>,
}

/// A queue and the link behind it in one direction.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Name of the hop; empty if `[path]` itself names the link.
    pub name: String,
    /// The link, with its delay, loss and overhead.
    pub link: LinkSetup,
    pub queue: LaneQueue,
    /// Changes the rate of the link, which is constant without it.
    pub rule: Option<LinkRule>,
    /// True if the scenario names no link in this direction: it is wide, and no bottleneck.
    pub is_wide: bool,
}

#[derive(Debug, Clone)]
pub enum LaneQueue {
    Known(Box<QueueSetup>),
    /// A queue that the caller has to provide; see [`crate::own`].
    Own(OwnSpec),
}

impl LaneQueue {
    /// Returns the full SPEC.
    pub fn label(&self) -> &Spec {
        match self {
            Self::Known(setup) => &setup.label,
            Self::Own(own) => &own.label,
        }
    }

    pub fn known(&self) -> Option<&QueueSetup> {
        match self {
            Self::Known(setup) => Some(setup),
            Self::Own(_) => None,
        }
    }

    /// Returns a text that is equal for equal queues, however they are written.
    pub(super) fn meaning(&self) -> String {
        match self {
            Self::Known(setup) => setup.meaning().to_owned(),
            Self::Own(own) => own.label.to_string(),
        }
    }

    fn read(spec: &Spec, link: &LinkFacts, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        match OwnSpec::read(spec)? {
            Some(own) => Ok(Self::Own(own)),
            None => modem_file::queue(spec, link, load).map(|known| Self::Known(Box::new(known))),
        }
    }
}

impl Lane {
    /// Returns the link's SPEC without delay, loss and overhead, for a reader.
    pub fn link_label(&self) -> String {
        let mut label = self.link.label.clone();
        let shared = ["delay", "loss", "overhead"];
        label.items.retain(|item| !item.key.as_deref().is_some_and(|key| shared.contains(&key)));
        label.to_string()
    }
}

impl Path {
    pub(super) fn read(
        table: &Table,
        hops: &[(String, Table)],
        load: &mut LoadFile<'_>,
        faults: &mut Faults,
    ) -> Option<Self> {
        faults.under("path", |faults| {
            let keys: PathKeys = read_table(table, faults)?;
            match hops {
                [] => keys.resolve(load, faults),
                hops => keys.resolve_chain(hops, load, faults),
            }
        })
    }

    /// Returns the sum of all links' delays: the round trip without queues and transmission times.
    pub fn base_round_trip(&self) -> Span {
        self.lanes().fold(Span::ZERO, |sum, (_, lane)| sum + lane.link.delay)
    }

    /// Returns all links with their directions, those up first.
    pub fn lanes(&self) -> impl Iterator<Item = (Direction, &Lane)> {
        let up = self.up.iter().map(|lane| (Direction::Up, lane));
        up.chain(self.down.iter().map(|lane| (Direction::Down, lane)))
    }
}

/// The link of a direction without a bottleneck, with the kernel's usual queue.
const WIDE_LINK: &str = "1gbit";
const WIDE_QUEUE: &str = "fifo:limit=1000p";
/// The queue before a link for which a scenario names none.
pub(super) const DEFAULT_QUEUE: &str = "fifo";

keys! {
    /// The links and queues of `[path]` or of a hop.
    pub(crate) struct LinkKeys [lenient] {
        /// The link from the client. At least one of `up` and `down` is needed.
        up: Option<LinkText> where default = "1 Gbit/s in [path], no link in a hop",
        /// The link to the client.
        down: Option<LinkText> where default = "1 Gbit/s in [path], no link in a hop",
        /// The queue before the link from the client; needs `up`.
        up_queue: Option<QueueText> where default = DEFAULT_QUEUE,
        /// The queue before the link to the client; needs `down`.
        down_queue: Option<QueueText> where default = DEFAULT_QUEUE,
    }
}

keys! {
    /// The links, queues and rules of a hop.
    pub(crate) struct HopKeys [lenient] {
        links: LinkKeys [flat],
        /// Changes the rate of the link from the client ten times a second: `follow` as `underload
        /// shape auto` does, by the answers of the first probe; `oracle` knows the rate of the next
        /// hop.
        up_rule: Option<LinkRule> where default = "a constant rate",
        /// Changes the rate of the link to the client, as `up_rule`.
        down_rule: Option<LinkRule> where default = "a constant rate",
    }
}

keys! {
    /// The keys of `[path]`. Delay, loss and overhead may be in the link's SPEC instead.
    pub(crate) struct PathKeys [lenient] {
        links: LinkKeys [flat],
        /// The base round trip, half of it in each direction.
        rtt: Option<Span> where default = "0s",
        /// The base delay from the client, in place of `rtt`.
        up_delay: Option<Span> where default = "half of rtt",
        /// The base delay to the client, in place of `rtt`.
        down_delay: Option<Span> where default = "half of rtt",
        /// The probability of loss behind the link from the client, such as 1%.
        up_loss: Option<String> where default = "0%",
        /// The probability of loss behind the link to the client.
        down_loss: Option<String> where default = "0%",
        /// Link-layer bytes charged per packet.
        overhead: Option<Bytes> where default = "0B",
        /// Links in the order from the client to the server, in place of `up` and `down`; sim only.
        _hop: Option<Hops> as "hop",
    }
}

keys! {
    /// A hop in a file. Delay, jitter, loss and overhead are in its links' SPECs.
    struct NamedHop {
        /// The name, required and unique; variants override keys as `path.hop.NAME.KEY`.
        _name: Option<String> as "name",
        _links: HopKeys [flat],
    }
}

/// `[[path.hop]]`. [`PathKeys`] only describes it: its tables are taken out of `[path]` before, so
/// that variants can override them by name.
pub(crate) struct Hops;

impl Value for Hops {
    fn expected(_: &str) -> String {
        "tables: [[path.hop]]".to_owned()
    }

    fn read(_: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        Ok(Self)
    }

    fn schema() -> Json {
        json!({ "type": ["array", "object"], "items": NamedHop::schema() })
    }
}

/// Returns the keys of `[path]`: with hops, only those that hops do not have.
pub(super) fn path_settings(table: &Table, has_hops: bool) -> Vec<Listed> {
    let of_path = ["rtt", "up_delay", "down_delay"];
    let mut settings = listed::<PathKeys>(table);
    settings.retain(
        |setting| {
            if has_hops { of_path.contains(&setting.key) } else { setting.key != "hop" }
        },
    );
    set_unnamed_links(&mut settings, Some([WIDE_LINK, WIDE_QUEUE]));
    settings
}

/// Returns the keys of a hop besides its name.
pub(super) fn hop_settings(table: &Table) -> Vec<Listed> {
    let mut settings = listed::<HopKeys>(table);
    set_unnamed_links(&mut settings, None);
    settings
}

/// Sets the link and the queue of each direction that names no link; `None` for no link.
fn set_unnamed_links(settings: &mut [Listed], lane: Option<[&str; 2]>) {
    for keys in [["up", "up_queue"], ["down", "down_queue"]] {
        let is_unnamed = |it: &Listed| it.key == keys[0] && it.value.is_none();
        if !settings.iter().any(is_unnamed) {
            continue;
        }
        for setting in &mut *settings {
            let Some(index) = keys.iter().position(|key| *key == setting.key) else { continue };
            setting.value = lane.map(|lane| lane[index].to_owned());
            setting.default = lane.is_none().then_some("no link");
        }
    }
}

/// A delay with the key that sets it.
type Delay = Option<(&'static str, Span)>;

struct LaneKeys {
    direction: &'static str,
    link: Option<LinkText>,
    queue: Option<QueueText>,
    rule: Option<LinkRule>,
    delay: Delay,
    loss: Option<String>,
    overhead: Option<u64>,
}

impl LaneKeys {
    fn new(direction: &'static str, link: Option<LinkText>, queue: Option<QueueText>) -> Self {
        Self { direction, link, queue, rule: None, delay: None, loss: None, overhead: None }
    }

    /// Whether the table has a link or a queue, valid or not.
    fn is_given(&self, faults: &Faults) -> bool {
        let is_wrong = |key: &str| faults.concern(key);
        self.link.is_some()
            || self.queue.is_some()
            || self.rule.is_some()
            || is_wrong(self.direction)
            || is_wrong(&self.queue_key())
    }

    fn queue_key(&self) -> String {
        format!("{}_queue", self.direction)
    }
}

impl PathKeys {
    fn resolve(self, load: &mut LoadFile<'_>, faults: &mut Faults) -> Option<Path> {
        let (up_delay, down_delay) = self.delays(faults);
        let overhead = self.overhead.map(|overhead| overhead.0);
        let (up, down) = self.links.lanes(faults)?;
        let up = LaneKeys { delay: up_delay, loss: self.up_loss, overhead, ..up };
        let down = LaneKeys { delay: down_delay, loss: self.down_loss, overhead, ..down };
        let (up, down) = (up.resolve(load, faults), down.resolve(load, faults));
        Some(Path { up: vec![up?], down: vec![down?] })
    }

    /// Returns the path of these hops, from the client to the server. The path's delays are behind
    /// the last hop: each belongs to the link next to the server.
    fn resolve_chain(
        self,
        hops: &[(String, Table)],
        load: &mut LoadFile<'_>,
        faults: &mut Faults,
    ) -> Option<Path> {
        self.refuse_beside_hops(faults)?;
        let (up_delay, down_delay) = self.delays(faults);
        let mut path = Path { up: Vec::new(), down: Vec::new() };
        // Starts at the server: the first link of each direction then gets the direction's delay.
        let (mut delay_up, mut delay_down) = (up_delay, down_delay);
        let mut is_whole = true;
        for (name, table) in hops.iter().rev() {
            let mut own = Faults::default();
            let keys = read_table::<HopKeys>(table, &mut own);
            let lanes = keys.and_then(|keys| {
                let (up, down) = keys.links.lanes(&mut own)?;
                let up = LaneKeys { rule: keys.up_rule, ..up };
                Some((up, LaneKeys { rule: keys.down_rule, ..down }))
            });
            if lanes.is_none() {
                // The delays may belong to its links.
                (delay_up, delay_down, is_whole) = (None, None, false);
            }
            let (up, down) = lanes.unzip();
            for (lane, delay, lanes) in
                [(up, &mut delay_up, &mut path.up), (down, &mut delay_down, &mut path.down)]
            {
                let Some(lane) = lane.filter(|lane| lane.is_given(&own)) else { continue };
                let lane = LaneKeys { delay: delay.take(), ..lane }.resolve(load, &mut own);
                is_whole &= lane.is_some();
                lanes.extend(lane.map(|lane| Lane { name: name.clone(), ..lane }));
            }
            for fault in own {
                // The delays are keys of `[path]`, not of a hop.
                let is_of_path = matches!(&*fault.key, "rtt" | "up_delay" | "down_delay");
                let place = format!("hop.{name}");
                faults.add(if is_of_path { fault } else { fault.under(&place) });
            }
        }
        if !is_whole {
            return None;
        }
        path.up.reverse();
        for (direction, delay, lanes) in
            [("up", up_delay, &mut path.up), ("down", down_delay, &mut path.down)]
        {
            if lanes.is_empty() {
                let wide = LaneKeys::new(direction, None, None);
                lanes.push(LaneKeys { delay, ..wide }.resolve(load, faults)?);
            }
        }
        Some(path)
    }

    fn refuse_beside_hops(&self, faults: &mut Faults) -> Option<()> {
        let keys = [
            ("up", self.links.up.is_some()),
            ("up_queue", self.links.up_queue.is_some()),
            ("down", self.links.down.is_some()),
            ("down_queue", self.links.down_queue.is_some()),
            ("up_loss", self.up_loss.is_some()),
            ("down_loss", self.down_loss.is_some()),
            ("overhead", self.overhead.is_some()),
        ];
        let given = keys.map(|(key, is_right)| (key, is_right || faults.concern(key)));
        let problem = "excludes [[path.hop]]; expected it in one of the hops, loss and overhead in \
                       its link's SPEC, or no hops";
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given).peekable();
        let is_right = given.peek().is_none();
        given.for_each(|(key, _)| faults.add(Fault::new(key, problem)));
        is_right.then_some(())
    }

    /// Returns the delays up and down: those given, or the halves of the round trip.
    fn delays(&self, faults: &mut Faults) -> (Delay, Delay) {
        let own = |key, delay: Option<Span>| delay.map(|delay| (key, delay));
        let delays = (own("up_delay", self.up_delay), own("down_delay", self.down_delay));
        let Some(rtt) = self.rtt else { return delays };
        if delays != (None, None) {
            let problem = "excludes `up_delay` and `down_delay`; expected one or the other";
            faults.add(Fault::new("rtt", problem));
        }
        let up = Span::from_nanos(rtt.as_nanos() / 2);
        (Some(("rtt", up)), Some(("rtt", rtt.saturating_sub(up))))
    }
}

impl LinkKeys {
    /// Returns the keys by direction, up and down. At least one of them needs a link.
    fn lanes(self, faults: &mut Faults) -> Option<(LaneKeys, LaneKeys)> {
        let is_missing = self.up.is_none() && self.down.is_none();
        if is_missing && !faults.concern("up") && !faults.concern("down") {
            let problem = "expected a link in at least one direction, such as up = \"10mbit\"";
            faults.add(Fault::new("up", problem));
            return None;
        }
        let down = LaneKeys::new("down", self.down, self.down_queue);
        Some((LaneKeys::new("up", self.up, self.up_queue), down))
    }
}

impl LaneKeys {
    fn resolve(self, load: &mut LoadFile<'_>, faults: &mut Faults) -> Option<Lane> {
        let queue_key = self.queue_key();
        let is_wide = self.link.is_none() && !faults.concern(self.direction);
        let queue = match self.queue {
            Some(_) if is_wide => {
                let problem = format!("has no link; expected `{}` too", self.direction);
                faults.add(Fault::new(&queue_key, problem));
                None
            }
            Some(queue) => Some(queue.0),
            None if faults.concern(&queue_key) => None,
            None => Spec::parse(if is_wide { WIDE_QUEUE } else { DEFAULT_QUEUE }).ok(),
        };
        // A wide link also replaces a wrong one, so that the other keys are still checked.
        let wide = Spec::parse(WIDE_LINK).ok();
        let link = self.link.map(|link| link.0).or_else(|| wide.clone())?;
        let loss_key = format!("{}_loss", self.direction);
        let more = [
            self.delay.map(|(key, delay)| (key, "delay", delay.to_string())),
            self.loss.map(|loss| (loss_key.as_str(), "loss", loss)),
            self.overhead.map(|bytes| ("overhead", "overhead", format!("{bytes}B"))),
        ];
        let more: Vec<_> = more.into_iter().flatten().collect();
        let link = with_more(&link, self.direction, &more, load, faults);
        let facts = match &link {
            Some(link) => link.facts(),
            None => modem_file::link(&wide?, load).ok()?.facts(),
        };
        let is_constant = !is_wide && link.as_ref().is_some_and(has_constant_rate);
        if self.rule.is_some() && !is_constant {
            let problem = "needs a link of a constant rate, such as 20mbit";
            faults.add(Fault::new(format!("{}_rule", self.direction), problem));
            return None;
        }
        let queue = queue?;
        let mut read = |spec: &Spec| LaneQueue::read(spec, &facts, load);
        let setup = read(&queue);
        let setup = setup.map_err(|error| report(&queue, &error, &queue_key, &mut read, faults));
        let (name, rule) = (String::new(), self.rule);
        Some(Lane { name, link: link?, queue: setup.ok()?, rule, is_wide })
    }
}

/// Whether a rule may change the rate of a link.
fn has_constant_rate(link: &LinkSetup) -> bool {
    let facts = link.facts();
    !link.rate.varies() && facts.rate.is_some() && facts.request_loop.is_none()
}

/// Adds to a link's SPEC the values of other keys, `more`: each key, its name in the SPEC and its
/// value. Faults are reported under the key that causes them.
fn with_more(
    link: &Spec,
    direction: &str,
    more: &[(&str, &str, String)],
    load: &mut LoadFile<'_>,
    faults: &mut Faults,
) -> Option<LinkSetup> {
    let whole = more.iter().fold(link.clone(), |link, (_, own, value)| link.with(own, value));
    let error = match modem_file::link(&whole, load) {
        Ok(link) => return Some(link),
        Err(error) => error,
    };
    if modem_file::link(link, load).is_err() {
        let read = |spec: &Spec| modem_file::link(spec, load);
        report(&whole, &error, direction, read, faults);
        return None;
    }
    let mut is_of_key = false;
    for (key, own, value) in more {
        if let Err(error) = modem_file::link(&link.clone().with(own, value), load) {
            let is_given = link.items.iter().any(|item| item.key.as_deref() == Some(*own));
            faults.add(if is_given {
                let problem = format!("`{own}` is set by `{key}`; expected a link without it");
                Fault::new(direction, problem)
            } else if *key == "rtt" && error.to_string().ends_with("expected 0s to 60s") {
                // Half of it goes each way.
                Fault::new(*key, "expected 0s to 120s")
            } else {
                Fault::new(*key, error.to_string())
            });
            is_of_key = true;
        }
    }
    if !is_of_key {
        faults.add(Fault::new(direction, error.to_string()));
    }
    None
}

/// Reports the fault of each invalid item of a SPEC; if no item is invalid by itself, the fault of
/// the whole SPEC.
fn report<T>(
    spec: &Spec,
    whole: &ConfigError,
    key: &str,
    mut read: impl FnMut(&Spec) -> Result<T, ConfigError>,
    faults: &mut Faults,
) {
    let bare = Spec { items: Vec::new(), ..spec.clone() };
    let mut found = Vec::new();
    if read(&bare).is_ok() {
        let alone = |item: &Item| Spec { items: vec![item.clone()], ..bare.clone() };
        found.extend(spec.items.iter().filter_map(|item| read(&alone(item)).err()));
    }
    let found = if found.is_empty() { std::slice::from_ref(whole) } else { &found };
    for error in found {
        faults.add(Fault::new(key, error.to_string()));
    }
}
