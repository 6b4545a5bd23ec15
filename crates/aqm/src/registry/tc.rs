//! Queues in the syntax of `tc`: `codel target 15ms ecn` is `codel:target=15ms,ecn=on`.

use alloc::format;
use alloc::string::{String, ToString};

use crate::config::{ConfigError, Definition, Kind, Param, Spec};

/// Options of `tc` that have other names here: queue (empty for all), option, key.
const KEYS: &[(&str, &str, &str)] = &[
    ("", "memory-limit", "memory"),
    ("cake", "memlimit", "memory"),
    ("cake", "bandwidth", "rate"),
    ("red", "probability", "max-p"),
    ("red", "avpkt", "mean-packet"),
    ("dualpi2", "coupling-factor", "coupling"),
    ("dualpi2", "step-thresh", "l4s-threshold"),
];
/// Options whose numbers mean something else here, with the reason.
const OTHER_SCALES: &[(&str, &str, &str)] = &[
    ("pie", "alpha", "alpha=HZ; tc counts sixteenths of a hertz"),
    ("pie", "beta", "beta=HZ; tc counts sixteenths of a hertz"),
    ("fq-pie", "alpha", "alpha=HZ; tc counts sixteenths of a hertz"),
    ("fq-pie", "beta", "beta=HZ; tc counts sixteenths of a hertz"),
    ("dualpi2", "alpha", "alpha=HZ; tc counts 256ths of a hertz"),
    ("dualpi2", "beta", "beta=HZ; tc counts 256ths of a hertz"),
];

/// Translates the options of a queue, called `name` in the text, to a SPEC with keys.
pub(super) fn translate<'a>(
    definition: &'static Definition,
    name: &str,
    words: impl Iterator<Item = &'a str>,
) -> Result<Spec, ConfigError> {
    let mut words = words.peekable();
    let mut spec = Spec::new(definition.name);
    while let Some(word) = words.next() {
        let option = word.to_ascii_lowercase().replace('_', "-");
        let bad = |expected: &str| ConfigError::value(definition.name, word, "", expected);
        let is_here = |queue: &str| queue.is_empty() || queue == definition.name;
        let other = OTHER_SCALES.iter().find(|(queue, key, _)| is_here(queue) && *key == option);
        if let Some((_, _, expected)) = other {
            return Err(bad(&format!("{}:{expected}", definition.name)));
        }
        let alias = KEYS.iter().find(|(queue, key, _)| is_here(queue) && *key == option);
        let key = alias.map_or(option.as_str(), |(_, _, key)| key);
        spec = match param(definition, key) {
            Some(Param { kind: Kind::Switch, key, .. }) => {
                let value = words.next_if(|next| matches!(*next, "on" | "off"));
                spec.with(key, value.unwrap_or("on"))
            }
            Some(param) => {
                let value = words.next().ok_or_else(|| bad("a value after it"))?;
                spec.with(param.key, &with_unit(param.kind, name, value))
            }
            None => flag(definition, spec, key).ok_or_else(|| definition.unknown_key(word))?,
        };
    }
    Ok(spec)
}

/// Adds an option without a value: `noecn`, or a choice such as CAKE's `besteffort`.
fn flag(definition: &'static Definition, spec: Spec, word: &str) -> Option<Spec> {
    let off = word.strip_prefix("no-").or_else(|| word.strip_prefix("no"));
    if let Some(Param { kind: Kind::Switch, key, .. }) = off.and_then(|it| param(definition, it)) {
        return Some(spec.with(key, "off"));
    }
    let has = |param: &&Param| matches!(param.kind, Kind::Choice(words) if words.contains(&word));
    let chosen = definition.all_params().find(has)?;
    Some(spec.with(chosen.key, word))
}

fn param(definition: &'static Definition, key: &str) -> Option<&'static Param> {
    definition.all_params().find(|param| param.key == key)
}

/// Returns a value with the unit that `tc` omits, and with its `k` and `mb` as KiB and MiB.
fn with_unit(kind: Kind, queue: &str, value: &str) -> String {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &value[digits.len()..];
    let is_bytes = matches!(kind, Kind::Bytes) || queue.eq_ignore_ascii_case("bfifo");
    match (kind, unit) {
        (Kind::Bytes | Kind::Limit, "" | "b") if is_bytes => format!("{digits}B"),
        (Kind::Packets | Kind::Limit, "") => format!("{digits}p"),
        (Kind::Bytes | Kind::Limit, "k" | "kb") => format!("{digits}KiB"),
        (Kind::Bytes | Kind::Limit, "m" | "mb") => format!("{digits}MiB"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::rate::Rate;
    use crate::registry::{QueueSetup, our_form};

    #[test]
    fn options_of_tc_are_keys() {
        let link = LinkFacts::of_rate(Rate::from_megabits_per_second(20));
        for (words, ours) in [
            ("pfifo limit 100", "fifo:limit=100p"),
            ("bfifo limit 65536", "fifo:limit=65536B"),
            ("bfifo limit 64kb", "fifo:limit=64KiB"),
            ("codel target 15ms interval 150ms ecn", "codel:target=15ms,interval=150ms,ecn=on"),
            (
                "fq_codel limit 1000 flows 64 quantum 300 memory_limit 4mb noecn",
                "fq-codel:limit=1000p,flows=64,quantum=300B,memory=4MiB,ecn=off",
            ),
            ("FQ_CODEL ce_threshold 1ms", "fq-codel:ce-threshold=1ms"),
            (
                "cake bandwidth 18Mbit besteffort dual-srchost rtt 50ms atm overhead 44",
                "cake:rate=18Mbit,tins=besteffort,isolation=dual-srchost,rtt=50ms,framing=atm,\
                 overhead=44B",
            ),
            ("pie limit 500 target 20ms tupdate 30ms", "pie:limit=500p,target=20ms,tupdate=30ms"),
        ] {
            assert_eq!(our_form(words), ours);
            let read = QueueSetup::parse(words, &link).expect(words);
            let own = QueueSetup::parse(ours, &link).expect(ours);
            assert_eq!((&read.label, read.meaning()), (&own.label, own.meaning()), "{words}");
        }
        assert_eq!(our_form("fq_codel:target=9ms"), "fq-codel:target=9ms");
        assert_eq!(our_form("no such queue"), "no such queue");
    }

    #[test]
    fn unknown_options_of_tc_are_named() {
        let link = LinkFacts::of_rate(Rate::from_megabits_per_second(20));
        for (words, problem) in [
            ("codel targt 5ms", "`codel` has no parameter `targt`; did you mean `target`?"),
            ("codel target", "`codel`: `target=`: expected a value after it"),
            ("codel target 5", "expected a time"),
            ("cake nat", "`cake` has no parameter `nat`"),
            ("pie alpha 2", "expected pie:alpha=HZ; tc counts sixteenths"),
            ("codel ecn ecn", "given twice"),
            ("codle target 5ms", "there is no queue `codle target 5ms`"),
        ] {
            let error = QueueSetup::parse(words, &link).expect_err(words).to_string();
            assert!(error.contains(problem), "{words}: {error}");
        }
    }
}
