//! Parameters as constants with a type: the table that lists a parameter and the code that reads
//! its value name the same constant, so that neither can misspell the other.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::config::{Kind, Profile, Spec, Value};
use crate::latency_bins::LatencyEdges;
use crate::rate::Rate;
use crate::remark::Rules;
use crate::time::Span;

/// The value of a parameter that is not given.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// The default, as a user would write it.
    Value(&'static str),
    /// Pairs of a profile's name and its value. A profile that is not listed has the last value.
    PerProfile(&'static [(&'static str, &'static str)]),
    /// No default; the text describes the behaviour without the parameter.
    Absent(&'static str),
    /// The parameter must be given.
    Required,
}

/// A parameter of a queue or link.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The word before `=` in a SPEC.
    pub key: &'static str,
    /// The kind of value, which decides its units.
    pub kind: Kind,
    /// The value if the parameter is not given.
    pub fallback: Fallback,
    /// Smallest and largest value, inclusive, written as a user would. For a kind of two units
    /// the range binds only values in the unit of its bounds.
    pub range: Option<(&'static str, &'static str)>,
    /// The meaning, as `underload queues` prints it.
    pub doc: &'static str,
}

impl Param {
    /// Returns the default as a user would write it; of several profiles, each with their names.
    pub fn default_text(&self, profiles: &[Profile]) -> String {
        match self.fallback {
            Fallback::Value(text) => text.to_owned(),
            Fallback::PerProfile(texts) => per_profile(texts, profiles),
            Fallback::Absent(meaning) => format!("none: {meaning}"),
            Fallback::Required => "required".to_owned(),
        }
    }
}

/// Formats the defaults of profiles. The last text is for all profiles that `texts` does not name.
fn per_profile(texts: &[(&str, &str)], profiles: &[Profile]) -> String {
    let Some(((_, other), texts)) = texts.split_last() else { return String::new() };
    let is_known = |name: &str| profiles.iter().any(|profile| profile.name == name);
    let known = texts.iter().filter(|(name, _)| is_known(name));
    let mut named: Vec<_> = known.map(|(name, text)| (*text, (*name).to_owned())).collect();
    if named.is_empty() {
        return (*other).to_owned();
    }
    let names = profiles.iter().map(|profile| profile.name);
    let others = names.filter(|name| texts.iter().all(|(known, _)| known != name));
    let others = others.collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        named.push((other, others));
    }
    let texts = named.into_iter().map(|(text, names)| format!("{text} ({names})"));
    texts.collect::<Vec<_>>().join("; ")
}

/// A parameter with a value of type `T`, which [`Values::get`](crate::config::Values::get) returns.
#[derive(Debug)]
pub struct Key<T> {
    param: Param,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T: Quantity> Key<T> {
    const fn with(key: &'static str, fallback: Fallback, doc: &'static str) -> Self {
        let param = Param { key, kind: T::KIND, fallback, range: None, doc };
        Self { param, value: PhantomData }
    }

    /// Returns a parameter with a default, written as a user would.
    pub const fn new(key: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::with(key, Fallback::Value(default), doc)
    }

    /// Returns a parameter whose default depends on the profile, see [`Fallback::PerProfile`].
    pub const fn per_profile(
        key: &'static str,
        defaults: &'static [(&'static str, &'static str)],
        doc: &'static str,
    ) -> Self {
        Self::with(key, Fallback::PerProfile(defaults), doc)
    }

    /// Returns a parameter without a default, which must be given.
    pub const fn required(key: &'static str, doc: &'static str) -> Self {
        Self::with(key, Fallback::Required, doc)
    }

    /// Limits the parameter to `low` to `high` inclusive; see [`Param::range`].
    #[must_use]
    pub const fn within(mut self, low: &'static str, high: &'static str) -> Self {
        self.param.range = Some((low, high));
        self
    }

    /// Replaces the default of the parameter.
    #[must_use]
    pub const fn or(mut self, default: &'static str) -> Self {
        self.param.fallback = Fallback::Value(default);
        self
    }

    /// Returns the word before `=` in a SPEC.
    pub const fn name(self) -> &'static str {
        self.param.key
    }

    /// Returns the parameter without the type of its value.
    pub const fn param(self) -> Param {
        self.param
    }
}

impl<T: Quantity> Key<Option<T>> {
    /// Returns a parameter without a default; `meaning` describes the behaviour without it.
    pub const fn optional(key: &'static str, meaning: &'static str, doc: &'static str) -> Self {
        Self::with(key, Fallback::Absent(meaning), doc)
    }
}

