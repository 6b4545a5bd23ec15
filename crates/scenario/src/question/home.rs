//! What a home has: a line by its name, numbers as people type them, and a shaper in the router.

use toml::{Table, Value};
use underload_aqm::config::{self, Kind, LinkFacts, Spec};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, SHAPED_PERCENT, deployed, our_form, shaped_rate};
use underload_aqm::time::Span;
use underload_record::schema::{Direction, PerDirection};

use super::{INSTALLED, PLAIN, Part, Question, QuestionFault, Use, each, fault};
use crate::keys::{alternatives, did_you_mean};
use crate::{Keys, builtin, simulated_controls};

/// The link of a router that does not shape.
const UNSHAPED: &str = "1gbit";
/// The link behind a policer, which never is the limit.
const UNLIMITED: &str = "unlimited";
/// The longest delay of a plain queue, and the size of its usual 1,000 packets.
const PLAIN_SECONDS: Span = Span::from_secs(1);
const PLAIN_BYTES: u64 = 1_500_000;
/// The usual interval of probes, the size of a probe with its headers, and the largest part of a
/// direction's rate that probes take.
const PROBE_MS: u64 = 10;
const PROBE_BITS: u64 = 640;
const PROBE_PERCENT: u64 = 5;
/// A larger number without a unit was typed in kbit/s.
const MOST_MBIT: f64 = 10_000.0;
/// Maximum number of simultaneous calls, games, pages or films of each kind.
const MOST_USES: u64 = 100;
/// The variant without a shaper in the router.
pub const NO_ROUTER: &str = "no-router";

/// Returns a number with the unit that people mean: `40` of a rate is `40mbit`, `20` of a round trip
/// `20ms`, `40M` is `40mbit`. Any other text is unchanged.
pub fn with_unit(text: &str, unit: &str) -> String {
    let is_number =
        |text: &str| text.parse::<f64>().is_ok() && text.ends_with(|c: char| c.is_ascii_digit());
    match text.strip_suffix(['M', 'm', 'G', 'g']) {
        Some(number) if unit == "mbit" && is_number(number) => format!("{text}bit").to_lowercase(),
        _ if is_number(text) => format!("{text}{unit}"),
        _ => text.to_owned(),
    }
}

/// Splits `DOWN/UP` as providers write it, in Mbit/s, or in the unit of the second if only that has
/// one. One rate is both.
pub fn down_and_up(text: &str) -> PerDirection<String> {
    let text = text.replace("bit/s", "bit");
    let (down, up) = text.split_once('/').unwrap_or((&text, &text));
    let unit = up.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim();
    let unit = if rate_of(up).is_some() { unit } else { "mbit" };
    PerDirection::new(up, down).map(|rate| {
        let rate = with_unit(rate.trim(), unit);
        with_unit(&rate, "mbit")
    })
}

/// Returns the names of the lines that [`Question::of_line`] knows: those of the scenarios `home/*`.
pub fn lines() -> impl Iterator<Item = &'static str> + Clone {
    let homes = builtin::scenarios().filter_map(|scenario| {
        let name = scenario.name.strip_prefix("home/")?;
        line_of(scenario.text).map(|_| name)
    });
    homes.collect::<Vec<_>>().into_iter()
}

/// Returns the round trip and the hop named `line` of a scenario; `None` if the home is about its
/// Wi-Fi, which has a queue of its own.
fn line_of(text: &str) -> Option<(String, Table)> {
    let table: Table = text.parse().ok()?;
    let path = table.get("path")?.as_table()?;
    let hops = path.get("hop")?.as_array()?.iter().filter_map(Value::as_table);
    let is =
        |hop: &Table, key: &str, value: &str| hop.get(key).and_then(Value::as_str) == Some(value);
    let mut wifi = hops.clone().filter(|hop| is(hop, "name", "wifi"));
    let line = hops.clone().find(|hop| is(hop, "name", "line"))?;
    wifi.all(|hop| is(hop, "up_queue", "fq-codel")).then_some(())?;
    Some((path.get("rtt")?.as_str()?.to_owned(), line.clone()))
}

/// The options of `underload try` that a question has.
const OPTIONS: &str = "up down rtt up-queue down-queue queue router follow policer wifi upload download backup \
                       congestion-control call game page video video:4k load repeat seed";

/// Options with their values, in the order in which they were asked.
struct Asked<'a>(Vec<(&'a str, String)>);

