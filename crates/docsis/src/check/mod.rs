//! Rules for configuration files. A finding has the rule's number, a severity, a place and a fix.

mod buffers;
mod integrity;
mod low_latency;
mod rules;
mod structure;

use std::fmt;

use serde::Serialize;

pub use rules::Rule;

use crate::classes;
use crate::decode::Limits;
use crate::encode::Node;
use crate::mic::Secret;
use crate::qos::{Direction, ServiceFlow};
use crate::tlv::{Config, Path};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Modems or the CMTS will refuse the file or ignore the setting.
    Error,
    /// Some modems or CMTSs will refuse the file, or the setting has an unexpected effect.
    Warning,
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

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: Rule,
    pub severity: Severity,
    /// Offset of the setting in the file, bytes.
    pub offset: usize,
    pub path: Path,
    pub message: String,
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, severity, offset, path, message, fix } = self;
        write!(f, "{rule} {severity}: byte {offset}, {path}: {message}\n     fix: {fix}")
    }
}

/// Checks the bytes of a file. Returns the findings by severity, then by place. Without a secret
/// the CMTS MIC is not checked, and a note reports that.
pub fn check(bytes: &[u8], secret: Option<&Secret>) -> Vec<Finding> {
    check_with_classes(bytes, secret, &Config::default())
}

/// Checks as [`check`] does, but the rules from D301 on see each service flow with the settings of
/// the service class that it names. The flows of `classes` are the classes; without any, no name is
/// resolved. A finding about a setting that a class supplies has the place of the flow.
pub fn check_with_classes(bytes: &[u8], secret: Option<&Secret>, classes: &Config) -> Vec<Finding> {
    let mut findings = match Config::decode_lenient(bytes, &Limits::default()) {
        Err(error) => vec![structure::unreadable(&error)],
        Ok((config, defects)) => {
            let mut checker = Checker::new(&config, bytes.len());
            structure::check(&mut checker, &defects);
            integrity::check(&mut checker, secret);
            if *classes != Config::default() {
                checker.names(classes);
            }
            let resolved = classes::resolve(&config, classes);
            let mut effective = Checker::new(&resolved, bytes.len());
            buffers::check(&mut effective);
            low_latency::check(&mut effective);
            for mut finding in effective.findings {
                let encloses = |node: &&Node<'_>| finding.path.starts_with(&node.path);
                let place = checker.nodes.iter().rfind(encloses).map(|node| node.offset);
                finding.offset = place.unwrap_or(finding.offset);
                checker.findings.push(finding);
            }
            checker.findings
        }
    };
    findings.sort_by_key(|finding| (finding.severity, finding.offset, finding.rule));
    findings
}

struct Checker<'a> {
    config: &'a Config,
    /// Length of the file.
    bytes: usize,
    nodes: Vec<Node<'a>>,
    findings: Vec<Finding>,
}

#[derive(Clone)]
struct FlowNode<'a> {
    node: Node<'a>,
    flow: ServiceFlow,
}

impl<'a> Checker<'a> {
    fn new(config: &'a Config, bytes: usize) -> Self {
        Self { config, bytes, nodes: config.walk(), findings: Vec::new() }
    }

    /// Reports names of service classes that `classes` lacks.
    fn names(&mut self, classes: &Config) {
        for node in self.nodes.clone() {
            let Some(name) = classes::name(node.tlv).filter(|_| node.path.depth() == 1) else {
                continue;
            };
            if classes::find(classes, node.tlv.code, name).is_none() {
                let name = String::from_utf8_lossy(name);
                let message = format!("no service class `{name}`, so its settings are unknown");
                self.report(Rule::D411, &node, message, "add the class, or correct the name");
            }
        }
    }

    fn report(&mut self, rule: Rule, node: &Node<'_>, message: impl Into<String>, fix: &str) {
        self.findings.push(finding(rule, node.offset, node.path.clone(), message.into(), fix));
    }

    /// Reports a finding about the whole file, placed at its end.
    fn report_file(&mut self, rule: Rule, message: impl Into<String>, fix: &str) {
        self.findings.push(finding(rule, self.bytes, Path::default(), message.into(), fix));
    }

    /// The settings at a path of types from the top level down.
    fn all(&self, codes: &[u8]) -> Vec<Node<'a>> {
        self.nodes.iter().filter(|node| node.path.matches(0, codes)).cloned().collect()
    }

    fn first(&self, codes: &[u8]) -> Option<Node<'a>> {
        self.nodes.iter().find(|node| node.path.matches(0, codes)).cloned()
    }

    /// Returns the first setting in `outer` with these TLV types.
    fn inside(&self, outer: &Node<'_>, codes: &[u8]) -> Option<Node<'a>> {
        let after = self.nodes.partition_point(|node| node.offset <= outer.offset);
        let depth = outer.path.depth();
        let inner = self.nodes[after..].iter().take_while(|node| node.path.depth() > depth);
        inner.into_iter().find(|node| node.path.matches(depth, codes)).cloned()
    }

    fn flows(&self) -> Vec<FlowNode<'a>> {
        Direction::BOTH
            .into_iter()
            .flat_map(|direction| self.all(&[direction.flow_code()]))
            .filter_map(|node| Some(FlowNode { flow: ServiceFlow::from_tlv(node.tlv)?, node }))
            .collect()
    }
}

fn finding(rule: Rule, offset: usize, path: Path, message: String, fix: &str) -> Finding {
    Finding { rule, severity: rule.severity(), offset, path, message, fix: fix.into() }
}
