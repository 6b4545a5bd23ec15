//! What was found, in plain words with its evidence.

use underload_record::schema::Phase;

use super::findings::{Finding, Latency, MarkingFate};

/// Added delay up to which nobody notices, ms: the jitter that the RRUL specification still counts
/// as delivered.
const GOOD_MS: f64 = 30.0;
/// Added delay from which calls and games suffer, ms.
const POOR_MS: f64 = 100.0;
/// Added delay from which all use of the line suffers, ms.
const BAD_MS: f64 = 300.0;
/// Loss of probes under load worth a sentence, percent.
const LOSS_PERCENT: f64 = 1.0;

/// Words for the delay that a load adds.
fn grade(added_ms: f64) -> &'static str {
    match added_ms {
        added if added < GOOD_MS => "good: calls and games keep working while the line is busy",
        added if added < POOR_MS => "noticeable: games suffer, calls mostly do not",
        added if added < BAD_MS => "poor: calls stutter while the line is busy",
        _ => "bad: everything interactive stalls while the line is busy",
    }
}

/// Sentences about each step, then what to do.
pub fn lines(findings: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = findings.iter().flat_map(of_step).collect();
    let worst =
        |finding: &&Finding| finding.valid && added_ms(finding).is_some_and(|it| it >= GOOD_MS);
    let bloated: Vec<&Finding> = findings.iter().filter(worst).collect();
    if !bloated.is_empty() {
        lines.push(advice(&bloated));
    }
    lines
}

fn of_step(finding: &Finding) -> Vec<String> {
    let name = &finding.step;
    if !finding.valid {
        let reasons = finding.invalid_because.join("; ");
        let mut lines = vec![format!(
            "{name}: INVALID, no verdict: {reasons}. This machine, not the line, may have been \
             slow."
        )];
        lines.extend(finding.headline(Phase::Load).map(|load| {
            let rates = rates(finding);
            format!("{name}: INVALID numbers all the same: {rates}; latency {}.", quantiles(load))
        }));
        return lines;
    }
    let mut lines = vec![match (finding.headline(Phase::Idle), finding.headline(Phase::Load)) {
        (idle, Some(load)) => loaded(finding, idle, load),
        (Some(idle), None) => format!("{name}: idle latency {}", quantiles(idle)),
        (None, None) => format!("{name}: no probe came back"),
    }];
    lines.extend(throttled(finding));
    lines.extend(finding.buffer_kib.map(|kib| {
        format!(
            "{name}: the buffer in front of the bottleneck holds about {kib:.0} KiB, if it is a \
             plain one"
        )
    }));
    lines.extend(other_classes(finding));
    lines.extend(finding.rpm.map(|rpm| {
        format!(
            "{name}: {:.0} RPM by draft-09, {:.0} as goresponsiveness (P90), {:.0} (trimmed mean); \
             from packets, not HTTP",
            rpm.draft_09, rpm.goresponsiveness_p90, rpm.goresponsiveness_trimmed_mean
        )
    }));
    lines.extend(finding.markings.iter().filter_map(|fate| marking(name, fate)));
    lines.extend(finding.ce_alarms.iter().map(|alarm| format!("{name}: {alarm}")));
    lines
}

/// `19.0 Mbit/s up (95 % of the tier)`.
fn rates(finding: &Finding) -> String {
    let rates: Vec<String> = [
        (finding.goodput_down_mbit_s, finding.tier_down_percent, "down"),
        (finding.goodput_up_mbit_s, finding.tier_up_percent, "up"),
    ]
    .into_iter()
    .filter_map(|(rate, percent, direction)| {
        let percent = percent.map_or(String::new(), |it| format!(" ({it:.0} % of the tier)"));
        rate.map(|rate| format!("{rate:.1} Mbit/s {direction}{percent}"))
    })
    .collect();
    if rates.is_empty() { "no load".to_owned() } else { rates.join(" and ") }
}