impl Asked<'_> {
    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|it| it.0 == name).map(|it| it.1.clone()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|it| it.0 == name)
    }

    fn last(&self, name: &str, unit: &str) -> Option<String> {
        self.all(name).pop().map(|text| with_unit(&text, unit))
    }

    /// Returns a number; an option without one is 1.
    fn number(&self, name: &str, default: u64) -> Result<u64, QuestionFault> {
        match self.last(name, "").as_deref() {
            None => Ok(default),
            Some("") => Ok(1),
            Some(text) => {
                text.parse().map_err(|_| fault(name, format!("`{text}`: expected a whole number")))
            }
        }
    }
}

impl Question {
    /// Returns the question that words ([`Self::of_words`]) and the options of `underload try` describe:
    /// options by their names, such as `queue` or `upload`. A switch has an empty value, and a number
    /// may.
    ///
    /// # Errors
    /// Returns the faulty word and what is accepted.
    pub fn asked(
        words: &[String],
        options: &[(&str, String)],
        is_live: bool,
    ) -> Result<Self, QuestionFault> {
        let mut question = Self { is_live, ..Self::default() };
        let mut said: Vec<(&str, String)> = question.of_words(words)?;
        said.extend(options.iter().map(|(name, value)| match films_4k(name, value) {
            Some(count) => (Use::Video4k.name(), count),
            None => (*name, value.clone()),
        }));
        check_names(&said)?;
        check_numbers(&said)?;
        let asked = Asked(said);
        question.set_line(&asked)?;
        question.routers = asked.all("router");
        if !question.routers.is_empty() && asked.has("queue") {
            let problem = "a router keeps the line's queues; expected one of --router and --queue";
            return Err(fault("--queue", problem.to_owned()));
        }
        if let Some(rates) = asked.last("follow", "") {
            if let Some(other) =
                ["router", "queue", "policer"].into_iter().find(|name| asked.has(name))
            {
                let problem = "the router follows the line with cake";
                return Err(fault("--follow", format!("{problem}; expected no --{other}")));
            }
            question.set_follow(&rates)?;
        }
        let controls = asked.all("congestion-control");
        if !controls.is_empty() {
            question.congestion_controls = controls;
        }
        question.set_queues(&asked.all("queue"));
        question.set_uses(&asked)?;
        question.repeats = clamped(asked.number("repeat", question.repeats.into())?);
        question.seed = asked.number("seed", question.seed)?;
        Ok(question)
    }

    /// Sets the line, what stands around it, and the times.
    fn set_line(&mut self, asked: &Asked<'_>) -> Result<(), QuestionFault> {
        for direction in [Direction::Up, Direction::Down] {
            if let Some(link) = asked.last(direction.name(), "mbit")
                && !self.set_rate(direction, &link)
            {
                (self.links[direction], self.line) = (link, None);
            }
            if let Some(queue) = asked.last(&format!("{direction}-queue"), "") {
                check_installed(&format!("--{direction}-queue"), &queue, &asked.all("queue"))?;
                self.installed[direction] = self.buffer(&queue, direction).unwrap_or(queue);
            }
        }
        if let Some(rtt) = asked.last("rtt", "ms") {
            self.rtt = rtt;
        }
        if let Some(load) = asked.last("load", "s") {
            self.load = load;
        }
        if Kind::Span.read(&self.load) == Some(config::Value::Span(Span::ZERO)) {
            return Err(fault("--load", "0s is no time; expected more".to_owned()));
        }
        self.wifi = asked.last("wifi", "mbit");
        self.backup = asked.last("backup", "mbit").map(|text| match text.split_once(':') {
            Some((rate, control)) => format!("{}:{control}", with_unit(rate, "mbit")),
            None => text,
        });
        self.policer = asked.last("policer", "").map(|rates| down_and_up(&rates));
        Ok(())
    }

    /// Returns the plain queue that delays by a time when it is full, such as `250ms`.
    fn buffer(&self, text: &str, direction: Direction) -> Option<String> {
        let rate = rate_of(&self.links[direction])?;
        match Kind::Span.read(text)? {
            config::Value::Span(span) => Some(format!("{PLAIN}:limit={}B", rate.bytes_in(span))),
            _ => None,
        }
    }

