//! The queue disciplines by name.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::{ConfigError, Definition, LinkFacts, Spec, Values, from_tc};
use crate::latency_bins::LatencyEdges;
use crate::qdisc::BoxedQdisc;
use crate::queue::fifo::OneQueue;
use crate::queue::store::Overflow;
use crate::queue::{
    avq, blue, bode, buffer_control, cake, codel, diffserv, docsis_lld, docsis_pie, dualpi2, fifo,
    fq_codel, fq_pie, own, pi, pie, policer, red, rem, sfb, sred,
};
use crate::registry::unknown;
use crate::rng::Rng;
use crate::service_flow::Side;

/// A discipline of the registry.
#[derive(Clone, Copy, Debug)]
pub struct QueueEntry {
    /// Name, parameters and source of the queue.
    pub definition: &'static Definition,
    configure: fn(&Values, &LinkFacts) -> Result<QueueConfig, ConfigError>,
}

impl QueueEntry {
    /// Returns the discipline that has this name, here or in other programs.
    pub fn find(name: &str) -> Option<&'static Self> {
        QUEUES.iter().find(|entry| entry.definition.is_called(name))
    }

    /// Translates a queue in the words of `tc` to a SPEC with keys; `None` if it is not one.
    pub(super) fn from_tc(spec: &Spec) -> Option<Result<Spec, ConfigError>> {
        let mut words = spec.name.split_whitespace();
        let name = words.next()?;
        let entry = Self::find(name)?;
        let is_words = spec.items.is_empty() && spec.name.contains(char::is_whitespace);
        is_words.then(|| from_tc(entry.definition, name, words))
    }
}

/// Lists each discipline once, and generates the table, the enum of configurations, and the
/// functions that build a discipline.
macro_rules! queues {
    ($($Kind:ident($Config:ty): $($definition:path => $configure:expr),+;)*) => {
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
            $(#[doc = concat!("`", stringify!($Config), "`")] $Kind($Config),)*
            /// A discipline that the caller implements.
            Own(own::OwnQueue),
        }

        impl QueueConfig {
            /// Builds an empty queue that draws its random numbers from `rng`.
            pub fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
                match self {
                    $(Self::$Kind(config) => config.build(rng),)*
                    Self::Own(config) => config.build(rng),
                }
            }
        }
    };
}

queues! {
    Fifo(fifo::FifoConfig):
        fifo::TAIL_DROP => |values, _| fifo::configure(values, Overflow::Tail),
        fifo::HEAD_DROP => |values, _| fifo::configure(values, Overflow::Head),
        buffer_control::DEFINITION => buffer_control::configure;
    Codel(codel::CodelQueue): codel::DEFINITION => |values, _| codel::configure(values);
    FqCodel(fq_codel::FqCodelConfig):
        fq_codel::DEFINITION => |values, _| fq_codel::configure(values);
    Cake(cake::CakeConfig): cake::DEFINITION => |values, _| cake::configure(values);
    Pie(pie::PieQueue): pie::DEFINITION => |values, _| pie::configure(values);
    FqPie(fq_pie::FqPieConfig): fq_pie::DEFINITION => |values, _| fq_pie::configure(values);
    DocsisPie(docsis_pie::DocsisPieQueue): docsis_pie::DEFINITION => docsis_pie::configure;
    DualPi2(dualpi2::DualPi2Config): dualpi2::DEFINITION => dualpi2::configure;
    DocsisLld(docsis_lld::DocsisLldConfig): docsis_lld::DEFINITION => docsis_lld::configure;
    Red(red::RedQueue): red::DEFINITION => red::configure;
    Blue(blue::BlueQueue): blue::DEFINITION =>
        |values, link| OneQueue::new(blue::BlueConfig::read(values, link)?, values);
    Sfb(sfb::SfbQueue): sfb::DEFINITION => |values, _| sfb::configure(values);
    Pi(pi::PiQueue): pi::DEFINITION => |values, _| pi::configure(values);
    Sred(sred::SredQueue): sred::DEFINITION =>
        |values, _| OneQueue::new(sred::SredConfig::read(values)?, values);
    Rem(rem::RemQueue): rem::DEFINITION =>
        |values, link| OneQueue::new(rem::RemConfig::read(values, link)?, values);
    Avq(avq::AvqQueue): avq::DEFINITION =>
        |values, link| OneQueue::new(avq::AvqConfig::read(values, link)?, values);
    Policer(policer::PolicerQueue): policer::DEFINITION =>
        |values, link| OneQueue::new(policer::PolicerConfig::read(values, link)?, values);
    Bode(bode::BodeQueue): bode::DEFINITION => |values, _| bode::configure(values);
    DiffServ(diffserv::DiffServConfig<QueueConfig>):
        diffserv::DEFINITION => |values, link| diffserv::configure(values, |spec| {
            QueueSetup::from_spec(spec, link).map(|setup| setup.config)
        });
}

impl diffserv::DiffServConfig<QueueConfig> {
    fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        self.build_with(rng, QueueConfig::build)
    }
}

/// A discipline ready to be built, with the SPEC to print.
#[derive(Clone, Debug)]
pub struct QueueSetup {
    /// The complete SPEC, which parses to the same discipline, with all profiles.
    pub label: Spec,
    meaning: String,
    /// The queue with the values of all parameters, defaults included.
    pub config: QueueConfig,
}

impl QueueSetup {
    /// Parses a SPEC string such as `codel:profile=linux,target=5ms`.
    pub fn parse(text: &str, link: &LinkFacts) -> Result<Self, ConfigError> {
        Self::from_spec(&Spec::parse(text)?, link)
    }

    /// Reads a parsed SPEC, for example one from a TOML table.
    pub fn from_spec(spec: &Spec, link: &LinkFacts) -> Result<Self, ConfigError> {
        let in_keys = QueueEntry::from_tc(spec).transpose()?;
        let spec = in_keys.as_ref().unwrap_or(spec);
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

    /// Returns a queue that is not in the registry; see [`own`].
    pub fn own(label: Spec, queue: own::OwnQueue) -> Self {
        Self { meaning: label.to_string(), label, config: QueueConfig::Own(queue) }
    }

    /// Returns a text that is equal for equivalent queues in front of one link.
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// Returns the bins of the queue's latency histograms, by service flow.
    pub fn latency_bins(&self) -> Vec<(Side, LatencyEdges)> {
        let QueueConfig::DocsisLld(config) = &self.config else { return Vec::new() };
        let kept = Side::ALL.into_iter().zip(config.histograms);
        kept.filter_map(|(side, edges)| Some((side, edges?))).collect()
    }

    /// Builds an empty queue that draws its random numbers from a child stream of `rng`.
    pub fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        self.config.build(&rng.child("queue"))
    }
}
