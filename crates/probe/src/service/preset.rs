//! Measurements with a name.

use std::time::Duration;

use underload_report::schema::{Direction, Ecn, Marking};

use super::ledger::Ask;
use crate::endpoint::{ProbeClass, ProberConfig};
use crate::load::{LoadFlow, Token, Transport};
use crate::measure::{MeasurementConfig, Ramp, RequestResponse};

/// A named set of measurements, one per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Half a minute: 2 s idle and 5 s of load each way, four flows, probes every 10 ms.
    Quick,
    /// Latency under load as in the Comcast study: one flow, 11 s down and 7 s up after the ramp, a
    /// request-response probe beside the open-loop one. The study does not say how many flows.
    NpmsLul,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::Quick, Self::NpmsLul];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::NpmsLul => "npms-lul",
        }
    }

    /// The preset of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Its measurements in order, with the direction of their load.
    pub fn measurements(
        self,
        congestion_control: &str,
        token: Token,
    ) -> Vec<(Direction, MeasurementConfig)> {
        let (flows, down_s, up_s) = match self {
            Self::Quick => (4, 5, 5),
            Self::NpmsLul => (1, 11, 7),
        };
        let class = ProbeClass { name: "probe".to_owned(), marking: Marking::default() };
        let nqb = Marking { dscp: 45, ecn: Ecn::NotEct };
        let mut classes = vec![class];
        if self == Self::Quick {
            classes.push(ProbeClass { name: "probe-nqb".to_owned(), marking: nqb });
        }
        let request_response = (self == Self::NpmsLul).then(|| RequestResponse {
            name: "request-response".to_owned(),
            marking: Marking::default(),
            payload_octets: 64,
        });
        let directions = [(Direction::Down, down_s), (Direction::Up, up_s)];
        let measurement = |trial: usize, direction: Direction, load_s: u64| MeasurementConfig {
            trial: trial as u32,
            ramp: Ramp::Detected { at_most: Duration::from_secs(5) },
            load: Duration::from_secs(load_s),
            probe: ProberConfig { classes: classes.clone(), ..ProberConfig::default() },
            request_response: request_response.clone(),
            loads: (0..flows).map(|i| bulk(i, direction, congestion_control)).collect(),
            token,
            ..MeasurementConfig::default()
        };
        let numbered = directions.into_iter().enumerate();
        numbered
            .map(|(trial, (direction, s))| (direction, measurement(trial, direction, s)))
            .collect()
    }

    /// What to ask a server for, if the line carries no more than these rates.
    pub fn ask(self, up_bit_per_s: u64, down_bit_per_s: u64) -> Ask {
        let longest = |config: &MeasurementConfig| {
            let ramp = match config.ramp {
                Ramp::Fixed(length) | Ramp::Detected { at_most: length } => length,
            };
            config.idle + ramp + config.load + config.loss_timeout + config.drain
        };
        let measurements = self.measurements("cubic", Token([0; 16]));
        let total: Duration = measurements.iter().map(|(_, config)| longest(config)).sum();
        // A flow's own lease may end 5 s after its measurement should have.
        Ask { up_bit_per_s, down_bit_per_s, duration: total + Duration::from_secs(10) }
    }
}

fn bulk(index: usize, direction: Direction, congestion_control: &str) -> LoadFlow {
    LoadFlow {
        name: format!("bulk-{index}"),
        direction,
        transport: Transport::Tcp { congestion_control: congestion_control.to_owned() },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_study_s_shape_is_a_preset() {
        let measurements = Preset::NpmsLul.measurements("cubic", Token([1; 16]));
        let shape: Vec<_> =
            measurements.iter().map(|(d, config)| (*d, config.load.as_secs())).collect();
        assert_eq!(shape, [(Direction::Down, 11), (Direction::Up, 7)]);
        assert!(measurements.iter().all(|(_, config)| config.request_response.is_some()));
        assert_eq!(Preset::from_name("npms-lul"), Some(Preset::NpmsLul));
        assert_eq!(Preset::from_name("fast"), None);
        assert_eq!(Preset::NpmsLul.ask(1, 2).duration.as_secs(), 18 + 2 * 9 + 1 + 10);
    }
}
