//! The queue disciplines by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::{ConfigError, Definition, LinkFacts, Spec, Values};
use crate::latency_bins::LatencyEdges;
use crate::qdisc::Qdisc;
use crate::queue::store::{NoAqm, Overflow, Single};
use crate::queue::{
    avq, blue, bode, buffer_control, cake, codel, diffserv, docsis_lld, docsis_pie, dualpi2, fifo,
    fq_codel, fq_pie, own, pie, red, rem, sfb,
};
use crate::registry::unknown;
use crate::rng::Rng;
use crate::service_flow::Side;

/// A discipline as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct QueueEntry {
    /// Parameters and source of the discipline.
    pub definition: &'static Definition,
    /// Makes its configuration out of values.
    configure: fn(&Values, &LinkFacts) -> Result<QueueConfig, ConfigError>,
}

impl QueueEntry {
    /// The discipline of that name, however other programs write it.
    pub fn find(name: &str) -> Option<&'static Self> {
        QUEUES.iter().find(|entry| entry.definition.is_called(name))
    }
}

/// Every discipline, in the order in which `underload queues` lists them.
pub const QUEUES: &[QueueEntry] = &[
    QueueEntry {
        definition: &fifo::TAIL_DROP,
        configure: |values, _| fifo::configure(values, Overflow::Tail).map(QueueConfig::Fifo),
    },
    QueueEntry {
        definition: &fifo::HEAD_DROP,
        configure: |values, _| fifo::configure(values, Overflow::Head).map(QueueConfig::Fifo),
    },
    QueueEntry {
        definition: &buffer_control::DEFINITION,
        configure: |values, link| buffer_control::configure(values, link).map(QueueConfig::Fifo),
    },
    QueueEntry {
        definition: &codel::DEFINITION,
        configure: |values, _| codel::configure(values).map(QueueConfig::Codel),
    },
    QueueEntry {
        definition: &fq_codel::DEFINITION,
        configure: |values, _| fq_codel::configure(values).map(QueueConfig::FqCodel),
    },
    QueueEntry {
        definition: &cake::DEFINITION,
        configure: |values, _| Ok(QueueConfig::Cake(cake::configure(values))),
    },
    QueueEntry {
        definition: &pie::DEFINITION,
        configure: |values, _| pie::configure(values).map(QueueConfig::Pie),
    },
    QueueEntry {
        definition: &fq_pie::DEFINITION,
        configure: |values, _| fq_pie::configure(values).map(QueueConfig::FqPie),
    },
    QueueEntry {
        definition: &docsis_pie::DEFINITION,
        configure: |values, link| docsis_pie::configure(values, link).map(QueueConfig::DocsisPie),
    },
    QueueEntry {
        definition: &dualpi2::DEFINITION,
        configure: |values, link| dualpi2::configure(values, link).map(QueueConfig::DualPi2),
    },
    QueueEntry {
        definition: &docsis_lld::DEFINITION,
        configure: |values, link| docsis_lld::configure(values, link).map(QueueConfig::DocsisLld),
    },
    QueueEntry {
        definition: &red::DEFINITION,
        configure: |values, link| red::configure(values, link).map(QueueConfig::Red),
    },
    QueueEntry {
        definition: &blue::DEFINITION,
        configure: |values, link| blue::configure(values, link).map(QueueConfig::Blue),
    },
    QueueEntry {
        definition: &sfb::DEFINITION,
        configure: |values, _| sfb::configure(values).map(QueueConfig::Sfb),
    },
    QueueEntry {
        definition: &rem::DEFINITION,
        configure: |values, link| rem::configure(values, link).map(QueueConfig::Rem),
    },
    QueueEntry {
        definition: &avq::DEFINITION,
        configure: |values, link| avq::configure(values, link).map(QueueConfig::Avq),
    },
    QueueEntry {
        definition: &bode::DEFINITION,
        configure: |values, _| bode::configure(values).map(QueueConfig::Bode),
    },
    QueueEntry {
        definition: &diffserv::DEFINITION,
        configure: |values, link| {
            let inner = |spec: &Spec| QueueSetup::from_spec(spec, link).map(|setup| setup.config);
            diffserv::configure(values, inner).map(QueueConfig::DiffServ)
        },
    },
];