fn loaded(finding: &Finding, idle: Option<&Latency>, load: &Latency) -> String {
    let (name, rates) = (&finding.step, rates(finding));
    let Some(added) = added_ms(finding) else {
        return format!("{name}: {rates}; working latency {}", quantiles(load));
    };
    let idle = idle.map_or(String::new(), |idle| format!(", idle {}", quantiles(idle)));
    let lost = if load.lost_percent >= LOSS_PERCENT {
        format!("; {:.1} % of the probes were lost", load.lost_percent)
    } else {
        String::new()
    };
    format!(
        "{name}: {rates}; working latency {}{idle}. The load adds {}, which is {}{lost}.",
        quantiles(load),
        added_words(added),
        grade(added)
    )
}

/// `209 ms`. Under load an idle processor wakes sooner, so that the difference can be below zero.
fn added_words(added_ms: f64) -> String {
    if added_ms < 0.5 { "less than 1 ms".to_owned() } else { format!("{added_ms:.0} ms") }
}

/// p50 and p99 (or p90, where there are too few samples), and how many samples they are of.
fn quantiles(latency: &Latency) -> String {
    let ms = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    };
    let (name, high) = match latency.p99_ms {
        Some(p99) => ("p99", Some(p99)),
        None => ("p90", latency.p90_ms),
    };
    let Latency { sent, window_s, .. } = latency;
    format!(
        "p50 {} ms, {name} {} ms ({sent} probes in {window_s:.0} s)",
        ms(latency.p50_ms),
        ms(high)
    )
}

/// What the load adds at its worst: the highest quantile known, above the idle median.
fn added_ms(finding: &Finding) -> Option<f64> {
    let (idle, load) = (finding.headline(Phase::Idle)?, finding.headline(Phase::Load)?);
    Some(load.p99_ms.or(load.p90_ms)? - idle.p50_ms?)
}

fn throttled(finding: &Finding) -> Option<String> {
    let ways = match (finding.throttled_down, finding.throttled_up) {
        (false, false) => return None,
        (true, false) => "down",
        (false, true) => "up",
        (true, true) => "both ways",
    };
    let name = &finding.step;
    Some(format!(
        "{name}: the server's limit held up the load {ways}: the line may be faster than this, and \
         its queue emptier than under a real load"
    ))
}

/// The other classes under load, against the headline.
fn other_classes(finding: &Finding) -> Option<String> {
    let headline = finding.headline(Phase::Load)?;
    let others: Vec<String> = finding
        .latencies
        .iter()
        .filter(|it| it.phase == Phase::Load && !it.closed_loop && it.probe != headline.probe)
        .map(|it| format!("{} {}", it.probe, quantiles(it)))
        .collect();
    (!others.is_empty()).then(|| format!("{}: beside it, {}", finding.step, others.join("; ")))
}

fn marking(step: &str, fate: &MarkingFate) -> Option<String> {
    let changed = |became: &Option<String>, way| {
        became.as_ref().map(|became| format!("{way} it became {became}"))
    };
    let mut parts: Vec<String> =
        [changed(&fate.up_became, "up"), changed(&fate.down_became, "down")]
            .into_iter()
            .flatten()
            .collect();
    for (percent, way) in [(fate.up_ce_percent, "up"), (fate.down_ce_percent, "down")] {
        if percent > 0.0 {
            parts.push(format!("{percent:.1} % were marked CE on the way {way}"));
        }
    }
    if parts.is_empty() {
        let plain = fate.sent == "dscp 0 not-ect";
        return (!plain).then(|| {
            format!("{step}: {} arrived unchanged both ways ({} answers)", fate.sent, fate.answers)
        });
    }
    Some(format!("{step}: of {}, {} ({} answers)", fate.sent, parts.join(", "), fate.answers))
}

