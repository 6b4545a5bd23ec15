//! Looks for contradictions between the sentences of a run and its table and trials. Reads the JSON of
//! `run.json` and the text; shares no code with what compares variants and writes sentences.

use std::collections::BTreeMap;

use serde_json::Value;

/// A sentence and the claim that it states.
pub type Told = (Option<String>, String);
/// Kinds of contradictions, each with what shows it.
pub type Found = Vec<(&'static str, String)>;

pub fn contradictions(run: &Value, told: &[Told]) -> Found {
    let mut found = of_text(run, told);
    found.extend(told.iter().flat_map(|(_, text)| of_suitability(text)));
    for comparison in list(run, "comparisons") {
        found.extend(of_comparison(run, comparison, told));
    }
    found
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The name of the variant of a trial or summary; older runs call it `arm`.
fn name(value: &Value) -> &str {
    value["variant"].as_str().or(value["arm"].as_str()).unwrap_or_default()
}

fn names(run: &Value) -> Vec<&str> {
    let all = list(run, "variants").iter().chain(list(run, "arms"));
    all.filter_map(|it| it["name"].as_str()).collect()
}

fn words(text: &str) -> Vec<&str> {
    let is_gap = |letter: char| letter.is_whitespace() || "():;,".contains(letter);
    text.split(is_gap).map(|word| word.trim_end_matches('.')).filter(|it| !it.is_empty()).collect()
}

/// Compares the claims of the whole text with the trials.
fn of_text(run: &Value, told: &[Told]) -> Found {
    let mut found = Vec::new();
    let all: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    if all.iter().all(|text| text.trim().is_empty()) {
        found.push(("an empty result", String::new()));
    }
    let mut statistics: Vec<String> = Vec::new();
    for text in &all {
        let words = words(text);
        for (position, word) in words.iter().enumerate() {
            let next = |more: usize| words.get(position + more).copied().unwrap_or_default();
            let number = word.parse::<f64>();
            if number.as_ref().is_ok_and(|number| !number.is_finite()) {
                found.push(("a number that is none", (*text).to_owned()));
            }
            if word.starts_with('-') && number == Ok(0.0) {
                found.push(("minus zero", (*text).to_owned()));
            }
            if number.is_ok_and(|it| it > 100.0)
                && next(1) == "%"
                && ["less", "lower"].contains(&next(2))
            {
                found.push(("more than 100 % less", (*text).to_owned()));
            }
            let compares = text.starts_with("With ") && text.contains(" against ");
            if compares && *word == "at" && next(1).starts_with('p') {
                statistics.push(format!(
                    "{} {}",
                    next(1),
                    if next(2) == "of" { "of sent" } else { "" }
                ));
            }
        }
        if text.contains("a lost probe") {
            found.push(("a lost probe as a latency", (*text).to_owned()));
        }
        found.extend(ratio_beside_noise(run, text, &all));
    }
    statistics.sort_unstable();
    statistics.dedup();
    if statistics.len() > 1 {
        found.push(("two statistics in one run", statistics.join(", ")));
    }
    let names = names(run);
    let of_many = [
        "variants", " comparisons", "every other variant", "every variant",
        "none with a working latency", "this scenario is about",
    ];
    let is_of_many = all.iter().any(|text| of_many.iter().any(|words| text.contains(words)));
    for name in &names {
        let is_in = |it: &Value| it["variant"] == *name || it["baseline"] == *name;
        let is_compared = list(run, "comparisons").iter().any(is_in);
        if !is_compared
            && !is_of_many
            && names.len() > 1
            && !all.iter().any(|it| it.contains(*name))
        {
            found.push(("a variant in no sentence", format!("{name}: {}", all.join(" | "))));
        }
    }
    found
}

/// Whether `With VARIANT ... with BASELINE ... times lower` is about trials that do not agree.
fn ratio_beside_noise(run: &Value, text: &str, all: &[&str]) -> Option<(&'static str, String)> {
    let rest = text.strip_prefix("With ")?;
    let is_lower = text.contains(" times lower");
    if !is_lower && !text.contains(" times higher") || !text.contains("latency") {
        return None;
    }
    let names = names(run);
    let variant = names
        .iter()
        .copied()
        .filter(|name| rest.starts_with(name))
        .max_by_key(|name| name.len())?;
    let is_other = |name: &&str| *name != variant && rest.contains(&format!(" with {name}"));
    let baseline = names.iter().copied().filter(is_other).max_by_key(|name| name.len())?;
    let own = words(text).windows(2).find(|pair| pair[0] == "at").map(|pair| pair[1].to_owned());
    let common = all.iter().find_map(|text| text.strip_prefix("All these are p")?.split_once(": "));
    let own = own.filter(|it| it.starts_with('p') && it.len() < 6);
    let quantile = own.or(common.map(|(start, _)| format!("p{start}")))?;
    let of_probe =
        |it: &&Value| text.contains(&format!("load of {}", it["probe"].as_str().unwrap_or("?")));
    let probe = list(run, "summaries").first().and_then(|it| {
        let all = list(it, "latencies").iter().filter(of_probe);
        all.max_by_key(|it| it["probe"].as_str().map(str::len))
    });
    let probe =
        probe.map_or(String::new(), |it| it["probe"].as_str().unwrap_or_default().to_owned() + "/");
    let metric = format!("{probe}load.rtt.{quantile}_of_sent");
    let pairs = pairs(run, (variant, &metric), (baseline, &metric));
    let ratios: Vec<f64> = pairs.iter().map(|pair| effect(*pair, true)).collect();
    let (low, high) =
        (ratios.iter().copied().reduce(f64::min)?, ratios.iter().copied().reduce(f64::max)?);
    let (low, _, high) = range(&ratios).unwrap_or((low, f64::NAN, high));
    let agree = if is_lower { high < 1.0 } else { low > 1.0 };
    (!agree).then(|| ("a ratio beside noise", format!("{ratios:?}: {text}")))
}

/// Returns a metric of a trial or summary; infinite for a percentile that falls on a lost probe.
fn value(of: &Value, metric: &str) -> Option<f64> {
    let (owner, rest) =
        metric.split_once('/').map_or((None, metric), |(owner, rest)| (Some(owner), rest));
    if let Some(owner) = owner {
        let is_metric =
            |it: &&Value| it["name"] == rest && (it["flow"].is_null() || it["flow"] == owner);
        let flow = list(of, "flows").iter().find(|flow| flow["name"] == owner);
        let own =
            flow.and_then(|flow| list(flow, "metrics").iter().find(is_metric)?["value"].as_f64());
        let pooled = || list(of, "metrics").iter().find(is_metric)?["value"]["mean"].as_f64();
        if let Some(value) = own.or_else(pooled) {
            return Some(value);
        }
    }
    if let Some(direction) = rest.strip_prefix("goodput.") {
        let flows = list(of, "flows").iter();
        let own: Vec<f64> =
            flows.filter_map(|it| it[format!("goodput_{direction}_bit_per_s")].as_f64()).collect();
        let all = || list(of, "throughputs").iter().find(|it| it["direction"] == direction);
        let mean = || all()?["goodput_bit_per_s"]["mean"].as_f64();
        return (!own.is_empty())
            .then(|| own.iter().sum())
            .or_else(mean)
            .map(|rate: f64| rate / 1e6);
    }
    let (phase, statistic) = rest.split_once(".rtt.")?;
    let is_wanted = |it: &&Value| {
        (it["phase"] == phase || it["window"]["phase"] == phase)
            && it["measure"] == "round-trip"
            && owner.map_or(it["closed_loop"] == false, |owner| it["probe"] == owner)
    };
    let latency = list(of, "latencies").iter().find(is_wanted)?;
    let plain = statistic.trim_end_matches("_of_sent");
    let (share, fewest) = match plain {
        "p50" => (0.5, 1.0),
        "p90" => (0.9, 50.0),
        "p95" => (0.95, 100.0),
        "p99" => (0.99, 500.0),
        "p99.9" => (0.999, 5_000.0),
        _ => (0.0, 1.0),
    };
    let key = format!("{}_ns", plain.replace('.', ""));
    let answered = || latency["distribution"][&key].as_f64().or(latency["pooled"][&key].as_f64());
    let answered =
        || answered().or(latency["over_repeats"][plain]["mean"].as_f64()).map(|ns| ns / 1e6);
    if plain == statistic {
        return answered();
    }
    let (sent, lost) = (latency["sent"].as_f64()?, latency["lost"].as_f64()?);
    if lost > 0.0 && (lost >= sent || (share * sent - 1e-9).ceil() > sent - lost) {
        return (sent >= fewest).then_some(f64::INFINITY);
    }
    let of_sent = latency["of_sent_ns"][plain].as_f64().map(|ns| ns / 1e6);
    // Without samples the statistics are means over trials.
    let trials =
        latency["over_repeats"][plain]["repeats"].as_f64().filter(|_| latency["pooled"].is_null());
    let samples = (sent - lost) / trials.unwrap_or(1.0);
    of_sent.or_else(answered).filter(|_| samples.floor() >= fewest)
}

/// Returns value and baseline of the valid trials with the same number.
fn pairs(run: &Value, variant: (&str, &str), baseline: (&str, &str)) -> Vec<(f64, f64)> {
    let of = |(wanted, metric): (&str, &str)| -> BTreeMap<u64, f64> {
        let trials = list(run, "trials").iter();
        let valid = trials.filter(|it| name(it) == wanted && it["validity"]["verdict"] == "valid");
        valid.filter_map(|it| Some((it["repeat"].as_u64()?, value(it, metric)?))).collect()
    };
    let (own, others) = (of(variant), of(baseline));
    own.iter().filter_map(|(repeat, own)| Some((*own, *others.get(repeat)?))).collect()
}

fn effect((value, baseline): (f64, f64), is_ratio: bool) -> f64 {
    match is_ratio {
        _ if value.to_bits() == baseline.to_bits() => f64::from(u8::from(is_ratio)),
        true => value / baseline,
        false => value - baseline,
    }
}

/// Returns low end, middle and high end of the range of a median by order statistics, 95 %.
fn range(effects: &[f64]) -> Option<(f64, f64, f64)> {
    let (count, mut sorted) = (effects.len(), effects.to_vec());
    sorted.sort_unstable_by(f64::total_cmp);
    let (mut below, mut exactly, mut left_out) = (0.0, 0.5_f64.powi(count as i32), 0);
    loop {
        below += exactly;
        exactly *= (count - left_out) as f64 / (left_out + 1) as f64;
        if count < 5 || 1.0 - 2.0 * (below + exactly) < 0.95 {
            let ends = || (sorted[left_out], sorted[(count - 1) / 2], sorted[count - 1 - left_out]);
            return (count >= 5).then(ends);
        }
        left_out += 1;
    }
}

fn is_noticed(value: f64, baseline: f64, unit: &str) -> bool {
    let (least, share) = match unit {
        "ms" => (1.0, 0.05),
        "s" | "Mbit/s" => (0.05, 0.05),
        "%" => (0.5, 0.05),
        "MOS" => (0.1, 0.0),
        _ => (0.0, 0.05),
    };
    let difference = (value - baseline).abs();
    difference > 0.0 && difference >= least && difference >= share * baseline.abs()
}

/// Whether two numbers are equal when they are printed.
fn is_printed_as(value: f64, printed: f64) -> bool {
    (value - printed).abs() <= (value.abs() * 0.006).max(0.000_6)
}

/// Compares the claims of a comparison with the summaries, the trials and its sentence.
fn of_comparison(run: &Value, it: &Value, told: &[Told]) -> Found {
    let mut found = Vec::new();
    let text_of = |key: &str| it[key].as_str().unwrap_or_default();
    let (variant, baseline, unit) = (text_of("variant"), text_of("baseline"), text_of("unit"));
    let metric = text_of("metric");
    let other = Some(text_of("baseline_metric")).filter(|it| !it.is_empty()).unwrap_or(metric);
    let all = list(run, "comparisons");
    let sentences: Vec<&str> = told
        .iter()
        .filter(|(claim, _)| claim.as_deref() == it["claim"].as_str())
        .map(|(_, text)| text.as_str())
        .collect();
    let text = sentences.first().copied().unwrap_or_default();
    let mut note = |is_found: bool, kind| {
        if is_found {
            found.push((kind, format!("{it}: {text}")));
        }
    };
    note(sentences.len() != 1, "a comparison without its sentence");
    note(
        all.iter().filter(|other| other["variant"] == variant).count() > 1,
        "a variant in two claims",
    );
    note(metric != all[0]["metric"].as_str().unwrap_or_default(), "two statistics in one run");
    let table = |wanted: &str, metric: &str| {
        value(list(run, "summaries").iter().find(|it| name(it) == wanted)?, metric)
            .filter(|it| it.is_finite())
    };
    let (own, others) = (it["value"].as_f64(), it["baseline_value"].as_f64());
    let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 2e-6 + 1e-6 * (a.abs() + b.abs()),
        (a, b) => a.is_none() && b.is_none(),
    };
    let is_of_table = close(own, table(variant, metric)) && close(others, table(baseline, other));
    note(!is_of_table, "a value that the table does not have");
    let is_ratio = it["is_ratio"] == true;
    let pairs = pairs(run, (variant, metric), (baseline, other));
    let effects: Vec<f64> = pairs.iter().map(|pair| effect(*pair, is_ratio)).collect();
    let range = range(&effects).filter(|_| it["pairs"]["is_same"] != true);
    let stored = &it["range"];
    let finite = |end: f64| Some(end).filter(|end| end.is_finite());
    let is_of_trials = match range {
        None => stored.is_null(),
        Some((low, middle, high)) => {
            (close(stored["low"].as_f64(), finite(low)) || low == f64::INFINITY)
                && close(stored["middle"].as_f64(), finite(middle))
                && close(stored["high"].as_f64(), finite(high))
        }
    };
    note(!is_of_trials, "a range that the trials do not have");
    let verdict = text_of("verdict");
    note(verdict != rule(it, range, is_ratio, unit), "a verdict that does not follow");
    found.extend(of_words(all, it, (text, unit), &pairs));
    found
}

/// Compares the sentence of a comparison with its numbers and the pairs of trials.
fn of_words(all: &[Value], it: &Value, (text, unit): (&str, &str), pairs: &[(f64, f64)]) -> Found {
    let mut found = Vec::new();
    let mut note = |is_found: bool, kind| {
        if is_found {
            found.push((kind, format!("{it}: {text}")));
        }
    };
    let verdict = it["verdict"].as_str().unwrap_or_default();
    let is_alone = all.iter().filter(|other| other["claim"] == it["claim"]).count() == 1;
    let says = |words: &str| text.contains(words);
    let has_ratio = says(" times lower") || says(" times higher");
    note(
        is_alone && has_ratio && !["lower", "higher"].contains(&verdict),
        "a ratio that is not sure",
    );
    let lower = pairs.iter().filter(|(own, other)| own < other).count();
    let higher = pairs.iter().filter(|(own, other)| own > other).count();
    let is_against =
        (verdict == "lower" && lower <= higher) || (verdict == "higher" && higher <= lower);
    note(is_against, "a direction against the pairs");
    let noticed = |is: fn(f64, f64) -> bool| {
        pairs.iter().all(|(own, other)| is(*own, *other) && is_noticed(*own, *other, unit))
    };
    let is_felt = !pairs.is_empty()
        && (noticed(|own, other| own < other) || noticed(|own, other| own > other));
    let is_alike =
        (is_alone && (says("hardly differs") || says("is the same"))) || verdict == "alike";
    note(is_alike && is_felt, "no difference beside one in every pair");
    let numbers: Vec<f64> = words(text).iter().filter_map(|word| word.parse().ok()).collect();
    let is_printed = |value: Option<f64>| {
        value.is_none_or(|it| numbers.iter().any(|number| is_printed_as(it, *number)))
    };
    let has_values = !["lost", "not-measured"].contains(&verdict);
    let is_in_text = is_printed(it["value"].as_f64()) && is_printed(it["baseline_value"].as_f64());
    note(is_alone && has_values && !is_in_text, "other numbers than the table");
    let is_one =
        words(text).windows(2).any(|pair| pair[1] == "times" && pair[0].parse() == Ok(1.0));
    note(is_one && has_ratio, "a ratio of 1");
    found
}

/// Compares what a sentence says of an application, `344 ms (fair)`, with the limits of `run-json.md`.
fn of_suitability(text: &str) -> Found {
    let limits = [
        ("camera-to-screen delay p99", [110.0, 250.0]),
        ("page load", [2.0, 4.0]),
        ("round trip p99", [60.0, 200.0]),
        ("MOS", [4.03, 3.6]),
    ];
    let Some((name, [good, fair])) = limits.into_iter().find(|it| text.contains(it.0)) else {
        return Found::new();
    };
    let mut found = Found::new();
    for said in ["good", "fair", "poor"] {
        for (at, _) in text.match_indices(&format!(" ({said}")) {
            let value = words(&text[..at]).into_iter().rev().find_map(|it| it.parse::<f64>().ok());
            let value = value.unwrap_or(f64::NAN);
            let is_rounded = [good, fair].iter().any(|limit| (value / limit - 1.0).abs() < 0.01);
            let reaches = |limit: f64| if name == "MOS" { value >= limit } else { value < limit };
            let expected = match (reaches(good), reaches(fair)) {
                (true, _) => "good",
                (_, true) => "fair",
                _ => "poor",
            };
            if said != expected && !is_rounded {
                found.push(("a suitability that the number does not have", text.to_owned()));
            }
        }
    }
    found
}

/// Returns the verdict by the rule of `run-json.md`.
fn rule(it: &Value, range: Option<(f64, f64, f64)>, is_ratio: bool, unit: &str) -> &'static str {
    let (Some(value), Some(baseline)) = (it["value"].as_f64(), it["baseline_value"].as_f64())
    else {
        let lost = |who: &str| it["lost_percent"][who].as_f64().unwrap_or_default();
        return if lost("variant").max(lost("baseline")) > 50.0 { "lost" } else { "not-measured" };
    };
    let Some((low, middle, high)) = range else { return "too-few" };
    let ratio = value / baseline;
    if is_ratio && baseline > 0.0 && !(1.0 / 2_000.0..=2_000.0).contains(&ratio) {
        return "suspicious";
    }
    let changed = |effect: f64| if is_ratio { effect * baseline } else { baseline + effect };
    let is_noticed = |effect: f64| is_noticed(changed(effect), baseline, unit);
    let equal = if is_ratio { 1.0 } else { 0.0 };
    match () {
        () if !is_noticed(low) && !is_noticed(high) => "alike",
        () if high < equal && is_noticed(middle) && value < baseline => "lower",
        () if low > equal && is_noticed(middle) && value > baseline => "higher",
        () => "not-sure",
    }
}