/// The configuration of any discipline: everything that is needed to build it.
#[derive(Clone, Debug)]
pub enum QueueConfig {
    /// Tail-drop or head-drop.
    Fifo(fifo::FifoConfig),
    /// CoDel.
    Codel(codel::CodelQueue),
    /// FQ-CoDel.
    FqCodel(fq_codel::FqCodelConfig),
    /// CAKE.
    Cake(cake::CakeConfig),
    /// BoDe.
    Bode(bode::BodeQueue),
    /// DiffServ.
    DiffServ(diffserv::DiffServConfig<QueueConfig>),
    /// PIE.
    Pie(pie::PieQueue),
    /// FQ-PIE.
    FqPie(fq_pie::FqPieConfig),
    /// DOCSIS-PIE.
    DocsisPie(docsis_pie::DocsisPieQueue),
    /// DualPI2.
    DualPi2(dualpi2::DualPi2Config),
    /// Low Latency DOCSIS.
    DocsisLld(docsis_lld::DocsisLldConfig),
    /// RED.
    Red(red::RedQueue),
    /// BLUE.
    Blue(blue::BlueQueue),
    /// REM.
    Rem(rem::RemQueue),
    /// AVQ.
    Avq(avq::AvqQueue),
    /// Stochastic Fair BLUE.
    Sfb(sfb::SfbQueue),
    /// One that the registry does not know.
    Own(own::OwnQueue),
}

/// A discipline ready to be built, with the SPEC to print.
#[derive(Clone, Debug)]
pub struct QueueSetup {
    /// The SPEC in full: the profile always said, of queues inside too. Parsing it gives the same
    /// discipline.
    pub label: Spec,
    meaning: String,
    /// The configuration to build the queue from.
    pub config: QueueConfig,
}

impl QueueSetup {
    /// Understands a SPEC string such as `codel:profile=linux,target=5ms`.
    ///
    /// # Errors
    /// Whatever is wrong with the name, a key or a value, and what would be accepted.
    pub fn parse(text: &str, link: &LinkFacts) -> Result<Self, ConfigError> {
        Self::from_spec(&Spec::parse(text)?, link)
    }

    /// Understands a SPEC, for example one made from a TOML table.
    ///
    /// # Errors
    /// As [`QueueSetup::parse`].
    pub fn from_spec(spec: &Spec, link: &LinkFacts) -> Result<Self, ConfigError> {
        let entry = QueueEntry::find(&spec.name);
        let names = QUEUES.iter().map(|entry| entry.definition.name);
        let entry = entry.ok_or_else(|| unknown("queue", spec, names))?;
        let values = entry.definition.resolve(spec)?;
        let config = (entry.configure)(&values, link)?;
        let inside = |mut spec: Spec, say: fn(&Self) -> String| {
            for item in spec.items.iter_mut().filter(|item| item.value.starts_with('[')) {
                let inner = Self::from_spec(&Spec::parse_nested(&item.value)?, link)?;
                item.value = format!("[{}]", say(&inner));
            }
            Ok::<_, ConfigError>(spec)
        };
        let label = inside(values.label(), |inner| inner.label.to_string())?;
        let meaning = inside(values.meaning(), |inner| inner.meaning.clone())?.to_string();
        Ok(Self { label, meaning, config })
    }

    /// A queue that the registry does not know, known by `label`; see [`own`].
    pub fn own(label: Spec, queue: own::OwnQueue) -> Self {
        Self { meaning: label.to_string(), label, config: QueueConfig::Own(queue) }
    }

    /// What it says, whichever way it was written: before one link, queues of one meaning are one
    /// queue.
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// Bins of the latency histograms that the queue keeps, by service flow.
    pub fn latency_bins(&self) -> Vec<(Side, LatencyEdges)> {
        let QueueConfig::DocsisLld(config) = &self.config else { return Vec::new() };
        let kept = Side::ALL.into_iter().zip(config.histograms);
        kept.filter_map(|(side, edges)| Some((side, edges?))).collect()
    }

    /// Builds an empty queue that draws its random numbers from a child stream of `rng`.
    pub fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        self.config.build(&rng.child("queue"))
    }
}

impl QueueConfig {
    /// Builds an empty queue that draws its random numbers from `rng`.
    pub fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        match self {
            Self::Fifo(config) => Box::new(Single::new(NoAqm, config.limit, config.overflow)),
            Self::Codel(config) => config.build(),
            Self::FqCodel(config) => config.build(),
            Self::Cake(config) => config.build(rng),
            Self::Bode(config) => config.build(),
            Self::DiffServ(config) => config.build(rng, Self::build),
            Self::Pie(config) => config.build(rng),
            Self::FqPie(config) => config.build(rng),
            Self::DocsisPie(config) => config.build(rng),
            Self::DualPi2(config) => config.build(rng),
            Self::DocsisLld(config) => config.build(rng),
            Self::Red(config) => config.build(rng),
            Self::Blue(config) => config.build(rng),
            Self::Rem(config) => config.build(rng),
            Self::Avq(config) => config.build(),
            Self::Sfb(config) => config.build(rng),
            Self::Own(config) => config.build(rng),
        }
    }
}
