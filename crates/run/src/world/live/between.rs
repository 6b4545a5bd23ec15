//! The queues and links between the client and the server of a trial.

use std::sync::Arc;

use underload_emu::gateway::{Gateway, GatewayConfig};
use underload_emu::machine::{Clock, Ends, Lab};
use underload_emu::qdisc::{Routers, Sampler};
use underload_record::schema::{BottleneckSummary, Distribution, Phase, Series};

use super::linux;
use super::plan::{self, Clockwork, Queues};
use crate::error::{Doing as _, RunError};
use crate::trial::Trial;

/// Carries the packets of a trial, and counts them.
pub(super) enum Between {
    Ours(Box<(Lab, Gateway)>),
    Linux(Box<(Routers, Sampler)>),
}

/// The records of a trial's queues and links.
pub(super) struct Report {
    /// How late the gateway was with packets; `None` for Linux's queues, which need none of ours.
    pub lateness: Option<Distribution>,
    pub bottlenecks: Vec<BottleneckSummary>,
    pub series: Vec<Series>,
}

impl Between {
    pub(super) fn start(
        trial: &Trial<'_>,
        time: Clockwork,
        queues: &Queues,
        clock: Clock,
    ) -> Result<Self, RunError> {
        let (lab, path) = (plan::lab(trial.variant), &trial.variant.path);
        match queues {
            Queues::Ours => {
                let lab = Lab::create(&lab).doing("setting up the namespaces")?;
                let config: Option<GatewayConfig> = plan::gateway(path, trial.seed, time);
                let config = config.ok_or("a custom queue in the live world").of_world()?;
                let gateway = Gateway::start(config, lab.devices(), clock).of_world()?;
                Ok(Self::Ours(Box::new((lab, gateway))))
            }
            Queues::Linux { tc } => {
                let [up, down] = linux::hops(path).map_err(RunError::Refused)?;
                let routers =
                    Routers::create(&lab, &up, &down, tc).doing("setting up Linux's queues")?;
                let names = linux::names(path);
                let sampler = Sampler::start(&routers, [&up, &down], names, clock).of_world()?;
                Ok(Self::Linux(Box::new((routers, sampler))))
            }
        }
    }

    pub(super) fn ends(&self) -> Arc<Ends> {
        match self {
            Self::Ours(ours) => ours.0.ends(),
            Self::Linux(linux) => linux.0.ends(),
        }
    }

    /// Begins a phase of the trial now.
    pub(super) fn begin(&self, phase: Phase) {
        match self {
            Self::Ours(ours) => ours.1.begin(phase),
            Self::Linux(linux) => linux.1.begin(phase),
        }
    }

    /// Ends trial number `trial`.
    pub(super) fn stop(self, trial: u32) -> Result<Report, RunError> {
        match self {
            Self::Ours(ours) => {
                // The devices end after the gateway.
                let (_lab, gateway) = *ours;
                let report = gateway.stop().of_world()?;
                Ok(Report {
                    lateness: report.lateness(),
                    bottlenecks: report.bottlenecks(),
                    series: report.series(trial),
                })
            }
            Self::Linux(linux) => {
                let (_routers, sampler) = *linux;
                let report = sampler.stop().of_world()?;
                let (bottlenecks, series) = (report.bottlenecks(), report.series(trial));
                Ok(Report { lateness: None, bottlenecks, series })
            }
        }
    }
}
