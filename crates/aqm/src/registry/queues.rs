//! The queue disciplines by name.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::{ConfigError, Definition, LinkFacts, Spec, Values};
use crate::latency_bins::LatencyEdges;
use crate::qdisc::Qdisc;
use crate::queue::store::Overflow;
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

/// Lists the disciplines, each once: the table of them, their configurations, and how to build one.
macro_rules! queues {
    ($($(#[$doc:meta])* $Kind:ident($Config:ty): $($definition:path => $configure:expr),+;)*) => {
        /// Every discipline, in the order in which `underload queues` lists them.
        pub const QUEUES: &[QueueEntry] = &[$($(QueueEntry {
            definition: &$definition,
            configure: |values, link| {
                let configure: fn(&Values, &LinkFacts) -> Result<$Config, ConfigError> = $configure;
                configure(values, link).map(QueueConfig::$Kind)
            },
        },)+)*];

        /// The configuration of any discipline: everything that is needed to build it.
        #[derive(Clone, Debug)]
        pub enum QueueConfig {
            $($(#[$doc])* $Kind($Config),)*
            /// A discipline that the caller implements and the registry does not list.
            Own(own::OwnQueue),
        }

        impl QueueConfig {
            /// Builds an empty queue that draws its random numbers from `rng`.
            pub fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
                match self {
                    $(Self::$Kind(config) => config.build(rng),)*
                    Self::Own(config) => config.build(rng),
                }
            }
        }
    };
}

queues! {
    /// Tail-drop or head-drop.
    Fifo(fifo::FifoConfig):
        fifo::TAIL_DROP => |values, _| fifo::configure(values, Overflow::Tail),
        fifo::HEAD_DROP => |values, _| fifo::configure(values, Overflow::Head),
        buffer_control::DEFINITION => buffer_control::configure;
    /// CoDel.
    Codel(codel::CodelQueue): codel::DEFINITION => |values, _| codel::configure(values);
    /// FQ-CoDel.
    FqCodel(fq_codel::FqCodelConfig):
        fq_codel::DEFINITION => |values, _| fq_codel::configure(values);
    /// CAKE.
    Cake(cake::CakeConfig): cake::DEFINITION => |values, _| Ok(cake::configure(values));
    /// PIE.
    Pie(pie::PieQueue): pie::DEFINITION => |values, _| pie::configure(values);
    /// FQ-PIE.
    FqPie(fq_pie::FqPieConfig): fq_pie::DEFINITION => |values, _| fq_pie::configure(values);
    /// DOCSIS-PIE.
    DocsisPie(docsis_pie::DocsisPieQueue): docsis_pie::DEFINITION => docsis_pie::configure;
    /// DualPI2.
    DualPi2(dualpi2::DualPi2Config): dualpi2::DEFINITION => dualpi2::configure;
    /// Low Latency DOCSIS.
    DocsisLld(docsis_lld::DocsisLldConfig): docsis_lld::DEFINITION => docsis_lld::configure;
    /// RED.
    Red(red::RedQueue): red::DEFINITION => red::configure;
    /// BLUE.
    Blue(blue::BlueQueue): blue::DEFINITION => blue::configure;
    /// Stochastic Fair BLUE.
    Sfb(sfb::SfbQueue): sfb::DEFINITION => |values, _| sfb::configure(values);
    /// REM.
    Rem(rem::RemQueue): rem::DEFINITION => rem::configure;
    /// AVQ.
    Avq(avq::AvqQueue): avq::DEFINITION => avq::configure;
    /// BoDe.
    Bode(bode::BodeQueue): bode::DEFINITION => |values, _| bode::configure(values);
    /// DiffServ.
    DiffServ(diffserv::DiffServConfig<QueueConfig>):
        diffserv::DEFINITION => |values, link| diffserv::configure(values, |spec| {
            QueueSetup::from_spec(spec, link).map(|setup| setup.config)
        });
}

impl diffserv::DiffServConfig<QueueConfig> {
    fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        self.build_with(rng, QueueConfig::build)
    }
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
        let inner = |spec: &Spec| Self::from_spec(spec, link);
        let label = values.label(&|spec| Ok(inner(spec)?.label.to_string()))?;
        let meaning = values.meaning(&|spec| Ok(inner(spec)?.meaning))?.to_string();
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
