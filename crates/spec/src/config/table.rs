//! Parameter tables, and SPECs whose keys and values a table has checked.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::number::{join, shorten};
use crate::config::{
    ConfigError, Fallback, Key, Kind, LinkFacts, Param, Quantity, Spec, Value, closest, rules,
};
use crate::rate::Rate;

/// A published variant of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The value of `profile=` in a SPEC.
    pub name: &'static str,
    /// The publication or program that the profile follows.
    pub doc: &'static str,
}

impl Profile {
    /// The name of the default profile of a queue that works without a preset. SPECs leave it out.
    pub const NONE: &'static str = "none";
}

/// A discipline or link: its parameters with their meaning, and its source.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name in a SPEC.
    pub name: &'static str,
    /// Names in other programs, in lower case with hyphens.
    pub aliases: &'static [&'static str],
    /// What the queue or link does, in one line.
    pub summary: &'static str,
    /// RFC, paper or program that defines it.
    pub source: &'static str,
    /// The default is first. Empty if there is only one.
    pub profiles: &'static [Profile],
    /// Parameters of this discipline or link alone.
    pub params: &'static [Param],
    /// Parameters that several disciplines or links share.
    pub shared: &'static [Param],
    /// The parameter that an item without a key sets.
    pub positional: Option<&'static str>,
    /// Accepts keys that are not in the table, such as a schedule's times.
    pub free_key: Option<fn(&str) -> bool>,
    /// The key that chooses a profile: `profile`, or a word for what the profiles are, such as
    /// `generation`.
    pub profile_key: &'static str,
    /// Options of `tc` that have other names here, each with the key.
    pub tc_keys: &'static [(&'static str, &'static str)],
    /// The unit in which `tc` counts the gains `alpha` and `beta`; `None` without such gains.
    pub tc_gains: Option<&'static str>,
}

/// A SPEC whose values are parsed, in range, and completed by defaults.
#[derive(Clone, Debug)]
pub struct Values {
    definition: &'static Definition,
    profile: Option<&'static str>,
    given: Vec<(&'static str, Value)>,
    free: Vec<(String, String)>,
}

/// Returns the text of a queue inside another's SPEC.
pub type InnerText<'a> = dyn Fn(&Spec) -> Result<String, ConfigError> + 'a;

impl Definition {
    /// A definition without a name, which supplies the fields that other definitions leave out.
    pub const BARE: Self = Self {
        name: "",
        aliases: &[],
        summary: "",
        source: "",
        profiles: &[],
        params: &[],
        shared: &[],
        positional: None,
        free_key: None,
        profile_key: "profile",
        tc_keys: &[],
        tc_gains: None,
    };

    /// Whether a SPEC may use this name: the definition's own, or one of other programs.
    /// `fq_codel`, `FQ-CoDel` and ns-3's `FqCoDelQueueDisc` are `fq-codel`.
    pub fn is_called(&self, name: &str) -> bool {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let plain = plain.strip_suffix("queuedisc").unwrap_or(&plain);
        self.name == name || self.name == plain || self.aliases.contains(&plain)
    }

    /// Returns all parameters, own ones first; they replace shared ones with the same key.
    pub fn all_params(&self) -> impl Iterator<Item = &'static Param> + use<> {
        let own = self.params;
        let is_shared = |shared: &&Param| own.iter().all(|param| param.key != shared.key);
        own.iter().chain(self.shared.iter().filter(is_shared))
    }

    /// Parses the values of `spec`, checks their ranges and fills in defaults.
    pub fn resolve(&'static self, spec: &Spec) -> Result<Values, ConfigError> {
        let mut values =
            Values { definition: self, profile: None, given: Vec::new(), free: Vec::new() };
        values.profile = self.profiles.first().map(|profile| profile.name);
        let mut profile_given = false;
        for item in &spec.items {
            let key = item.key.as_deref().or(self.positional);
            let key = key.ok_or_else(|| self.keyless(&item.value))?;
            if key == self.profile_key && !self.profiles.is_empty() {
                if profile_given {
                    return Err(ConfigError::repeated(self.name, key));
                }
                profile_given = true;
                values.profile = Some(self.profile(&item.value)?);
            } else if let Some(param) = self.all_params().find(|param| param.key == key) {
                if values.given.iter().any(|(known, _)| *known == key) {
                    return Err(ConfigError::repeated(self.name, key));
                }
                values.given.push((param.key, self.read(param, &item.value)?));
            } else if self.free_key.is_some_and(|accepts| accepts(key)) {
                values.free.push((key.to_string(), item.value.clone()));
            } else {
                return Err(self.unknown_key(key));
            }
        }
        for param in self.all_params() {
            if matches!(param.fallback, Fallback::Required) && values.find(param).is_none() {
                return Err(values.missing(param.key, param.kind.expectation()));
            }
        }
        Ok(values)
    }