fn advice(bloated: &[&Finding]) -> String {
    let is_up = |it: &&&Finding| it.goodput_up_mbit_s.is_some();
    let rate = |rate: Option<f64>| rate.map(|rate| rate * 0.9);
    let up = bloated.iter().filter(is_up).find_map(|it| rate(it.goodput_up_mbit_s));
    let down = bloated.iter().find_map(|it| rate(it.goodput_down_mbit_s));
    let shape: Vec<String> = [(down, "down"), (up, "up")]
        .into_iter()
        .filter_map(|(rate, way)| rate.map(|rate| format!("{rate:.1} Mbit/s {way}")))
        .collect();
    format!(
        "What to change: smart queue management (CAKE or FQ-CoDel) on the router, shaped to about \
         {}; or ask the provider for active queue management on the modem.",
        shape.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{CeAlarm, CeRule, Direction};

    use super::*;

    fn latency(phase: Phase, p50: f64, p99: Option<f64>) -> Latency {
        Latency {
            probe: "probe".to_owned(),
            phase,
            closed_loop: false,
            window_s: 5.0,
            sent: 500,
            lost_percent: 0.0,
            p50_ms: Some(p50),
            p90_ms: Some(p50),
            p99_ms: p99,
            p999_ms: None,
            max_ms: p99,
            up_variation_ms: None,
            down_variation_ms: None,
        }
    }

    fn up(load_p99_ms: f64) -> Finding {
        Finding {
            step: "up".to_owned(),
            label: String::new(),
            valid: true,
            invalid_because: Vec::new(),
            latencies: vec![
                latency(Phase::Idle, 12.0, Some(13.0)),
                latency(Phase::Load, 85.0, Some(load_p99_ms)),
            ],
            goodput_up_mbit_s: Some(19.0),
            goodput_down_mbit_s: None,
            tier_up_percent: Some(95.0),
            tier_down_percent: None,
            buffer_kib: None,
            rpm: None,
            markings: Vec::new(),
            clock_offset_ms: None,
            clock_error_ms: None,
            ce_alarms: Vec::new(),
            throttled_up: false,
            throttled_down: false,
        }
    }

    #[test]
    fn bloat_is_named_with_its_evidence_and_its_cure() {
        let lines = lines(&[up(399.0)]);
        assert_eq!(
            lines[0],
            "up: 19.0 Mbit/s up (95 % of the tier); working latency p50 85.0 ms, p99 399.0 ms (500 \
             probes in 5 s), idle p50 12.0 ms, p99 13.0 ms (500 probes in 5 s). The load adds 387 \
             ms, which is bad: everything interactive stalls while the line is busy."
        );
        assert!(lines[1].contains("17.1 Mbit/s up"), "{}", lines[1]);
    }

    #[test]
    fn a_good_line_gets_no_advice_and_a_slow_machine_no_verdict() {
        assert_eq!(lines(&[up(20.0)]).len(), 1);
        let mut slow = up(399.0);
        slow.valid = false;
        slow.invalid_because = vec!["the prober was 9 ms late".to_owned()];
        let lines = lines(&[slow]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("INVALID") && lines[0].contains("9 ms late"), "{}", lines[0]);
        assert_eq!(
            lines[1],
            "up: INVALID numbers all the same: 19.0 Mbit/s up (95 % of the tier); latency p50 85.0 \
             ms, p99 399.0 ms (500 probes in 5 s)."
        );
    }

    #[test]
    fn a_flow_with_too_many_marks_is_named() {
        let mut marked = up(20.0);
        marked.ce_alarms.push(CeAlarm {
            flow: "probe-dscp-0-ect1".to_owned(),
            direction: Direction::Up,
            rule: CeRule::Idle,
            start_ns: 0,
            end_ns: 2_000_000_000,
            ecn_packets: 200,
            ce_packets: 5,
            rate_bit_per_s: None,
            fair_share_bit_per_s: None,
        });
        let lines = lines(&[marked]);
        assert_eq!(
            lines[1],
            "up: CE alarm: 2.5 % of 200 ECN packets of probe-dscp-0-ect1 up arrived marked in 2 s \
             while nothing was queued: a device marks without reason, and ECN senders slow down \
             for nothing"
        );
    }

    #[test]
    fn a_load_that_adds_nothing_adds_no_negative_zero() {
        let lines = lines(&[up(11.99)]);
        assert!(lines[0].contains("The load adds less than 1 ms, which is good"), "{lines:?}");
    }
}