    /// Returns the interval of probes that take at most [`PROBE_PERCENT`] of the slowest direction.
    pub(super) fn probe_interval(&self) -> String {
        let rates = [Direction::Up, Direction::Down].map(|it| self.carried(it));
        let slowest = rates.into_iter().flatten().map(Rate::bits_per_second).min();
        let ms = slowest
            .map(|rate| (PROBE_BITS * 100_000).div_ceil(rate.max(1).saturating_mul(PROBE_PERCENT)));
        format!("{}ms", ms.unwrap_or_default().max(PROBE_MS))
    }

    /// Sets what is sent; without any of it, it is the default.
    fn set_uses(&mut self, asked: &Asked<'_>) -> Result<(), QuestionFault> {
        let mut uses = Vec::new();
        for it in Use::ALL {
            let count = asked.number(it.name(), 0)?;
            if count > MOST_USES {
                let problem = format!("{count}: expected at most {MOST_USES}");
                return Err(fault(it.name(), problem));
            }
            uses.extend((0..count).map(|_| it));
        }
        let sends = ["upload", "download", "backup"].into_iter();
        if sends.chain(Use::ALL.map(Use::name)).any(|name| asked.has(name)) {
            self.uploads = clamped(asked.number("upload", 0)?);
            self.downloads = clamped(asked.number("download", 0)?);
            self.uses = uses;
        } else if self.is_followed() {
            let is_up = self.follow.up.is_some();
            (self.uploads, self.downloads) = (is_up.into(), 1);
        } else if self.is_live {
            // Only the simulator has the call of a question without anything that is sent.
            self.uses.clear();
        }
        Ok(())
    }

    /// Sets links, round trip and installed queues to those of a line of the scenarios `home/*`, such
    /// as `cable`. Returns whether there is such a line.
    pub fn of_line(&mut self, name: &str) -> bool {
        let found = builtin::find(&format!("home/{name}"));
        let Some((rtt, line)) = found.and_then(|scenario| line_of(scenario.text)) else {
            return false;
        };
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.links = PerDirection::from_fn(|direction| text(direction.name()));
        self.installed = PerDirection::from_fn(|it| text(&format!("{}_queue", it.name())));
        (self.line, self.rtt) = (Some(name.to_owned()), rtt);
        true
    }

    /// Returns the hops of the path, from the client to the line; empty if the line is the first
    /// hop.
    pub fn hops(&self) -> Vec<Value> {
        let hop = |name: &str, links: &PerDirection<String>, queues: &PerDirection<String>| {
            let keys = Keys::new().set("name", name).then(each("", "", links));
            Value::from(keys.then(each("", "_queue", queues)))
        };
        let both = |text: &str| PerDirection::from_fn(|_| text.to_owned());
        let mut hops = Vec::new();
        if let Some(rate) = &self.wifi {
            hops.push(hop("wifi", &both(&format!("{rate}:jitter=4ms")), &both("fq-codel")));
        }
        if !self.routers.is_empty() || self.is_followed() {
            hops.push(hop("router", &both(self.unshaped()), &both(PLAIN)));
        }
        if !hops.is_empty() || self.policer.is_some() {
            hops.push(hop("line", &self.links, &self.installed()));
        }
        if let Some(rates) = &self.policer {
            let queues = rates.as_ref().map(|rate| format!("policer:rate={rate}"));
            hops.push(hop("provider", &both(UNLIMITED), &queues));
        }
        hops
    }

