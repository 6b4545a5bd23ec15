//! A TOML file, parsed once, with the position of every key.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize as _;
use toml::Table;
use toml::de::{DeTable, Deserializer};

use super::error::{MORE_MAY_FOLLOW, ScenarioError, ScenarioErrors};
use super::place::{Place, place_of_keys};
use crate::keys::{Fault, Faults, MOST_FAULTS};

/// Maximum size of a scenario file, bytes.
const MAX_LEN: usize = 1 << 20;
/// Maximum number of syntax errors of a file that are reported: one may cause many.
const MAX_SYNTAX_ERRORS: usize = 5;

/// A parsed file and the positions of its keys.
#[derive(Debug)]
pub struct Document {
    pub scenario: String,
    pub root: Table,
    text: Arc<str>,
    places: BTreeMap<String, Place>,
}

/// The origin of overrides from the command line.
pub(super) const COMMAND_LINE: &str = "--set";
/// The key of a fault of the option that applies `[short]`.
pub const SHORT_OPTION: &str = "--short";

impl Document {
    /// Parses the text of a scenario that was built in code. Errors have no lines.
    pub(crate) fn of_builder(text: &str, scenario: &str) -> Result<Self, ScenarioErrors> {
        let syntax = |error: toml::de::Error| {
            ScenarioErrors(vec![ScenarioError::new(scenario, "", error.message())])
        };
        text.parse().map(|root| Self::new(scenario, root)).map_err(syntax)
    }

    /// Returns the document of these tables, without a text.
    pub fn new(scenario: &str, root: Table) -> Self {
        Self { scenario: scenario.to_owned(), root, text: Arc::from(""), places: BTreeMap::new() }
    }

    /// Parses the TOML text of a file; errors call the file `scenario`.
    pub fn parse(text: &str, scenario: &str) -> Result<Self, ScenarioErrors> {
        if text.len() > MAX_LEN {
            let error = ScenarioError::new(scenario, "", "longer than 1 MiB");
            return Err(ScenarioErrors(vec![error]));
        }
        let syntax = |error: toml::de::Error| {
            let problem = error.message().trim().replace('\n', ", ");
            ScenarioError::new(scenario, "", problem).at(text, error.span())
        };
        let (spanned, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let mut errors: Vec<_> =
                errors.into_iter().take(MAX_SYNTAX_ERRORS).map(syntax).collect();
            if let Some(last) = errors.last_mut() {
                last.problem += MORE_MAY_FOLLOW;
            }
            return Err(ScenarioErrors(errors));
        }
        let places = place_of_keys(spanned.get_ref());
        let root = Table::deserialize(Deserializer::from(spanned));
        let root = root.map_err(|error| ScenarioErrors(vec![syntax(error)]))?;
        Ok(Self { scenario: scenario.to_owned(), root, text: Arc::from(text), places })
    }

    pub fn errors(&self, faults: Faults) -> ScenarioErrors {
        let is_cut = faults.is_full();
        let faults = faults.into_iter().take(MOST_FAULTS);
        let mut errors: Vec<_> = faults.map(|fault| self.locate(fault)).collect();
        errors.sort_by_key(|error| error.line);
        if let Some(last) = errors.last_mut().filter(|_| is_cut) {
            last.problem += MORE_MAY_FOLLOW;
        }
        ScenarioErrors(errors)
    }

    /// Returns the error for a fault, with the line of its key or of the nearest table around it.
    pub(crate) fn locate(&self, fault: Fault) -> ScenarioError {
        let Fault { key, problem, origin } = fault;
        if origin.as_deref() == Some(COMMAND_LINE) {
            return ScenarioError::new(&self.scenario, format!("--set {key}"), problem);
        }
        let of_origin = origin.map(|origin| format!("{origin}.{key}"));
        let nearest = of_origin.as_deref().and_then(|key| self.nearest(key));
        let nearest = nearest.or_else(|| self.nearest(&key));
        let error = ScenarioError::new(&self.scenario, &key, problem);
        let Some((place, is_exact)) = nearest else { return error };
        let is_of_key = error.problem.starts_with("unknown key") || !is_exact;
        let span = if is_of_key { &place.key } else { &place.value };
        error.at(&self.text, Some(span.clone()))
    }

    /// Returns where a key's value comes from, given what overrides the key: `line 7`, or the
    /// option. `None` if neither the file nor an option has the key.
    pub fn source_of(&self, key: &str, origin: Option<&str>) -> Option<String> {
        if let Some(COMMAND_LINE) = origin {
            return Some(COMMAND_LINE.to_owned());
        }
        let overriding = origin.and_then(|origin| self.nearest(&format!("{origin}.{key}")));
        let own = || self.nearest(key).filter(|(_, is_exact)| *is_exact);
        let (place, _) = overriding.or_else(own)?;
        let before = self.text.get(..place.key.start)?;
        Some(format!("line {}", before.matches('\n').count() + 1))
    }

    /// Returns the place of `key`, or else of the nearest table around it, and whether the place is
    /// that of `key` itself. `None` if the file has neither.
    fn nearest(&self, key: &str) -> Option<(&Place, bool)> {
        let mut end = key.len();
        loop {
            if let Some(place) = self.places.get(&key[..end]) {
                return Some((place, end == key.len()));
            }
            end = key[..end].rfind(['.', '['])?;
        }
    }
}
