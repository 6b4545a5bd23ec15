//! The interface that every kind of flow implements, its port to the network, and helpers for the
//! metrics that it reports.

mod port;

use underload_aqm::packet::Packet;
use underload_aqm::time::Time;
use underload_record::schema::{Direction, Distribution, Metric, Quantile, Sample};

pub use port::UDP_HEADER_BYTES;
pub(crate) use port::{Address, Port};

use crate::net::Segment;

/// Both ends of a flow. A new kind of flow implements this trait and is created in `Agent::new`.
pub(crate) trait Endpoint {
    /// Sends the first packet, or sets the first timer.
    fn start(&mut self, port: &mut Port<'_>);

    /// Handles a packet that arrived at the end of its path in `direction`.
    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>);

    /// Does what is due; does nothing if it is called early.
    fn on_timer(&mut self, port: &mut Port<'_>);

    /// Returns when `on_timer` is due; [`Time::MAX`]: never.
    fn deadline(&self) -> Time;

    /// Returns the payload bytes that arrived, each counted once; 0 for flows without a goodput.
    fn received_bytes(&self) -> u64 {
        0
    }

    /// Returns the metrics of this kind of flow for the record, once everything has arrived.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// Returns the samples of a probe up to now, with and without answers.
    fn samples(&self) -> &[Sample] {
        &[]
    }

    fn take_samples(&mut self) -> Vec<Sample> {
        Vec::new()
    }
}

/// Stores the delays of a bulk flow to compute their quantiles.
pub(crate) const BULK_QUANTILES: [Quantile; 4] =
    [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::Max];

/// Returns quantiles of delays as metrics, ms. A quantile with too few delays has no value.
pub(crate) fn delay_metrics<const N: usize>(
    name: &str,
    quantiles: [Quantile; N],
    delays: Option<Distribution>,
) -> [Metric; N] {
    quantiles.map(|quantile| Metric {
        name: format!("{name}_{}", quantile.name()),
        unit: "ms".to_owned(),
        value: delays.and_then(|delays| delays.told_ns(quantile)).map(|ns| ns as f64 / 1e6),
    })
}
