//! Why a line is not measured.

use std::io;
use std::path::PathBuf;

use underload_probe::control::{ServiceError, in_full};
use underload_probe::load::LoadError;
use underload_probe::measure::MeasureError;
use underload_probe::path::MarksError;
use underload_probe::preset::Preset;
use underload_probe::route::RouteError;
use underload_record::schema::{Direction, Marking};
use underload_report::{LoadError as ReadError, PageError};
use underload_store::StoreError;

use crate::target::TargetError;

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error(transparent)]
    Setting(#[from] BadSetting),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(
        "the folder of known servers: neither XDG_DATA_HOME nor HOME is set; give the server's fingerprint instead"
    )]
    NoDataFolder,
    #[error("{}: the first line is empty", path.display())]
    NoToken { path: PathBuf },
    /// The file with the token cannot be used.
    #[error(transparent)]
    TokenFile(ServiceError),
    #[error("{server}")]
    Connect { server: String, source: Box<ServiceError> },
    #[error("{}; {hint}", in_full(error.as_ref()))]
    NoAnswer { error: Box<ServiceError>, hint: &'static str },
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("finding the hops on the path")]
    Hops(#[from] RouteError),
    #[error(
        "no router of a private network answered: this machine is connected to the provider itself, or \
         its router is silent"
    )]
    NoRouter,
    #[error("sending echoes to the hops")]
    Echoes(#[source] io::Error),
    #[error("opening a UDP socket")]
    Socket(#[source] io::Error),
    #[error(transparent)]
    Marks(#[from] MarksError),
    #[error("loading {direction}")]
    Loading { direction: Direction, source: MeasureError },
    #[error("step {step}{}", with_reason(ended.as_deref()))]
    Step {
        step: String,
        /// The server's reason, if it ended the session.
        ended: Option<String>,
        source: MeasureError,
    },
    #[error("the server ended the session: {reason}")]
    Ended { reason: String },
    /// The test of another project's server failed.
    #[error(transparent)]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
    #[error("a server with a self-signed certificate is trusted by its fingerprint alone")]
    SelfSigned(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("writing the report")]
    Report(#[from] PageError),
    #[error("interrupted before anything was measured")]
    Interrupted,
    #[error("interrupted; the finished steps are in {}", directory.display())]
    Unfinished { directory: PathBuf },
}

impl LineError {
    /// Whether the request is at fault, not the line, the server or this machine.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Setting(_) | Self::Target(_) | Self::NoToken { .. } | Self::TokenFile(_) => true,
            Self::Store(error) => error.is_occupied(),
            _ => false,
        }
    }

    /// Whether a server has no session of the length that was requested.
    pub(crate) fn is_turned_away(&self) -> bool {
        let Self::Connect { source, .. } = self else { return false };
        matches!(**source, ServiceError::Busy { .. } | ServiceError::Refused { .. })
    }
}

fn with_reason(ended: Option<&str>) -> String {
    ended.map_or(String::new(), |reason| format!(": the server ended the session: {reason}"))
}

underload_aqm::named! {
    /// A field of a [`Request`](crate::Request), which callers name in their own way.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Setting {
        Duration = "duration",
        Idle = "idle",
        Interval = "interval",
        Classes = "class",
        Interface = "dev",
        Flows = "flows",
        CongestionControl = "congestion-control",
        Trust = "trust",
        Peer = "peer",
        Locate = "locate",
    }
}

/// A setting with which no server could measure.
#[derive(Debug, thiserror::Error)]
#[error("{}", setting.name())]
pub struct BadSetting {
    pub setting: Setting,
    pub source: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("from 100ms to 1h is accepted")]
    Length,
    #[error("from 100us to 1s is accepted")]
    Interval,
    #[error("at most {most} classes at once")]
    TooManyClasses { most: usize },
    #[error("{}/{} is given twice", class.dscp, class.ecn.name())]
    ClassTwice { class: Marking },
    #[error("this machine has no network interface {name:?}; `ip link` lists them")]
    NoInterface { name: String },
    #[error("the numbers of flows are what {} compares", preset.name())]
    FixedFlows { preset: Preset },
    #[error("step {step} would have {flows} in all, and a session has {most} at most")]
    TooManyFlows { step: String, flows: usize, most: usize },
    #[error(transparent)]
    CongestionControl(#[from] LoadError),
    #[error(transparent)]
    Trust(#[from] ServiceError),
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The address of another project's server.
    #[error(transparent)]
    Server(Box<dyn std::error::Error + Send + Sync>),
}