    /// Returns the values of a SPEC that has at most a profile.
    ///
    /// # Panics
    /// Panics if there is no such profile, or a parameter has no default.
    pub fn defaults(&'static self, profile: &str) -> Values {
        self.resolve(&Spec::new(self.name).with(self.profile_key, profile)).expect("a profile")
    }

    fn profile(&self, text: &str) -> Result<&'static str, ConfigError> {
        let known = self.profiles.iter().find(|profile| profile.name == text);
        known.map(|profile| profile.name).ok_or_else(|| {
            let names = join(self.profiles.iter().map(|profile| profile.name));
            ConfigError::value(self.name, self.profile_key, &shorten(text), names)
        })
    }

    fn read(&self, param: &Param, text: &str) -> Result<Value, ConfigError> {
        let inside = |problem: String| ConfigError::inside(self.name, param.key, problem);
        match param.kind {
            Kind::Queue => {
                let nested = Spec::parse_nested(text);
                return nested.map(Value::Queue).map_err(|error| inside(error.to_string()));
            }
            Kind::Rules => return rules::read(text).map(Value::Rules).map_err(inside),
            _ => {}
        }
        let bad = |expected| ConfigError::value(self.name, param.key, &shorten(text), expected);
        let value = param.kind.read(text).ok_or_else(|| match param.kind {
            Kind::Choice(words) => bad(join(words.iter().copied())),
            kind => bad(kind.expectation().to_string()),
        })?;
        match param.range {
            Some((low, high)) if !within(param.kind, &value, low, high) => {
                Err(bad(format!("{low} to {high}")))
            }
            _ => Ok(value),
        }
    }

    fn keyless(&self, value: &str) -> ConfigError {
        let expected = format!("key=value with one of {}", self.keys());
        ConfigError::value(self.name, "", &shorten(value), expected)
    }

    /// Returns the error for a key that the definition does not have.
    pub fn unknown_key(&self, key: &str) -> ConfigError {
        ConfigError::UnknownKey {
            name: self.name.to_string(),
            key: shorten(key),
            known: self.keys(),
            suggestion: closest(key, self.all_params().map(|param| param.key)).map(str::to_string),
        }
    }

    fn keys(&self) -> String {
        let profile = (!self.profiles.is_empty()).then_some(self.profile_key);
        join(profile.into_iter().chain(self.all_params().map(|param| param.key)))
    }
}