    /// Returns the link of a router that does not shape, which is not the limit of the line.
    fn unshaped(&self) -> &'static str {
        let usual = Rate::from_megabits_per_second(1_000);
        let is_fast = |link| rate_of(link).is_some_and(|rate| rate > usual);
        if self.links.iter().any(|(_, link)| is_fast(link)) { UNLIMITED } else { UNSHAPED }
    }

    /// Returns the keys of a variant whose router shapes: `SPEC`, or `SPEC@DOWN/UP` with its rates, or
    /// `SPEC@90%` with a part of the line's.
    ///
    /// # Errors
    /// Returns what is missing if the router has no rate for each direction.
    pub(super) fn router(&self, text: &str) -> Result<Keys, QuestionFault> {
        let (queue, rates) = self.shaped(text)?;
        Ok(rates.iter().fold(Keys::new(), |keys, (direction, rate)| {
            let (link, queue) = shaper(queue, rate, self.unshaped());
            let name = format!("path.hop.router.{}", direction.name());
            keys.set(&name, link).set(&format!("{name}_queue"), queue)
        }))
    }

    /// Returns the queue of a router and its rates.
    fn shaped<'a>(&self, text: &'a str) -> Result<(&'a str, PerDirection<String>), QuestionFault> {
        let fault = |problem: String| QuestionFault {
            part: Some(Part::Router),
            key: String::new(),
            problem: format!("`{text}`: {problem}"),
        };
        let (queue, rates) = text.split_once('@').unwrap_or((text, ""));
        let percent = match rates.strip_suffix('%').map(str::parse) {
            Some(Ok(percent @ 1..=1_000)) => percent,
            Some(_) => {
                return Err(fault(format!("`{rates}`: expected a percentage from 1% to 1000%")));
            }
            None if rates.is_empty() => SHAPED_PERCENT,
            None if rates.contains('/') || self.links.up == self.links.down => {
                return Ok((queue, down_and_up(rates)));
            }
            None => {
                let expected = "expected DOWN/UP or a part of the line's rates";
                return Err(fault(format!("{expected}, such as {queue}@90/18 or {queue}@90%")));
            }
        };
        let part = |direction| {
            let rate = self.carried(direction).ok_or_else(|| {
                let link = &self.links[direction];
                fault(format!("`{link}` has no rate; expected one, as {queue}@40/10"))
            })?;
            Ok(shaped_rate(rate, percent).to_string())
        };
        Ok((queue, PerDirection::new(part(Direction::Up)?, part(Direction::Down)?)))
    }

    /// Returns the rate that the line and the provider's policer carry, if the line has one.
    fn carried(&self, direction: Direction) -> Option<Rate> {
        let policed = self.policer.as_ref().and_then(|rates| rate_of(&rates[direction]));
        let line = rate_of(&self.links[direction])?;
        Some(policed.map_or(line, |policed| policed.min(line)))
    }

    /// Returns what a person may not expect of this question: what it assumes, and what it lacks.
    pub fn remarks(&self) -> Vec<String> {
        let PerDirection { up, down } = &self.links;
        let both = (self.line.is_none() && up == down).then(|| {
            format!("{up} is the rate of both directions; DOWN/UP, such as 50/10, names two")
        });
        let wifi = self.wifi.as_ref().map(|_| {
            "the Wi-Fi is assumed to queue fairly (FQ-CoDel), as the drivers of Linux do".to_owned()
        });
        let fills = |it: &Use| matches!(it, Use::Page | Use::Video | Use::Video4k);
        let is_loaded = self.uploads.max(self.downloads) > 0 || self.backup.is_some();
        let idle = (!is_loaded && !self.uses.iter().any(fills))
            .then(|| "nothing that is sent fills the line; `upload` or `download` does".to_owned());
        [both, wifi, idle].into_iter().flatten().collect()
    }

    /// Says how long a plain buffer of this question delays, which is assumed; `None` without one.
    pub fn assumed(&self) -> Option<String> {
        let is_installed = !self.routers.is_empty() || self.queues.iter().any(|it| it == INSTALLED);
        let is_compared = self.routers.is_empty() && self.queues.iter().any(|it| it == PLAIN);
        let holds = |(direction, link): (Direction, &String)| {
            let is_plain = is_compared || is_installed && self.installed[direction] == PLAIN;
            let whole = rate_of(link).filter(|_| is_plain)?.time_for(PLAIN_BYTES)?;
            let ms = whole.min(PLAIN_SECONDS).as_secs_f64() * 1e3;
            Some(format!("{ms:.0} ms {direction}"))
        };
        let all: Vec<String> = self.links.iter().filter_map(holds).collect();
        (!all.is_empty())
            .then(|| format!("A full plain buffer is assumed to delay by {}.", all.join(" and ")))
    }

    /// Returns the queues of the line as they are set up. A plain one without a limit holds
    /// [`PLAIN_SECONDS`] at most: the usual 1,000 packets are 12 s at 1 Mbit/s, which no modem has.
    pub(super) fn installed(&self) -> PerDirection<String> {
        PerDirection::from_fn(|direction| self.plain(&self.installed[direction], direction))
    }

    pub(super) fn plain(&self, queue: &str, direction: Direction) -> String {
        let queue = our_form(queue);
        let rate = rate_of(&self.links[direction]).filter(|_| queue == PLAIN);
        match rate.map(|rate| rate.bytes_in(PLAIN_SECONDS)) {
            Some(bytes) if bytes < PLAIN_BYTES => format!("{PLAIN}:limit={bytes}B"),
            _ => queue,
        }
    }

    /// Says which policer or router limits to no less than the line has, where it changes nothing.
    pub(super) fn too_fast(&self) -> Option<String> {
        let policed = self
            .policer
            .iter()
            .flat_map(PerDirection::iter)
            .map(|(direction, rate)| Some(rate_of(rate)? >= rate_of(&self.links[direction])?));
        let policed: Option<Vec<bool>> = policed.collect();
        if policed.is_some_and(|it| !it.is_empty() && it.iter().all(|is_too_fast| *is_too_fast)) {
            return Some("the policer does not act, because the line is not faster".to_owned());
        }
        self.routers.iter().find_map(|text| {
            let (_, rates) = self.shaped(text).ok()?;
            rates.iter().find_map(|(direction, rate)| {
                let carried = self.carried(direction)?;
                let is_too_fast = rate_of(rate)? >= carried;
                is_too_fast.then(|| {
                    let direction = direction.name();
                    format!("{text} is not below the line's {carried} {direction}")
                })
            })
        })
    }
}