/// The form of a parameter's value in a SPEC, and its type in the program.
pub trait Quantity {
    /// The value's type in the program.
    type Value;

    /// The value's kind in a SPEC.
    const KIND: Kind;

    /// Converts a parsed or default value; `None` if the value is missing or of another kind.
    fn from_value(value: Option<Value>) -> Option<Self::Value>;
}

/// A parameter that may be absent.
impl<T: Quantity> Quantity for Option<T> {
    type Value = Option<T::Value>;

    const KIND: Kind = T::KIND;

    fn from_value(value: Option<Value>) -> Option<Self::Value> {
        match value {
            None => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// Declares parameters, each once: as a [`Key`] for the code that reads its value, and as a row of
/// the table `PARAMS`. `use KEY;` lists a key that is declared elsewhere.
///
/// `define CONSTANT: "NAME", "SUMMARY", FIELD: VALUE, ...;` before them declares the
/// [`Definition`](crate::config::Definition) that has this table.
///
/// A default is `"VALUE"`, `{ "PROFILE": "VALUE", ... }`, `(required)`, or `("what happens without
/// the parameter")` for an optional parameter without a default.
#[macro_export]
macro_rules! params {
    (@rows [$($param:expr,)*]) => {
        const PARAMS: &[$crate::config::Param] = &[$($param,)*];
    };
    (@rows [$($param:expr,)*] use $($key:expr),+; $($rest:tt)*) => {
        $crate::params!(@rows [$($param,)* $($key.param(),)+] $($rest)*);
    };
    (@rows [$($param:expr,)*] $(#[$doc:meta])* $vis:vis $NAME:ident: $Type:ty = $key:literal,
        $default:tt $(in $low:literal..$high:literal)?, $about:literal; $($rest:tt)*) => {
        $(#[$doc])*
        $vis const $NAME: $crate::config::Key<$Type> =
            $crate::params!(@key $default $key, $about)$(.within($low, $high))?;
        $crate::params!(@rows [$($param,)* $NAME.param(),] $($rest)*);
    };
    (@key (required) $key:literal, $about:literal) => {
        $crate::config::Key::required($key, $about)
    };
    (@key ($meaning:literal) $key:literal, $about:literal) => {
        $crate::config::Key::optional($key, $meaning, $about)
    };
    (@key { $($profile:literal: $value:literal),+ } $key:literal, $about:literal) => {
        $crate::config::Key::per_profile($key, &[$(($profile, $value)),+], $about)
    };
    (@key $default:literal $key:literal, $about:literal) => {
        $crate::config::Key::new($key, $default, $about)
    };
    ($(#[$doc:meta])* define $NAME:ident: $name:literal, $summary:literal,
        $($field:ident: $value:expr),+; $($rest:tt)+) => {
        $(#[$doc])*
        pub(crate) const $NAME: $crate::config::Definition = $crate::config::Definition {
            name: $name,
            summary: $summary,
            params: PARAMS,
            $($field: $value,)+
            ..$crate::config::Definition::BARE
        };
        $crate::params!($($rest)+);
    };
    ($($rows:tt)+) => {
        $crate::params!(@rows [] $($rows)+);
    };
}
pub use params;

/// Declares a struct of parameters, and beside each field its value: `read` returns the struct for
/// the values of a SPEC and further inputs.
#[macro_export]
macro_rules! from_values {
    ($(#[$about:meta])* pub struct $Type:ident($values:ident $(, $input:ident: $Input:ty)*) {
        $($(#[$doc:meta])* pub $field:ident: $Field:ty = $value:expr,)+
    }) => {
        $(#[$about])*
        pub struct $Type {
            $($(#[$doc])* pub $field: $Field,)+
        }

        impl $Type {
            pub(crate) fn read(
                $values: &$crate::config::Values, $($input: $Input),*
            ) -> Result<Self, $crate::config::ConfigError> {
                Ok(Self { $($field: $value,)+ })
            }
        }
    };
}
pub use from_values;

/// Declares the profiles of a discipline, the default first: an enum, and its table `PROFILES`.
#[macro_export]
macro_rules! profiles {
    ($(#[$meta:meta])* $vis:vis enum $Type:ident {
        $($(#[$doc:meta])* $Variant:ident = $name:literal: $about:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Type { $($(#[$doc])* $Variant),+ }

        impl $Type {
            const PROFILES: &[$crate::config::Profile] =
                &[$($crate::config::Profile { name: $name, doc: $about }),+];

            /// Returns the chosen profile.
            fn of(values: &$crate::config::Values) -> Self {
                [$(Self::$Variant),+][values.profile_place()]
            }
        }
    };
}
pub use profiles;

/// Implements `Quantity` for a key whose value is one of a few words, and maps each word to a
/// value.
///
/// `choices!(DropAt { "dequeue" => Dequeue, })` maps words to the variants of the enum `DropAt`.
/// `choices!(JitterOrder => bool { "kept" => true, })` maps words to values of another type, here
/// `bool`; `JitterOrder` then only names the key's type.
#[macro_export]
macro_rules! choices {
    ($Type:ident { $($word:literal => $Variant:ident,)* }) => {
        $crate::choices!($Type => Self { $($word => Self::$Variant,)* });
    };
    ($Type:ident => $Value:ty { $($word:literal => $value:expr,)* }) => {
        impl $crate::config::Quantity for $Type {
            type Value = $Value;

            const KIND: $crate::config::Kind = $crate::config::Kind::Choice(&[$($word),*]);

            fn from_value(value: Option<$crate::config::Value>) -> Option<$Value> {
                match value? {
                    $($crate::config::Value::Choice($word) => Some($value),)*
                    _ => None,
                }
            }
        }
    };
}
pub use choices;

/// A number of bytes.
#[derive(Debug)]
pub enum Bytes {}
/// A number of packets.
#[derive(Debug)]
pub enum Packets {}
/// A number without a unit.
#[derive(Debug)]
pub enum Count {}
/// A decimal number, stored in millionths.
#[derive(Debug)]
pub enum Millionths {}
/// A probability, as a fraction of 2^32.
#[derive(Debug)]
pub enum Probability {}
/// Differentiated Services codepoints: bit `n` is codepoint `n`.
#[derive(Debug)]
pub enum DscpSet {}

/// A limit in packets or in bytes, depending on the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketsOrBytes {
    /// A limit in packets, whatever their size.
    Packets(u32),
    /// A limit in bytes, whatever the number of packets.
    Bytes(u64),
}

/// A number of bytes, or the time that bytes take at a link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesOrSpan {
    /// A number of bytes.
    Bytes(u64),
    /// The time that the bytes take.
    Span(Span),
}

macro_rules! quantities {
    ($($quantity:ty: $kind:ident => $value:ty;)*) => {$(
        impl Quantity for $quantity {
            type Value = $value;

            const KIND: Kind = Kind::$kind;

            fn from_value(value: Option<Value>) -> Option<Self::Value> {
                match value? {
                    Value::$kind(value) => Some(value),
                    _ => None,
                }
            }
        }
    )*};
}

quantities! {
    Span: Span => Self;
    Rate: Rate => Self;
    bool: Switch => Self;
    Bytes: Bytes => u64;
    Packets: Packets => u32;
    Count: Count => u64;
    Millionths: Decimal => u64;
    Probability: Probability => u64;
    DscpSet: DscpSet => u64;
    LatencyEdges: Edges => Self;
    String: Text => Self;
    Spec: Queue => Self;
    Rules: Rules => Self;
}

impl Quantity for PacketsOrBytes {
    type Value = Self;

    const KIND: Kind = Kind::Limit;

    fn from_value(value: Option<Value>) -> Option<Self> {
        match value? {
            Value::Packets(packets) => Some(Self::Packets(packets)),
            Value::Bytes(bytes) => Some(Self::Bytes(bytes)),
            _ => None,
        }
    }
}

impl Quantity for BytesOrSpan {
    type Value = Self;

    const KIND: Kind = Kind::BytesOrSpan;

    fn from_value(value: Option<Value>) -> Option<Self> {
        match value? {
            Value::Bytes(bytes) => Some(Self::Bytes(bytes)),
            Value::Span(span) => Some(Self::Span(span)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_name_every_existing_profile() {
        let profile = |name| Profile { name, doc: "" };
        let texts = [("mahimahi", "1504B"), ("", "1514B")];
        let of = |names: &[&'static str]| {
            let profiles: Vec<Profile> = names.iter().map(|name| profile(*name)).collect();
            per_profile(&texts, &profiles)
        };
        assert_eq!(of(&["rfc", "linux", "mahimahi"]), "1504B (mahimahi); 1514B (rfc, linux)");
        assert_eq!(of(&["rfc", "linux"]), "1514B");
        assert_eq!(of(&["mahimahi"]), "1504B (mahimahi)");
    }
}