impl Values {
    /// Returns the chosen profile; empty if the definition has none.
    pub fn profile(&self) -> &'static str {
        self.profile.unwrap_or_default()
    }

    /// Returns the place of the chosen profile in the definition's table.
    pub fn profile_place(&self) -> usize {
        let is_chosen = |profile: &Profile| Some(profile.name) == self.profile;
        self.definition.profiles.iter().position(is_chosen).unwrap_or(0)
    }

    /// Returns the name and every given value, with the profile, to print and record; it parses to
    /// the same values. `queue` returns the label of an inner queue.
    pub fn label(&self, queue: &InnerText<'_>) -> Result<Spec, ConfigError> {
        let mut spec = self.name_and_profile();
        for (key, value) in &self.given {
            let text = match value {
                Value::Queue(inner) => format!("[{}]", queue(inner)?),
                value => value.to_string(),
            };
            spec = spec.with(key, &text);
        }
        for (key, value) in &self.free {
            spec = spec.with(key, value);
        }
        Ok(spec)
    }

    /// Returns the name and every parameter with its value, given or by default, in the order of
    /// the table: SPECs of one meaning are equal, however they are written. Values are exact, so
    /// the text is for comparisons, and neither for readers (see [`Values::label`]) nor for
    /// parsing. `queue` returns the meaning of an inner queue.
    pub fn meaning(&self, queue: &InnerText<'_>) -> Result<Spec, ConfigError> {
        let mut spec = self.name_and_profile();
        for param in self.definition.all_params() {
            let text = match self.find(param) {
                None => continue,
                Some(Value::Queue(inner)) => format!("[{}]", queue(&inner)?),
                Some(value) => value.exact(),
            };
            spec = spec.with(param.key, &text);
        }
        for (key, value) in &self.free {
            // The steps of a schedule.
            let step = Kind::Span.read(key).zip(Kind::Rate.read(value));
            spec = match step {
                Some((time, rate)) => spec.with(&time.exact(), &rate.exact()),
                None => spec.with(key, value),
            };
        }
        Ok(spec)
    }

    fn name_and_profile(&self) -> Spec {
        let spec = Spec::new(self.definition.name);
        match self.profile {
            None | Some(Profile::NONE) => spec,
            Some(profile) => spec.with(self.definition.profile_key, profile),
        }
    }

    /// Returns the items whose keys are not in the table, in order.
    pub fn free(&self) -> &[(String, String)] {
        &self.free
    }

    /// Returns the value of a parameter, given or by default.
    ///
    /// # Panics
    /// Panics if the definition does not list `key`, whatever the user wrote. The tests of the
    /// registry read every table whole.
    pub fn get<T: Quantity>(&self, key: Key<T>) -> T::Value {
        let param = key.param();
        let listed = self.definition.all_params().find(|listed| listed.key == param.key);
        let read = listed.filter(|listed| listed.kind == T::KIND);
        match read.and_then(|listed| T::from_value(self.find(listed))) {
            Some(value) => value,
            None => panic!("the table of `{}` lacks {param:?}", self.definition.name),
        }
    }

    /// Returns the value of the parameter `key`, given or by default; `None` if it has neither.
    pub fn value(&self, key: &str) -> Option<Value> {
        self.find(self.definition.all_params().find(|param| param.key == key)?)
    }

    fn find(&self, param: &Param) -> Option<Value> {
        if let Some((_, value)) = self.given.iter().find(|(key, _)| *key == param.key) {
            return Some(value.clone());
        }
        let text = match param.fallback {
            Fallback::Value(text) => text,
            Fallback::PerProfile(texts) => {
                let own = texts.iter().find(|(profile, _)| *profile == self.profile());
                own.or(texts.last())?.1
            }
            Fallback::Absent(_) | Fallback::Required => return None,
        };
        if param.kind == Kind::Queue {
            return Spec::parse_nested(text).ok().map(Value::Queue);
        }
        param.kind.read(text)
    }

    /// Whether the SPEC has the parameter, rather than its default.
    pub fn is_given<T: Quantity>(&self, key: Key<T>) -> bool {
        self.given.iter().any(|(given, _)| *given == key.name())
    }

    /// Returns the given rate, else the link's.
    ///
    /// # Errors
    /// Returns an error if neither is known, or it is zero.
    pub fn rate(&self, key: Key<Option<Rate>>, link: &LinkFacts) -> Result<Rate, ConfigError> {
        let rate = self.get(key).or(link.rate).filter(|rate| !rate.is_zero());
        let expected = "a rate, such as 20mbit, because no link is known behind it";
        rate.ok_or_else(|| self.missing(key.name(), expected))
    }

    /// Returns the error for a missing parameter.
    pub fn missing(&self, key: &str, expected: &str) -> ConfigError {
        ConfigError::missing(self.definition.name, key, expected)
    }

    /// Returns the error for a value that contradicts another value or the link.
    pub fn refuse<T: Quantity>(&self, key: Key<T>, expected: &str) -> ConfigError {
        let listed = self.definition.all_params().find(|listed| listed.key == key.name());
        let value = listed.and_then(|listed| self.find(listed));
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        ConfigError::value(self.definition.name, key.name(), &value, expected)
    }
}

fn within(kind: Kind, value: &Value, low: &str, high: &str) -> bool {
    let (Some(low), Some(high)) = (kind.read(low), kind.read(high)) else { return false };
    let above = !value.same_unit(&low) || value.magnitude() >= low.magnitude();
    let below = !value.same_unit(&high) || value.magnitude() <= high.magnitude();
    above && below
}