/// Returns the rate of a link, if it has one.
pub(super) fn rate_of(link: &str) -> Option<Rate> {
    LinkSetup::parse(link).ok()?.facts().rate
}

/// Refuses numbers without a unit that only are rates of a home in kbit/s.
pub(super) fn check_rate(text: &str) -> Result<(), QuestionFault> {
    let is_too_large = |part: &&str| part.parse().is_ok_and(|rate: f64| rate > MOST_MBIT);
    match text.split(['/', '@']).find(is_too_large) {
        Some(rate) => {
            let expected = "expected Mbit/s, such as 16/1, or a unit";
            // One rate with a unit would leave the other one in Mbit/s.
            let in_kbit = |part: &str| {
                let has_unit = !part.ends_with(|c: char| c.is_ascii_digit());
                if has_unit { part.to_owned() } else { format!("{part}kbit") }
            };
            let in_kbit = text.split('/').map(in_kbit).collect::<Vec<_>>().join("/");
            Err(fault(text, format!("is {rate} Mbit/s; {expected}: {in_kbit}")))
        }
        None if text.contains("MB") => {
            let problem = "MB are bytes, of 8 bits each; expected Mbit/s, such as 100/20";
            Err(fault(text, problem.to_owned()))
        }
        None => Ok(()),
    }
}

/// Returns the number of films in 4K if an option means some: `video` with `4k` or `2:4k`.
pub(super) fn films_4k(name: &str, value: &str) -> Option<String> {
    let value = value.to_lowercase();
    let count = if value == "4k" { "" } else { value.strip_suffix(":4k")? };
    (name == Use::Video.name()).then(|| count.to_owned())
}

/// Returns the rate and the congestion control of a backup: `5mbit`, `ledbat` or `5mbit:ledbat`.
pub(super) fn backup_parts(text: &str) -> (Option<&str>, Option<&str>) {
    match text.split_once(':') {
        Some((rate, control)) => (Some(rate), Some(control)),
        None if simulated_controls().iter().any(|control| control == text) => (None, Some(text)),
        None => (Some(text), None),
    }
}

/// Refuses words without the number or the queue that belongs to them.
fn check_numbers(options: &[(&str, String)]) -> Result<(), QuestionFault> {
    let (up, down) = (Direction::Up.name(), Direction::Down.name());
    let rates = [up, down, "wifi", "backup", "policer", "router"];
    options.iter().filter(|(name, _)| rates.contains(name)).try_for_each(|it| check_rate(&it.1))?;
    for (name, expected) in [
        ("policer", "rates in Mbit/s, such as policer 50/10"),
        ("backup", "a rate in Mbit/s or ledbat, such as backup 5"),
        ("wifi", "a rate in Mbit/s, such as wifi 60"),
        ("follow", "rates in Mbit/s, such as follow 3..60"),
        ("rtt", "a time in ms, such as rtt 20"),
        ("up-queue", "a queue, such as modem docsis-pie"),
    ] {
        if options.iter().any(|(option, value)| *option == name && value.is_empty()) {
            return Err(fault(name, format!("expected {expected}")));
        }
    }
    Ok(())
}

