//! The loads of a page in a real browser: their times, and the metrics that follow.

use serde::{Deserialize, Serialize};
use underload_aqm::time::Span;
use underload_record::schema::Metric;
use underload_sim::application::metric;
use underload_sim::application::web::Loads;

/// The times of one load, ms since its navigation began, as in the W3C's Navigation Timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageTiming {
    pub connect_start: f64,
    /// 0 without TLS.
    pub secure_connection_start: f64,
    pub connect_end: f64,
    pub request_start: f64,
    pub response_start: f64,
    pub response_end: f64,
    pub dom_content_loaded_event_end: f64,
    pub load_event_end: f64,
    /// For example `http/1.1`, or `h2`.
    pub next_hop_protocol: String,
    /// Resources of the page that arrived whole, without the HTML.
    pub objects: u32,
}

/// The page loads of a browser until its flow stopped.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageLoads {
    pub finished: Vec<PageTiming>,
    /// Length up to the end of the flow of a load that was under way; `None` if none was.
    pub unfinished: Option<Span>,
    /// Connections that the server accepted; `None` if another program accepted them.
    pub connections: Option<u64>,
}

impl PageLoads {
    /// Returns the metrics of `web` and of a browser. Times are medians of the finished loads.
    pub fn metrics(&self) -> Vec<Metric> {
        let length = |load: &PageTiming| Span::from_nanos((load.load_event_end * 1e6) as u64);
        let finished: Vec<Span> = self.finished.iter().map(length).collect();
        let loads = Loads { finished, unfinished: self.unfinished };
        let begun = self.finished.len() + usize::from(self.unfinished.is_some());
        let connections = self.connections.filter(|_| begun > 0);
        let connections = connections.map(|count| count as f64 / begun as f64);
        let objects = self.finished.iter().map(|load| f64::from(load.objects));
        let own = [
            ("connect", "ms", self.median(PageTiming::connect)),
            ("tls", "ms", self.median(PageTiming::tls)),
            ("first_byte", "ms", self.median(|load| Some(load.response_start))),
            ("html", "ms", self.median(|load| Some(load.response_end))),
            ("dom_content_loaded", "ms", self.median(|it| Some(it.dom_content_loaded_event_end))),
            ("objects", "", objects.reduce(f64::min)),
            ("connections", "", connections),
        ];
        let own = own.map(|(name, unit, value)| metric(name, unit, value));
        loads.metrics().into_iter().chain(own).collect()
    }

    fn median(&self, time: impl Fn(&PageTiming) -> Option<f64>) -> Option<f64> {
        let mut times: Vec<f64> = self.finished.iter().filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len().saturating_sub(1) / 2).copied()
    }
}

impl PageTiming {
    fn has_tls(&self) -> bool {
        self.secure_connection_start > 0.0
    }

    /// Returns the length of the TCP handshake. `None` if the connection existed before.
    fn connect(&self) -> Option<f64> {
        let end = if self.has_tls() { self.secure_connection_start } else { self.connect_end };
        (self.connect_end > self.connect_start).then_some(end - self.connect_start)
    }

    fn tls(&self) -> Option<f64> {
        self.has_tls().then_some(self.connect_end - self.secure_connection_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(end: f64, tls: f64) -> PageTiming {
        PageTiming {
            connect_start: 2.0,
            secure_connection_start: tls,
            connect_end: 42.0,
            request_start: 42.0,
            response_start: 63.0,
            response_end: 85.0,
            dom_content_loaded_event_end: 90.0,
            load_event_end: end,
            next_hop_protocol: "http/1.1".to_owned(),
            objects: 100,
        }
    }

    #[test]
    fn medians_are_of_finished_loads_and_an_unfinished_one_counts_as_longer() {
        let finished = vec![load(700.0, 0.0), load(500.0, 22.0), load(600.0, 0.0)];
        let mut loads = PageLoads { finished, unfinished: None, connections: Some(12) };
        let of = |loads: &PageLoads, name: &str| {
            let metrics = loads.metrics();
            metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        };
        assert_eq!(of(&loads, "page_load"), Some(0.6));
        assert_eq!(of(&loads, "page_load_max"), Some(0.7));
        // A handshake without TLS takes 40 ms, one before TLS 20 ms; TLS takes 20 ms.
        assert_eq!((of(&loads, "connect"), of(&loads, "tls")), (Some(40.0), Some(20.0)));
        assert_eq!((of(&loads, "first_byte"), of(&loads, "html")), (Some(63.0), Some(85.0)));
        assert_eq!((of(&loads, "objects"), of(&loads, "connections")), (Some(100.0), Some(4.0)));
        loads.unfinished = Some(Span::from_secs(9));
        assert_eq!((of(&loads, "page_load"), of(&loads, "page_load_max")), (Some(0.6), None));
        let none = PageLoads::default();
        assert_eq!((of(&none, "page_load"), of(&none, "connections")), (None, None));
    }
}
