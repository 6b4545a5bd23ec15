//! A web page over HTTP/1.1: the page of the DOCSIS buffer control guideline (CM-GL-Buffer-V01,
//! section 7.2.4), loaded again and again.
//!
//! The page has 102 resources: 20 KiB of HTML, 94.5 KiB of script and 100 images of 3343 bytes (the
//! average in the guideline; here all are equal). A load is a DNS lookup, a connection, the HTML,
//! and after the HTML all its resources, on the connections that the browser uses. The guideline's
//! browsers had the script in their caches, so it is fetched only if `script = "fetched"`. The
//! browser's own work (cache, script, layout, drawing) is one constant, `processing`, at the end of
//! each load: the guideline does not say how it is spread over a load.
//!
//! A page that is still loading when the flow stops is unfinished. The guideline leaves open, and
//! this model assumes: requests of 400 bytes, 300 bytes of response header, no processing time at
//! the server, the DNS server as far away as the web server, an unanswered lookup repeated after 1,
//! 2, 4 ... seconds.

mod browser;

use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

pub use browser::Browser;

use super::connection::Connection;
use super::numbers::metric;
use crate::congestion::Algorithm;
use crate::endpoint::{Endpoint, Port};
use crate::net::{Body, Segment};
use crate::tcp::TcpConfig;

/// A page, loaded several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebConfig {
    pub browser: Browser,
    /// Maximum number of loads.
    pub loads: u32,
    /// Time between the end of one load and the start of the next.
    pub pause: Span,
    pub fetches_script: bool,
    /// Time that the browser itself takes in each load, after the last resource.
    pub processing: Span,
    /// Congestion control of both ends.
    pub algorithm: Algorithm,
    /// Initial window of both ends in segments.
    pub initial_window: u32,
}

impl Default for WebConfig {
    /// Chrome, ten loads, a second apart, the script cached, the network's time alone; CUBIC with
    /// ten segments.
    fn default() -> Self {
        Self {
            browser: Browser::Chrome,
            loads: 10,
            pause: Span::from_secs(1),
            fetches_script: false,
            processing: Span::ZERO,
            algorithm: Algorithm::Cubic,
            initial_window: 10,
        }
    }
}

/// The loads of a page until its flow stopped, of this model and of a real browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Length of each finished load.
    pub finished: Vec<Span>,
    /// Length up to the end of the flow of a load that was under way; `None` if none was.
    pub unfinished: Option<Span>,
}

impl Loads {
    /// Returns the median load time, s. An unfinished load counts with the time until the flow
    /// stopped; if the median falls on it, the median is unknown.
    fn median(&self) -> Option<f64> {
        let mut loads: Vec<_> = self.finished.iter().map(|&length| (length, true)).collect();
        loads.extend(self.unfinished.map(|length| (length, false)));
        loads.sort_unstable();
        let (length, known) = *loads.get(loads.len().saturating_sub(1) / 2)?;
        known.then(|| length.as_secs_f64())
    }

    pub fn metrics(&self) -> Vec<Metric> {
        let longest = self.finished.iter().max().map(|length| length.as_secs_f64());
        let is_unfinished = self.unfinished.is_some();
        vec![
            metric("page_load", "s", self.median()),
            metric("page_load_max", "s", longest.filter(|_| !is_unfinished)),
            metric("pages_loaded", "", Some(self.finished.len() as f64)),
            metric("pages_unfinished", "", Some(f64::from(u8::from(is_unfinished)))),
        ]
    }
}

/// State of the browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The pause between two loads, or the end.
    Resting,
    /// Waiting for the DNS server's answer.
    Resolving,
    Html,
    /// Fetching the resources of the page.
    Resources,
}

/// A browser and its servers.
pub(super) struct Web {
    config: WebConfig,
    tcp: TcpConfig,
    stop: Time,
    rng: Rng,
    step: Step,
    /// Start of the current load.
    begun: Time,
    /// Next load, or next attempt to resolve.
    alarm: Time,
    patience: Span,
    connections: Vec<Connection>,
    last_channel: u16,
    /// Bytes of the resources that are not requested yet, last first.
    waiting: Vec<u64>,
    fetching: usize,
    loads_begun: u32,
    finished: Vec<Span>,
}

impl Web {
    pub(super) fn new(config: &WebConfig, stop: Time, rng: Rng) -> Self {
        Self {
            tcp: TcpConfig {
                initial_window: config.initial_window,
                ..TcpConfig::of(config.algorithm)
            },
            stop,
            rng,
            step: Step::Resting,
            begun: Time::ZERO,
            alarm: Time::MAX,
            patience: FIRST_PATIENCE,
            connections: Vec::with_capacity(config.browser.connections()),
            last_channel: 0,
            waiting: Vec::with_capacity(IMAGES + 1),
            fetching: 0,
            loads_begun: 0,
            finished: Vec::with_capacity(config.loads as usize),
            config: config.clone(),
        }
    }

    fn begin_load(&mut self, port: &mut Port<'_>) {
        self.alarm = Time::MAX;
        if self.loads_begun < self.config.loads {
            self.loads_begun += 1;
            self.begun = port.now;
            self.patience = FIRST_PATIENCE;
            self.step = Step::Resolving;
            self.resolve(port);
        }
    }

    fn resolve(&mut self, port: &mut Port<'_>) {
        let load = self.loads_begun;
        port.send_message(Direction::Up, DNS_QUERY_BYTES, load, load);
        self.alarm = port.now + self.patience;
        self.patience = self.patience * 2;
    }

    fn on_resolved(&mut self, port: &mut Port<'_>) {
        self.alarm = Time::MAX;
        self.step = Step::Html;
        self.fetch_on_new_connection(port, HTML_BYTES);
    }

