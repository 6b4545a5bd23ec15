//! Describes the settings in which two variants differ.

use underload_record::comparison::SettingChange;

use crate::words::{list, mbit};

/// Returns `up queue: docsis-pie instead of fifo` or `both queues: cake instead of fifo`.
pub(crate) fn in_words(settings: &[SettingChange]) -> String {
    let mut changes: Vec<(String, Vec<&str>)> = Vec::new();
    let queues_first = settings.iter().filter(|it| it.is_queue());
    for setting in queues_first.chain(settings.iter().filter(|it| !it.is_queue())) {
        let change = change(setting);
        match changes.iter_mut().find(|(known, _)| *known == change) {
            Some((_, keys)) => keys.push(&setting.key),
            None => changes.push((change, vec![&setting.key])),
        }
    }
    if changes.len() > MOST_CHANGES {
        let keys: Vec<&str> = settings.iter().map(|setting| setting.key.as_str()).collect();
        return format!("different values of {}", keys_in_words(&keys));
    }
    let words = changes.iter().map(|(change, keys)| match change.as_str() {
        "" if keys.len() == 1 => format!("a different {}", keys_in_words(keys)),
        "" => format!("different values of {}", keys_in_words(keys)),
        change => format!("{}: {change}", keys_in_words(keys)),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// As [`in_words`], in brackets behind the names of both variants, with the rates of shaping queues.
/// Empty if the names say it and no queue shapes.
pub(crate) fn beside(settings: &[SettingChange], first: &str, other: &str) -> String {
    let is_said = settings.iter().all(|setting| is_said_by(setting, first, other));
    let changes = if is_said { String::new() } else { in_words(settings) };
    let parts: Vec<String> =
        [changes, shaped_rates(settings)].into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Returns the rates of the queues that another discipline has in the other variant: `at 47.5 Mbit/s
/// down and 9.50 Mbit/s up`.
fn shaped_rates(settings: &[SettingChange]) -> String {
    let rate = |setting: &SettingChange| {
        let direction = if setting.key.ends_with("up_queue") { "up" } else { "down" };
        Some(format!("{} Mbit/s {direction}", mbit(setting.shaped_bit_per_s()? as f64)))
    };
    let rates: Vec<String> = settings.iter().filter_map(rate).collect();
    if rates.is_empty() { String::new() } else { format!("at {}", list(&rates)) }
}

/// Whether several settings may cause a difference.
pub(crate) fn is_mixed(settings: &[SettingChange]) -> bool {
    settings.len() > 1 && !settings.iter().all(SettingChange::is_queue)
}

fn is_link(setting: &SettingChange) -> bool {
    let last = setting.key.rsplit('.').next();
    setting.key.starts_with("path.")
        && matches!(last, Some("up" | "down" | "up_rule" | "down_rule"))
}

/// Returns both values without their common parts.
fn values(setting: &SettingChange) -> (String, String) {
    let [from, to] =
        [&setting.from, &setting.to].map(|value| value.as_deref().unwrap_or("its default"));
    let is_spec = setting.is_queue() || is_link(setting);
    if is_spec { apart(from, to) } else { (from.to_owned(), to.to_owned()) }
}

fn is_said_by(setting: &SettingChange, first: &str, other: &str) -> bool {
    let (from, to) = values(setting);
    setting.is_queue() && first.contains(&from) && other.contains(&to)
}

/// Returns `cake instead of fifo`; empty if a value is too long for a sentence.
fn change(setting: &SettingChange) -> String {
    let (from, to) = values(setting);
    let is_long = from.chars().count().max(to.chars().count()) > MOST_VALUE;
    if is_long { String::new() } else { format!("{to} instead of {from}") }
}

/// Longest value in a sentence, characters.
const MOST_VALUE: usize = 40;
/// Maximum number of changes in a sentence with their values.
const MOST_CHANGES: usize = 4;

/// Joins keys in words: `up queue and rtt`; for queues of both directions `both queues at modem`.
fn keys_in_words(keys: &[&str]) -> String {
    let twin = |key: &str| {
        let (start, last) = key.rsplit_once('.')?;
        let other = match last {
            "up_queue" => "down_queue",
            "down_queue" => "up_queue",
            _ => return None,
        };
        keys.contains(&format!("{start}.{other}").as_str()).then(|| format!("{start}.both_queues"))
    };
    let mut words: Vec<String> = Vec::new();
    for key in keys {
        let key = key_in_words(&twin(key).unwrap_or_else(|| (*key).to_owned()));
        if !words.contains(&key) {
            words.push(key);
        }
    }
    list(&words)
}

/// Describes a key: `up queue at modem` for `path.hop.modem.up_queue`, `up link` for `path.up`,
/// `count of upload` for `flow.upload.count`.
fn key_in_words(key: &str) -> String {
    let plain = |key: &str| match key {
        "up" | "down" => format!("{key} link"),
        key => key.replace('_', " "),
    };
    if let Some((hop, key)) = key.strip_prefix("path.hop.").and_then(|key| key.rsplit_once('.')) {
        return format!("{} at {hop}", plain(key));
    }
    match key.strip_prefix("flow.").and_then(|key| key.rsplit_once('.')) {
        Some((flow, key)) => format!("{} of {flow}", plain(key)),
        None => plain(key.strip_prefix("path.").unwrap_or(key)),
    }
}

/// Returns the parts of two SPECs that differ: their disciplines, or the parameters of one.
fn apart(from: &str, to: &str) -> (String, String) {
    let cut = |spec: &str| {
        let (head, rest) = spec.split_once(':').unwrap_or((spec, ""));
        (head.to_owned(), parameters(rest))
    };
    let ((from_head, from_rest), (to_head, to_rest)) = (cut(from), cut(to));
    if from_head != to_head {
        return (from_head, to_head);
    }
    let own = |mine: &[String], others: &[String]| {
        let mine: Vec<&str> =
            mine.iter().filter(|it| !others.contains(it)).map(String::as_str).collect();
        if mine.is_empty() { "its default".to_owned() } else { mine.join(",") }
    };
    (own(&from_rest, &to_rest), own(&to_rest, &from_rest))
}

/// Splits the parameters of a SPEC; commas in brackets belong to an inner SPEC.
fn parameters(text: &str) -> Vec<String> {
    let (mut all, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, all.last_mut()) {
            (',', _) if depth == 0 => all.push(String::new()),
            (_, Some(last)) => last.push(c),
            (_, None) => {}
        }
    }
    all.retain(|parameter| !parameter.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use underload_record::schema::VariantRecord;

    use super::*;

    fn variant(factors: &[(&str, &str)]) -> VariantRecord {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        VariantRecord { factors: factors.iter().map(own).collect(), ..VariantRecord::default() }
    }

    fn words(first: &VariantRecord, other: &VariantRecord) -> String {
        beside(&SettingChange::between(first, other), "a", "b")
    }

    #[test]
    fn every_setting_in_which_two_variants_differ_is_named() {
        let fifo = variant(&[("path.up_queue", "fifo"), ("flow.upload.count", "1")]);
        let pie = variant(&[("path.up_queue", "pie"), ("flow.upload.count", "1")]);
        let busy_pie = variant(&[("path.up_queue", "pie"), ("flow.upload.count", "8")]);
        let difference = SettingChange::between(&fifo, &pie);
        assert_eq!(beside(&difference, "a", "b"), " (up queue: pie instead of fifo)");
        assert_eq!(beside(&difference, "fifo-10", "pie-10"), "", "the names say it");
        assert!(!is_mixed(&difference));
        let two = SettingChange::between(&fifo, &busy_pie);
        let said = " (up queue: pie instead of fifo, count of upload: 8 instead of 1)";
        assert_eq!(beside(&two, "a", "b"), said);
        assert_eq!(beside(&two, "fifo", "pie"), said, "the names do not say all");
        assert!(is_mixed(&two));
        assert_eq!(SettingChange::between(&fifo, &fifo), [], "nothing");
        let (plain, slow) = (variant(&[]), variant(&[("path.up", "1mbit")]));
        let line = SettingChange::between(&plain, &slow);
        assert_eq!(beside(&line, "a", "b"), " (up link: 1mbit instead of its default)");
    }

    #[test]
    fn the_rate_of_a_shaper_is_shown_also_if_names_say_the_queue() {
        let between = |at: &str, up: &str, down: &str| {
            let keys = ["up", "down"].map(|way| format!("path.{at}{way}_queue"));
            let plain = variant(&[(&keys[0], "fifo"), (&keys[1], "fifo:limit=1MB")]);
            let shaped = variant(&[(&keys[0], up), (&keys[1], down)]);
            SettingChange::between(&plain, &shaped)
        };
        let router = between("hop.router.", "cake:rate=9500kbit", "cake:nat=on,rate=47500kbit");
        let said = " (both queues at router: cake instead of fifo, at 47.5 Mbit/s down and 9.50 Mbit/s \
                    up)";
        assert_eq!(beside(&router, "no-router", "router-cake"), said);
        let line = between("", "cake:rate=19mbit", "cake:rate=95mbit");
        assert_eq!(beside(&line, "fifo", "cake"), " (at 95.0 Mbit/s down and 19.0 Mbit/s up)");
        assert_eq!(beside(&between("", "pie", "pie:target=5ms"), "fifo", "pie"), "");
        let (fast, slow) = (
            variant(&[("path.up_queue", "cake:rate=9mbit")]),
            variant(&[("path.up_queue", "cake:rate=8mbit")]),
        );
        let rates = SettingChange::between(&fast, &slow);
        assert_eq!(beside(&rates, "a", "b"), " (up queue: rate=8mbit instead of rate=9mbit)");
    }

    #[test]
    fn the_queues_of_both_directions_are_one_change() {
        let both = |spec: &str, at: &str| {
            let [up, down] = ["up", "down"].map(|way| format!("path.{at}{way}_queue"));
            [(up, spec.to_owned()), (down, spec.to_owned())]
        };
        let of = |settings: Vec<(String, String)>| VariantRecord {
            factors: settings.into_iter().collect(),
            ..VariantRecord::default()
        };
        let today = of(both("fifo:limit=256KiB", "").to_vec());
        let sqm = of(both("cake", "").to_vec());
        assert_eq!(words(&today, &sqm), " (both queues: cake instead of fifo)");
        let mesh = |spec| both(spec, "hop.mesh.");
        let (today, sqm) = (of(mesh("fifo").to_vec()), of(mesh("fq-codel").to_vec()));
        assert_eq!(words(&today, &sqm), " (both queues at mesh: fq-codel instead of fifo)");
        let (today, sqm) = (
            of([mesh("fifo"), both("fifo", "hop.modem.")].concat()),
            of([mesh("cake"), both("pie", "hop.modem.")].concat()),
        );
        let said = " (both queues at mesh: cake instead of fifo, both queues at modem: pie instead \
                    of fifo)";
        assert_eq!(words(&today, &sqm), said);
        let mut shaped = of([both("cake", "")].concat());
        let mut plain = of([both("fifo", "")].concat());
        for (key, from, to) in [
            ("path.up", "10mbit", "9mbit"),
            ("path.down", "50mbit", "45mbit"),
            ("path.rtt", "20ms", "21ms"),
            ("path.overhead", "0B", "18B"),
        ] {
            plain.factors.insert(key.to_owned(), from.to_owned());
            shaped.factors.insert(key.to_owned(), to.to_owned());
        }
        let said = " (different values of down link, both queues, overhead, rtt and up link)";
        assert_eq!(words(&plain, &shaped), said);
    }

    #[test]
    fn a_sentence_names_the_parts_of_two_specs_that_differ() {
        let words = |key: &str, from: &str, to: &str| {
            words(&variant(&[(key, from)]), &variant(&[(key, to)]))
        };
        let queue = "path.hop.modem.up_queue";
        let bode = [
            "bode:profile=paper,limit=80p,bound=10ms",
            "bode:profile=paper,limit=1000p,bound=10ms",
        ];
        assert_eq!(
            words(queue, bode[0], bode[1]),
            " (up queue at modem: limit=1000p instead of limit=80p)"
        );
        let lld = ["docsis-lld", "docsis-lld:grant-rate=15mbit"];
        assert_eq!(
            words(queue, lld[0], lld[1]),
            " (up queue at modem: grant-rate=15mbit instead of its default)"
        );
        assert_eq!(
            words(queue, "fifo:limit=8p", "pie"),
            " (up queue at modem: pie instead of fifo)"
        );
        assert_eq!(words("flow.upload.count", "1", "10"), " (count of upload: 10 instead of 1)");
        let long = [
            "diffserv:high=[bode:profile=patch,bound=50ms],low=[fifo:limit=1500kB]",
            "diffserv:high=[fifo:limit=5p],low=[fifo:limit=15p]",
        ];
        assert_eq!(words("path.down_queue", long[0], long[1]), " (a different down queue)");
        let one = "diffserv:high=[fifo:limit=5p],low=[fifo:limit=1500kB]";
        assert_eq!(
            words("path.down_queue", long[1], one),
            " (down queue: low=[fifo:limit=1500kB] instead of low=[fifo:limit=15p])"
        );
    }
}
