//! Parameter tables, and a SPEC understood by one of them.

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
    /// Name of the profile: `rfc`, `linux`, `paper`.
    pub name: &'static str,
    /// The publication or program that the profile follows.
    pub doc: &'static str,
}

/// A discipline's or link's parameters with their meaning and source.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Name of the discipline or link in a SPEC.
    pub name: &'static str,
    /// Other names of it, as other programs write them, in small letters with hyphens.
    pub aliases: &'static [&'static str],
    /// Summary in one line.
    pub summary: &'static str,
    /// RFC, paper or program that defines it.
    pub source: &'static str,
    /// Its profiles, the default first; empty where there is but one.
    pub profiles: &'static [Profile],
    /// The parameters of this discipline or link alone.
    pub params: &'static [Param],
    /// Parameters that it has in common with others.
    pub shared: &'static [Param],
    /// The parameter that an item without a key sets.
    pub positional: Option<&'static str>,
    /// Accepts items whose key is not in the table (a schedule's times); told the key.
    pub free_key: Option<fn(&str) -> bool>,
    /// Another word for the key `profile`, where the profiles are presets.
    pub profile_key: Option<&'static str>,
}

/// A SPEC understood: every value read, in range, and with its default.
#[derive(Clone, Debug)]
pub struct Values {
    definition: &'static Definition,
    profile: Option<&'static str>,
    given: Vec<(&'static str, Value)>,
    free: Vec<(String, String)>,
}

/// The text of a queue inside another's SPEC.
pub type InnerText<'a> = dyn Fn(&Spec) -> Result<String, ConfigError> + 'a;

impl Definition {
    /// No name and nothing else: what a definition leaves out is as here.
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
        profile_key: None,
    };

    /// Whether a SPEC may call it so: by its name, or as other programs write it. `fq_codel`,
    /// `FQ-CoDel` and ns-3's `FqCoDelQueueDisc` are `fq-codel`.
    pub fn is_called(&self, name: &str) -> bool {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let plain = plain.strip_suffix("queuedisc").unwrap_or(&plain);
        self.name == name || self.name == plain || self.aliases.contains(&plain)
    }