    fn fetch_on_new_connection(&mut self, port: &mut Port<'_>, bytes: u64) {
        // Channel 0 is the DNS lookup's.
        self.last_channel = self.last_channel.checked_add(1).unwrap_or(1);
        let mut connection = Connection::open(port, self.last_channel, &self.tcp, &self.rng);
        connection.fetch(port, REQUEST_BYTES, RESPONSE_HEADER_BYTES + bytes);
        self.connections.push(connection);
        self.fetching += 1;
    }

    /// Handles a complete response on a connection.
    fn on_response(&mut self, port: &mut Port<'_>, index: usize) {
        self.fetching -= 1;
        if self.step == Step::Html {
            self.step = Step::Resources;
            self.waiting.extend([IMAGE_BYTES; IMAGES]);
            self.waiting.extend(self.config.fetches_script.then_some(SCRIPT_BYTES));
        }
        if !self.config.browser.keeps_alive() {
            self.connections.swap_remove(index);
        } else if let Some(bytes) = self.waiting.pop() {
            self.connections[index].fetch(port, REQUEST_BYTES, RESPONSE_HEADER_BYTES + bytes);
            self.fetching += 1;
        }
        while self.connections.len() < self.config.browser.connections() {
            let Some(bytes) = self.waiting.pop() else { break };
            self.fetch_on_new_connection(port, bytes);
        }
        if self.fetching == 0 {
            self.connections.clear();
            self.end_load(port.now + self.config.processing);
        }
    }

    /// Ends a load whose resources have all arrived. If the flow stops before `end`, the load is
    /// unfinished.
    fn end_load(&mut self, end: Time) {
        if end < self.stop {
            self.finished.push(end.since(self.begun));
            self.step = Step::Resting;
            self.alarm = end + self.config.pause;
        }
    }

    fn on_dns(&mut self, port: &mut Port<'_>, direction: Direction, load: u32) {
        match direction {
            Direction::Up => port.send_message(Direction::Down, DNS_ANSWER_BYTES, load, load),
            Direction::Down if self.step == Step::Resolving && load == self.loads_begun => {
                self.on_resolved(port);
            }
            Direction::Down => {}
        }
    }

    fn loads(&self) -> Loads {
        let is_unfinished = self.step != Step::Resting;
        let unfinished = is_unfinished.then(|| self.stop.since(self.begun));
        Loads { finished: self.finished.clone(), unfinished }
    }
}

impl Endpoint for Web {
    fn start(&mut self, port: &mut Port<'_>) {
        self.begin_load(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        if port.now >= self.stop {
            return;
        }
        if let Body::Message(message) = packet.payload.body {
            self.on_dns(port, direction, message.part_of);
            return;
        }
        let channel = packet.payload.channel;
        let index = self.connections.iter().position(|connection| connection.channel == channel);
        // Packets of a closed connection may still be in flight.
        let Some(index) = index else { return };
        if self.connections[index].receive(port, direction, packet) {
            self.on_response(port, index);
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if port.now >= self.stop {
            return;
        }
        for connection in &mut self.connections {
            connection.on_timer(port);
        }
        if self.alarm <= port.now {
            match self.step {
                Step::Resolving => self.resolve(port),
                _ => self.begin_load(port),
            }
        }
    }

    fn deadline(&self) -> Time {
        let connections = self.connections.iter().map(Connection::deadline);
        let next = connections.min().unwrap_or(Time::MAX).min(self.alarm);
        if next < self.stop { next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        self.loads().metrics()
    }
}

// The guideline's page.
pub const HTML_BYTES: u64 = 20 << 10;
pub const SCRIPT_BYTES: u64 = 96_768;
pub const IMAGE_BYTES: u64 = 3_343;
pub const IMAGES: usize = 100;

const REQUEST_BYTES: u64 = 400;
pub const RESPONSE_HEADER_BYTES: u64 = 300;
const DNS_QUERY_BYTES: u32 = 40;
const DNS_ANSWER_BYTES: u32 = 56;
/// Wait for the first attempt to resolve a name; it doubles each time.
const FIRST_PATIENCE: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_guidelines_size() {
        let total = HTML_BYTES + SCRIPT_BYTES + IMAGES as u64 * IMAGE_BYTES;
        assert_eq!((total + 512) >> 10, 441);
    }

    #[test]
    fn the_browsers_own_time_is_a_part_of_each_load() {
        let config = WebConfig { processing: Span::from_secs(2), ..WebConfig::default() };
        let mut web = Web::new(&config, Time::from_secs(10), Rng::new(1));
        (web.step, web.begun) = (Step::Resources, Time::from_secs(1));
        web.end_load(Time::from_secs(4));
        assert_eq!((web.loads().median(), web.alarm), (Some(3.0), Time::from_secs(5)));
        (web.step, web.begun) = (Step::Resources, Time::from_secs(5));
        web.end_load(Time::from_secs(10));
        assert_eq!(
            (web.loads().finished.len(), web.loads().unfinished),
            (1, Some(Span::from_secs(5)))
        );
    }

    #[test]
    fn the_median_of_unfinished_page_loads_is_unknown() {
        let mut web = Web::new(&WebConfig::default(), Time::from_secs(60), Rng::new(1));
        assert_eq!(web.loads().median(), None);
        web.finished = [3, 1, 2].map(Span::from_secs).to_vec();
        assert_eq!(web.loads().median(), Some(2.0));
        web.step = Step::Html;
        web.begun = Time::from_secs(10);
        assert_eq!(web.loads().median(), Some(2.0));
        web.finished = vec![Span::from_secs(51)];
        assert_eq!(web.loads().median(), None);
    }
}
