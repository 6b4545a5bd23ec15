//! Tests at servers of other projects, stored as runs like our own measurements.
//!
//! - [`Ndt7`]: M-Lab's servers and others with the same protocol; [`m_lab`] has M-Lab's rules.
//! - [`Responsiveness`]: servers that Apple's networkQuality tests, too.

pub mod m_lab;
mod ndt7;
mod responsiveness;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use underload_compat::nq::NqTrust;
use underload_measure::ForeignLoad;
use underload_probe::control::Trust;
use underload_probe::preset::LoadDirections;
use underload_record::schema::{Direction, Finding, VariantRecord};
use underload_store::RunDir;

use crate::connect::trust;
use crate::{LineError, Plan, Progress, Request, Test, store_step};

pub use ndt7::Ndt7;
pub use responsiveness::Responsiveness;

/// A server of another project.
pub trait Server {
    /// The name of the test in records.
    const TEST: &'static str;

    /// Returns the server in the form that a record's title shows.
    fn title(&self, request: &Request) -> String {
        request.shown_host()
    }

    /// Adds what is known of the server to the document of raw results.
    fn describe(&self, _request: &Request, _document: &mut Value) {}

    /// Loads one direction; `None` if that was cancelled. `moved` counts the payload of all
    /// directions, bytes.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or does not measure.
    fn measure(
        &mut self,
        request: &Request,
        direction: Direction,
        moved: &Cell<u64>,
        progress: &mut dyn Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<ServerResult>, LineError>;
}

/// The result of one direction.
pub struct ServerResult {
    pub load: ForeignLoad,
    /// The raw result, as a document.
    pub details: Value,
}

/// A test at a server of another project, of one direction or of both in turn.
pub struct ForeignSession<'a, S> {
    request: &'a Request,
    server: S,
    directions: Vec<Direction>,
    details: Vec<Value>,
    moved: &'a Cell<u64>,
    progress: &'a mut dyn Progress,
}

impl<'a, S: Server> ForeignSession<'a, S> {
    /// Returns a test of the directions that `request` names, else of downloads and then uploads.
    pub fn new(
        request: &'a Request,
        server: S,
        moved: &'a Cell<u64>,
        progress: &'a mut dyn Progress,
    ) -> Self {
        let directions = match request.knobs.directions {
            LoadDirections::Only(direction) => vec![direction],
            _ => vec![Direction::Down, Direction::Up],
        };
        Self { request, server, directions, details: Vec::new(), moved, progress }
    }
}

impl<S: Server> Test for ForeignSession<'_, S> {
    fn plan(&self) -> Plan {
        let variant = |direction: &Direction| VariantRecord {
            name: direction.name().to_owned(),
            label: S::TEST.to_owned(),
            ..VariantRecord::default()
        };
        Plan {
            name: S::TEST.to_owned(),
            server: self.server.title(self.request),
            variants: self.directions.iter().map(variant).collect(),
            notes: Vec::new(),
        }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), LineError> {
        for (index, direction) in (0..).zip(&self.directions) {
            let (server, progress) = (&mut self.server, &mut *self.progress);
            let measured = server.measure(self.request, *direction, self.moved, progress, stop)?;
            let Some(ServerResult { load, details }) = measured else { break };
            findings.push(store_step(load.step(index), directory)?);
            self.details.push(details);
        }
        Ok(())
    }

    fn details(&self) -> Option<Value> {
        let mut document = json!({ "test": S::TEST, "results": self.details });
        self.server.describe(self.request, &mut document);
        Some(document)
    }
}

/// Returns whom to trust. Public servers have certificates of authorities, so `first-use` means
/// these.
fn server_trust(request: &Request) -> Result<NqTrust, LineError> {
    Ok(match trust(&request.trust)? {
        Trust::Pinned(fingerprint) => NqTrust::Pinned(fingerprint),
        Trust::FirstUse { .. } => NqTrust::System,
    })
}
