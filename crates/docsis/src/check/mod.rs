//! Rules that a file should keep, each finding with its number, severity, place and fix.

mod buffers;
mod integrity;
mod low_latency;
mod rules;
mod structure;

use std::fmt;

use serde::Serialize;

pub use rules::Rule;

use crate::decode::Limits;
use crate::encode::Node;
use crate::mic::Secret;
use crate::qos::{Direction, ServiceFlow};
use crate::tlv::{Config, Path};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A modem or CMTS will refuse the file or ignore the setting.
    Error,
    /// Some will, or the setting does not do what it seems to.
    Warning,
    /// Worth knowing.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// A rule that a file does not keep, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule, which tells its number.
    pub rule: Rule,
    /// Severity of the finding.
    pub severity: Severity,
    /// Offset in the file of the setting concerned.
    pub offset: usize,
    /// The setting concerned.
    pub path: Path,
    /// The fault, in words.
    pub message: String,
    /// The change that mends it.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, severity, offset, path, message, fix } = self;
        write!(f, "{rule} {severity}: byte {offset}, {path}: {message}\n     fix: {fix}")
    }
}

/// Checks the bytes of a file. Without a secret the CMTS's checks are left out, which is noted.
///
/// Findings are ordered by severity, then by place.
pub fn check(bytes: &[u8], secret: Option<&Secret>) -> Vec<Finding> {
    let mut findings = match Config::decode_lenient(bytes, &Limits::default()) {
        Err(error) => vec![structure::unreadable(&error)],
        Ok((config, defects)) => {
            let mut checker = Checker::new(&config, bytes.len());
            structure::check(&mut checker, &defects);
            integrity::check(&mut checker, secret);
            buffers::check(&mut checker);
            low_latency::check(&mut checker);
            checker.findings
        }
    };
    findings.sort_by_key(|finding| (finding.severity, finding.offset, finding.rule));
    findings
}

/// A file, its settings with their places, and what has been found so far.
struct Checker<'a> {
    config: &'a Config,
    bytes: usize,
    nodes: Vec<Node<'a>>,
    findings: Vec<Finding>,
}

/// A service flow and where it stands.
#[derive(Clone)]
struct FlowNode<'a> {
    node: Node<'a>,
    flow: ServiceFlow,
}

impl<'a> Checker<'a> {
    fn new(config: &'a Config, bytes: usize) -> Self {
        Self { config, bytes, nodes: config.walk(), findings: Vec::new() }
    }

    fn report(&mut self, rule: Rule, node: &Node<'_>, message: String, fix: &str) {
        self.findings.push(finding(rule, node.offset, node.path.clone(), message, fix));
    }

    /// A finding about the file as a whole, placed at its end.
    fn report_file(&mut self, rule: Rule, message: String, fix: &str) {
        self.findings.push(finding(rule, self.bytes, Path::default(), message, fix));
    }

    /// The settings at a path of types from the top level down.
    fn at(&self, codes: &[u8]) -> Vec<Node<'a>> {
        self.nodes.iter().filter(|node| node.path.is(0, codes)).cloned().collect()
    }

    /// The first setting at a path of types inside another.
    fn inside(&self, outer: &Node<'_>, codes: &[u8]) -> Option<Node<'a>> {
        let after = self.nodes.partition_point(|node| node.offset <= outer.offset);
        let depth = outer.path.depth();
        let inner = self.nodes[after..].iter().take_while(|node| node.path.depth() > depth);
        inner.into_iter().find(|node| node.path.is(depth, codes)).cloned()
    }

    fn flows(&self) -> Vec<FlowNode<'a>> {
        let nodes = Direction::BOTH.into_iter().flat_map(|direction| self.at(&[direction.code()]));
        nodes
            .filter_map(|node| Some(FlowNode { flow: ServiceFlow::from_tlv(node.tlv)?, node }))
            .collect()
    }
}

fn finding(rule: Rule, offset: usize, path: Path, message: String, fix: &str) -> Finding {
    Finding { rule, severity: rule.severity(), offset, path, message, fix: fix.into() }
}