    /// All parameters, the definition's own first.
    pub fn all_params(&self) -> impl Iterator<Item = &'static Param> + use<> {
        self.params.iter().chain(self.shared)
    }

    /// Understands `spec`.
    ///
    /// # Errors
    /// Whatever is wrong with a key or value, naming it and what would be accepted.
    pub fn resolve(&'static self, spec: &Spec) -> Result<Values, ConfigError> {
        let mut values =
            Values { definition: self, profile: None, given: Vec::new(), free: Vec::new() };
        values.profile = self.profiles.first().map(|profile| profile.name);
        let mut profile_given = false;
        for item in &spec.items {
            let key = match (&item.key, self.positional) {
                (Some(key), _) if self.profile_key == Some(key.as_str()) => "profile",
                (Some(key), _) => key.as_str(),
                (None, Some(positional)) => positional,
                (None, None) => return Err(self.keyless(&item.value)),
            };
            if key == "profile" && !self.profiles.is_empty() {
                if profile_given {
                    return Err(self.repeated(key));
                }
                profile_given = true;
                values.profile = Some(self.profile(&item.value)?);
            } else if let Some(param) = self.all_params().find(|param| param.key == key) {
                if values.given.iter().any(|(known, _)| *known == key) {
                    return Err(self.repeated(key));
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

    /// The values of a SPEC that says nothing but the profile.
    #[cfg(test)]
    pub fn defaults(&'static self, profile: &str) -> Values {
        self.resolve(&Spec::new(self.name).with("profile", profile)).expect("a profile")
    }

    fn profile(&self, text: &str) -> Result<&'static str, ConfigError> {
        let known = self.profiles.iter().find(|profile| profile.name == text);
        known.map(|profile| profile.name).ok_or_else(|| ConfigError::BadValue {
            name: self.name.to_string(),
            key: "profile".to_string(),
            value: shorten(text),
            expected: join(self.profiles.iter().map(|profile| profile.name)),
        })
    }

    fn read(&self, param: &Param, text: &str) -> Result<Value, ConfigError> {
        let inside = |problem: String| ConfigError::Inside {
            name: self.name.to_string(),
            key: param.key.to_string(),
            problem,
        };
        match param.kind {
            Kind::Queue => {
                let nested = Spec::parse_nested(text);
                return nested.map(Value::Queue).map_err(|error| inside(error.to_string()));
            }
            Kind::Rules => return rules::read(text).map(Value::Rules).map_err(inside),
            _ => {}
        }
        let bad = |expected: String| ConfigError::BadValue {
            name: self.name.to_string(),
            key: param.key.to_string(),
            value: shorten(text),
            expected,
        };
        let value = param.kind.read(text).ok_or_else(|| match param.kind {
            Kind::Choice(words) => bad(join(words.iter().copied())),
            kind => bad(kind.expectation().to_string()),
        })?;
        match param.range {
            Some((low, high)) if !within(param.kind, &value, low, high) => {
                Err(ConfigError::OutOfRange {
                    name: self.name.to_string(),
                    key: param.key.to_string(),
                    value: shorten(text),
                    expected: format!("{low} to {high}"),
                })
            }
            _ => Ok(value),
        }
    }

    fn keyless(&self, value: &str) -> ConfigError {
        ConfigError::BadValue {
            name: self.name.to_string(),
            key: String::new(),
            value: shorten(value),
            expected: format!("key=value with one of {}", self.keys()),
        }
    }

    fn repeated(&self, key: &str) -> ConfigError {
        ConfigError::Repeated { name: self.name.to_string(), key: key.to_string() }
    }

    fn unknown_key(&self, key: &str) -> ConfigError {
        ConfigError::UnknownKey {
            name: self.name.to_string(),
            key: shorten(key),
            known: self.keys(),
            suggestion: closest(key, self.all_params().map(|param| param.key)).map(str::to_string),
        }
    }

    fn keys(&self) -> String {
        let profile = (!self.profiles.is_empty()).then_some("profile");
        join(profile.into_iter().chain(self.all_params().map(|param| param.key)))
    }
}

impl Values {
    /// The chosen profile; the empty string where the definition has none.
    pub fn profile(&self) -> &'static str {
        self.profile.unwrap_or_default()
    }

    /// The name and every value that was given, with the profile always said: what to print and
    /// record; `queue` says the same of a queue inside. Parsing it again gives the same.
    ///
    /// # Errors
    /// Those of `queue`.
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

    /// The name and every parameter with the value that holds, given or by default, in the order of
    /// the table: SPECs with the same meaning say the same, however they are written. Exact, where
    /// [`Values::label`] is for readers: not to be parsed again. `queue` as there.
    ///
    /// # Errors
    /// Those of `queue`.
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
            Some(profile) => spec.with("profile", profile),
            None => spec,
        }
    }

    /// The items whose keys are not in the table, in order.
    pub fn free(&self) -> &[(String, String)] {
        &self.free
    }

    /// The value of a parameter, given or by default.
    ///
    /// # Panics
    /// Where the definition does not list `key`: a mistake of the program, whatever a user wrote.
    /// The tests of the registry read every table whole.
    pub fn get<T: Quantity>(&self, key: Key<T>) -> T::Value {
        let param = key.param();
        let listed = self.definition.all_params().find(|listed| listed.key == param.key);
        let read = listed.filter(|listed| listed.kind == T::KIND);
        match read.and_then(|listed| T::of(self.find(listed))) {
            Some(value) => value,
            None => panic!("the table of `{}` lacks {param:?}", self.definition.name),
        }
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

    /// Whether the SPEC itself says the parameter's value.
    pub fn is_given<T: Quantity>(&self, key: Key<T>) -> bool {
        self.given.iter().any(|(given, _)| *given == key.name())
    }

    /// The rate that was given, else the link's.
    ///
    /// # Errors
    /// Neither is known, or it is zero.
    pub fn rate(&self, key: Key<Option<Rate>>, link: &LinkFacts) -> Result<Rate, ConfigError> {
        let rate = self.get(key).or(link.rate).filter(|rate| !rate.is_zero());
        let expected = "a rate, such as 20mbit, because no link is known behind it";
        rate.ok_or_else(|| self.missing(key.name(), expected))
    }

    /// A refusal of a SPEC without a parameter that has no default here.
    pub fn missing(&self, key: &str, expected: &str) -> ConfigError {
        ConfigError::Missing {
            name: self.definition.name.to_string(),
            key: key.to_string(),
            expected: expected.to_string(),
        }
    }

    /// A refusal of a parameter's value by a rule that involves more than this value.
    pub fn refuse<T: Quantity>(&self, key: Key<T>, expected: &str) -> ConfigError {
        let listed = self.definition.all_params().find(|listed| listed.key == key.name());
        let value = listed.and_then(|listed| self.find(listed));
        ConfigError::OutOfRange {
            name: self.definition.name.to_string(),
            key: key.name().to_string(),
            value: value.map(|value| value.to_string()).unwrap_or_default(),
            expected: expected.to_string(),
        }
    }
}

fn within(kind: Kind, value: &Value, low: &str, high: &str) -> bool {
    let (Some(low), Some(high)) = (kind.read(low), kind.read(high)) else { return false };
    let above = !value.same_unit(&low) || value.magnitude() >= low.magnitude();
    let below = !value.same_unit(&high) || value.magnitude() <= high.magnitude();
    above && below
}