/// Refuses options that a question does not have.
fn check_names(options: &[(&str, String)]) -> Result<(), QuestionFault> {
    let known = || OPTIONS.split(' ');
    match options.iter().find(|(name, _)| !known().any(|it| it == *name)) {
        Some((name, _)) => {
            let (listed, meant) = (alternatives(known()), did_you_mean(name, known()));
            Err(fault(name, format!("there is no such option; expected {listed}{meant}")))
        }
        None => Ok(()),
    }
}

/// Refuses a queue of the line that is a line itself, or that the compared queues replace.
fn check_installed(option: &str, queue: &str, compared: &[String]) -> Result<(), QuestionFault> {
    if lines().any(|line| line == queue) {
        let problem = format!("{queue} is a line; expected a queue, or `try {queue}`");
        return Err(fault(option, problem));
    }
    if !compared.is_empty() && !compared.iter().any(|queue| queue == INSTALLED) {
        return Err(fault(option, format!("--queue replaces it; add --queue {INSTALLED}")));
    }
    Ok(())
}

/// Returns a number that a scenario refuses if it is too large.
fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the link and the queue of a shaper. CAKE shapes by itself, before the link `unshaped`;
/// other queues behind a link.
fn shaper(queue: &str, rate: &str, unshaped: &str) -> (String, String) {
    let facts = LinkFacts::of_rate(Rate::from_bits_per_second(1_000));
    match Spec::parse(queue) {
        Ok(spec) if deployed(queue, &facts) != queue => {
            (unshaped.to_owned(), spec.with("rate", rate).to_string())
        }
        _ => (rate.to_owned(), queue.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_unit_get_the_usual_unit() {
        for (typed, unit, meant) in [
            ("40", "mbit", "40mbit"),
            ("9.5", "mbit", "9.5mbit"),
            ("20", "ms", "20ms"),
            ("40M", "mbit", "40mbit"),
            ("1g", "mbit", "1gbit"),
            ("20m", "ms", "20m"),
            ("20ms", "ms", "20ms"),
            ("cellular:preset=3g", "mbit", "cellular:preset=3g"),
            ("inf", "mbit", "inf"),
            ("", "mbit", ""),
        ] {
            assert_eq!(with_unit(typed, unit), meant);
        }
        for (typed, down, up) in [
            ("40/10", "40mbit", "10mbit"),
            ("1gbit / 500", "1gbit", "500mbit"),
            ("40", "40mbit", "40mbit"),
            ("100M/20M", "100mbit", "20mbit"),
            ("6000/1000kbit", "6000kbit", "1000kbit"),
            ("100 Mbit/s / 20 Mbit/s", "100 Mbit", "20 Mbit"),
        ] {
            assert_eq!(down_and_up(typed), PerDirection::new(up, down).map(str::to_owned));
        }
    }

    #[test]
    fn a_question_is_asked_in_the_words_of_the_command_line() {
        let asked = |line: Option<&str>, words: &str| {
            let options =
                words.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, "")));
            let options: Vec<(&str, String)> =
                options.map(|(name, value)| (name, value.to_owned())).collect();
            let line: Vec<String> = line.into_iter().map(str::to_owned).collect();
            Question::asked(&line, &options, false)
        };
        let plain = asked(None, "").expect("a question");
        assert_eq!(plain, Question::default());
        let found = asked(Some("40/10"), "rtt=20 queue=fifo queue=pie upload call load=5 repeat=2")
            .expect("a question");
        let expected = Question {
            links: PerDirection::new("10mbit", "40mbit").map(str::to_owned),
            rtt: "20ms".to_owned(),
            queues: ["fifo", "pie"].map(str::to_owned).to_vec(),
            load: "5s".to_owned(),
            repeats: 2,
            ..Question::default()
        };
        assert_eq!(found, expected);
        let slow = asked(Some("cable"), "down=50 up=5").expect("a question");
        assert_eq!(slow.installed.up, "fifo:limit=156160B", "the same 250 ms");
        assert!(slow.links.up.starts_with("docsis:rate=5mbit"), "{}", slow.links.up);
        let cable = asked(Some("cable"), "router=cake@90/9 download=2 wifi=60 seed=7").expect("it");
        assert_eq!((cable.uploads, cable.downloads, cable.uses.len()), (0, 2, 0));
        assert_eq!((cable.wifi.as_deref(), cable.seed), (Some("60mbit"), 7));
        assert_eq!((cable.line.as_deref(), cable.routers.len()), (Some("cable"), 1));
        for (line, words, said) in [
            (Some("kable"), "", "kable: expected DOWN/UP in Mbit/s, such as 100/20, a line"),
            (
                None,
                "up-queue=cable",
                "--up-queue: cable is a line; expected a queue, or `try cable`",
            ),
            (None, "up-queue=pie queue=cake", "--up-queue: --queue replaces it"),
            (None, "load=0", "--load: 0s is no time"),
            (Some("cake"), "queue=pie", "--queue: a router keeps the line's queues"),
            (None, "qeue=pie", "qeue: there is no such option; expected up, down, rtt"),
            (None, "upload=many", "upload: `many`: expected a whole number"),
        ] {
            let error = asked(line, words).expect_err(words).to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_buffer_may_be_a_time_and_slow_lines_have_fewer_probes() {
        let asked = |line: &str, options: &[(&str, String)]| {
            Question::asked(&[line.to_owned()], options, false).expect("a question")
        };
        // By hand: 10 Mbit/s for 250 ms are 312,500 bytes.
        let bloated = asked("40/10", &[("up-queue", "250ms".to_owned())]);
        assert_eq!(bloated.installed.up, "fifo:limit=312500B");
        assert_eq!(bloated.probe_interval(), "10ms");
        assert!(asked("40/10", &[("upload", String::new())]).remarks().is_empty());
        let film = [("video", "4k".to_owned())];
        assert!(asked("40/10", &film).remarks().is_empty(), "a film fills the line for moments");
        let remarks = asked("50 wifi 60 game", &[]).remarks().join("\n");
        for part in ["50mbit is the rate of both", "FQ-CoDel", "`upload` or `download` does"] {
            assert!(remarks.contains(part), "{remarks}");
        }
        // By hand: 5 % of 64 kbit/s are 3,200 bit/s, 5 probes of 640 bits.
        assert_eq!(asked("1mbit/64kbit", &[]).probe_interval(), "200ms");
        let text = asked("1mbit/64kbit", &[]).scenario("try").expect("a scenario").text;
        assert!(text.contains("interval = \"200ms\""), "{text}");
    }

    #[test]
    fn every_home_line_can_be_selected_by_its_name() {
        let names: Vec<&str> = lines().collect();
        for name in ["cable", "vdsl", "lte", "5g", "low-orbit"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        for name in names {
            let mut question = Question::default();
            assert!(question.of_line(name), "{name}");
            question.set_queues(&[]);
            assert_eq!(question.routers, ["cake"], "{name}");
            let scenario = question.scenario("try").expect(name);
            assert!(scenario.text.contains(&question.installed.up), "{name}: {}", scenario.text);
        }
        assert!(!Question::default().of_line("wifi-and-modem"), "it has no hop named line");
    }

    #[test]
    fn a_router_shapes_to_its_rates_or_a_little_less_than_the_line() {
        let routers = ["cake", "fq_codel@38/9.5", "cake:tins=besteffort@30/8"].map(str::to_owned);
        let question = Question {
            links: PerDirection::new("docsis:rate=10mbit,peak=12mbit", "100mbit")
                .map(str::to_owned),
            wifi: Some("60mbit".to_owned()),
            routers: routers.to_vec(),
            ..Question::default()
        };
        let shaped = |router: &str| question.router(router).expect("rates").text();
        for (router, expected) in [
            ("cake", ["up = \"1gbit\"", "up_queue = \"cake:rate=9500kbit\""]),
            ("cake", ["down = \"1gbit\"", "down_queue = \"cake:rate=95mbit\""]),
            ("fq_codel@38/9.5", ["up = \"9.5mbit\"", "up_queue = \"fq_codel\""]),
            ("fq_codel@38/9.5", ["down = \"38mbit\"", "down_queue = \"fq_codel\""]),
            ("cake:tins=besteffort@30/8", ["up = \"1gbit\"", "tins=besteffort,rate=8mbit"]),
        ] {
            for part in expected {
                assert!(shaped(router).contains(part), "{router}: {}", shaped(router));
            }
        }
        let scenario = question.scenario("try").expect("a scenario");
        assert_eq!(scenario.variants.len(), 4, "one without a shaper, too");
        let links = PerDirection::from_fn(|_| "unlimited".to_owned());
        let unlimited = Question { links, ..question };
        let faults = unlimited.scenario("try").expect_err("no rate to shape to");
        assert!(faults[0].to_string().starts_with("--router: `cake`: `unlimited` has no rate"));
    }
}
