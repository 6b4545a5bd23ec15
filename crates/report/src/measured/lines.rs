//! Sentences about the findings of a measured line.

use underload_record::judgement::{AddedDelay, Judgement, StepJudgement, judge_findings};
use underload_record::schema::{
    Direction, Finding, ForeignTest, InsideLatency, LatencySummary, Marking, MarkingFate, Phase,
    Quantile, Readings, Recovery, Rpm, Vantage,
};
use underload_store::RunData;

use super::location;
use super::words::{self, added_words, late, ms};
use crate::words::{count, list};

/// Least loss of probes under load that is mentioned, percent.
const LOSS_PERCENT: f64 = 1.0;

/// Least time of the server for an answer that is mentioned. A server that is not busy takes less than
/// a millisecond.
const SERVER_NS: i64 = 5_000_000;

/// Returns the findings of a single measured run, in order of its steps.
pub(crate) fn findings(runs: &[RunData]) -> Option<Vec<Finding>> {
    let [run] = runs else { return None };
    let trials = run.record.trials.iter();
    let found: Vec<Finding> =
        trials.filter_map(|trial| trial.finding.as_deref().cloned()).collect();
    (!found.is_empty()).then_some(found)
}

/// Returns the grade and what it means, sentences about each step, then advice.
pub fn finding_lines(findings: &[Finding]) -> Vec<String> {
    judged_lines(findings, step_lines)
}

/// As [`finding_lines`], without the sentences about each step.
pub(crate) fn grade_lines(findings: &[Finding]) -> Vec<String> {
    judged_lines(findings, |_, _| Vec::new())
}

fn judged_lines(
    findings: &[Finding],
    of_steps: fn(&[Finding], &Judgement) -> Vec<String>,
) -> Vec<String> {
    let judgement = judge_findings(findings);
    let mut lines: Vec<String> = opening(findings, &judgement).into_iter().collect();
    lines.extend(judgement.uses.iter().map(words::use_line));
    lines.extend(of_steps(findings, &judgement));
    lines.extend(judgement.cure.as_ref().map(words::advice));
    lines
}

/// Returns sentences about each step.
pub(crate) fn step_lines(findings: &[Finding], judgement: &Judgement) -> Vec<String> {
    let steps = findings.iter().zip(&judgement.steps);
    steps.flat_map(|(finding, judged)| of_step(finding, judged)).collect()
}

/// Returns the grade, or why there is none although steps are valid. For a test of another tool it
/// names the values that decide and what the test cannot tell.
pub(crate) fn opening(findings: &[Finding], judgement: &Judgement) -> Option<String> {
    let Some(opening) = words::opening(judgement) else {
        let mut believed = findings.iter().filter(|finding| finding.valid);
        let unknown = believed.find_map(unknown)?;
        return Some(format!(
            "No grade: the test has fewer than {} round trips under load, or none without it; not \
             known: {unknown}.",
            Quantile::GRADED_MIN
        ));
    };
    let steps = findings.iter().zip(&judgement.steps);
    let mut worst = steps.filter(|(_, step)| judgement.worst().is_some_and(|it| it == *step));
    let basis = worst.next().and_then(|(finding, step)| basis(finding, step));
    Some(opening + &basis.unwrap_or_default())
}

/// Returns what a test of another tool does not measure, as the end of a sentence.
fn unknown(finding: &Finding) -> Option<String> {
    let unmeasured: Vec<String> =
        finding.cannot_tell.iter().map(|it| it.name().to_owned()).collect();
    (!unmeasured.is_empty()).then(|| list(&unmeasured))
}

/// Returns what the grade of another tool's test rests on, and what the test cannot tell.
fn basis(finding: &Finding, judged: &StepJudgement) -> Option<String> {
    let unknown = unknown(finding)?;
    let (load, inside) = (finding.headline(Phase::Load), finding.worst_inside());
    let readings = finding.foreign.as_ref().and_then(|it| it.loaded.first());
    let values = match (readings, judged.vantage?) {
        (Some(it), _) => format!("{} {}", it.distribution.count, it.of),
        (None, Vantage::Beside) => count(load?.sent, "probe"),
        (None, Vantage::Inside) => format!("{} readings", inside?.distribution.count),
    };
    let what = if judged.by_loss { "losses" } else { judged.worst()?.quantile.name() };
    Some(format!(" Graded by the {what} of {values}; not known: {unknown}."))
}

fn of_step(finding: &Finding, judged: &StepJudgement) -> Vec<String> {
    let name = &finding.step;
    if let Some(foreign) = &finding.foreign {
        return of_foreign(finding, foreign, judged);
    }
    if !finding.valid {
        let reasons = finding.invalid_because.join("; ");
        let mut lines = vec![if finding.uncertain {
            format!(
                "{name}: UNCERTAIN, no grade: {reasons}. This machine, not the line, may have been \
                 slow."
            )
        } else {
            format!("{name}: INVALID, no verdict: {reasons}.")
        }];
        lines.extend(finding.headline(Phase::Load).map(|load| {
            let rates = rates(finding);
            format!("{name} (not reliable): {rates}; latency {}.", quantiles(load))
        }));
        lines.extend(budget(finding));
        return lines;
    }
    let mut lines = vec![match (finding.headline(Phase::Idle), finding.headline(Phase::Load)) {
        (idle, Some(load)) => loaded(finding, judged, idle, load),
        (Some(idle), None) => format!("{name}: idle latency {}", quantiles(idle)),
        (None, None) => format!("{name}: no probe came back"),
    }];
    lines.extend(inside(finding, judged));
    lines.extend(location::lines(finding, judged));
    lines.extend(budget(finding));
    lines.extend(held_back(finding));
    lines.extend(finding.buffer_kib.map(|kib| {
        format!(
            "{name}: something on the way (modem or router) keeps up to {kib:.0} KiB waiting, if \
             it is a plain buffer"
        )
    }));
    lines.extend(finding.server_ns.filter(|ns| *ns >= SERVER_NS).map(|ns| {
        let took = late(ms(ns));
        format!("{name}: the server itself took {took} to answer (p99); no delay includes it")
    }));
    lines.extend(finding.recovery.map(|Recovery { length_ns, is_cut }| {
        let state = if is_cut { "still there" } else { "gone" };
        format!("{name}: the delay is {state} {} after the load ends", late(length_ns as f64 / 1e6))
    }));
    lines.extend(other_classes(finding));
    lines.extend(finding.rpm.map(|rpm| responsiveness(name, rpm)));
    lines.extend(quality_of_outcome(judged));
    lines.extend(finding.markings.iter().filter_map(|fate| marking(name, fate)));
    lines.extend(finding.ce_alarms.iter().map(|alarm| format!("{name}: {alarm}")));
    lines
}

/// Describes a step against a server of another kind by what that server reports.
fn of_foreign(finding: &Finding, foreign: &ForeignTest, judged: &StepJudgement) -> Vec<String> {
    let name = &finding.step;
    let mut lines = Vec::new();
    let mut first = rates(finding);
    if !finding.valid {
        lines.push(format!("{name}: INVALID, no verdict: {}.", finding.invalid_because.join("; ")));
        first = format!("Not reliable: {first}");
    }
    let whereabouts = |it: &Readings| format!("{} the load {}", it.vantage, readings(it));
    let mut loaded = foreign.loaded.iter();
    let unknown = || "; under load the server reports no round trip".to_owned();
    let waits =
        loaded.next().map_or_else(unknown, |it| format!("; round trip {}", whereabouts(it)));
    let smallest_ns = foreign.smallest_ns.and_then(|ns| i64::try_from(ns).ok());
    let without = smallest_ns.map_or(String::new(), |ns| format!(", {} ms without", in_ms(ns)));
    let added = judged.worst().map(|it| format!(". The load {}", graded(it, "that without")));
    lines.push(format!("{name}: {first}{waits}{without}{}.", added.unwrap_or_default()));
    lines.extend(loaded.map(|it| format!("{name}: {}", whereabouts(it))));
    lines.extend(finding.rpm.map(|rpm| responsiveness(name, rpm)));
    lines.extend(foreign.told.iter().map(|told| format!("{name}: {told}")));
    lines
}

/// Formats readings: `p50 36.0 ms, p90 41.2 ms, largest 60.3 ms (40 smoothed readings)`.
fn readings(it: &Readings) -> String {
    let Readings { of, distribution: all, .. } = it;
    let [p50, p90, max] = [all.p50_ns, all.p90_ns, all.max_ns].map(in_ms);
    format!("p50 {p50} ms, p90 {p90} ms, largest {max} ms ({} {of})", all.count)
}

fn in_ms(ns: i64) -> String {
    let value = ms(ns);
    if value < 1.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

fn responsiveness(name: &str, rpm: Rpm) -> String {
    let source = if rpm.approximated_from_packets { "packets, not HTTP" } else { "HTTP exchanges" };
    format!(
        "{name}, for experts: responsiveness {:.0} RPM by draft-09; {:.0} (P90) and {:.0} (trimmed \
         mean) as goresponsiveness computes it; from {source}",
        rpm.draft_09, rpm.goresponsiveness_p90, rpm.goresponsiveness_trimmed_mean
    )
}

/// Formats the Quality of Outcome of the applications.
fn quality_of_outcome(judged: &StepJudgement) -> Option<String> {
    let scores: Vec<String> =
        judged.qoo.iter().map(|it| format!("{} {:.0} %", it.application, it.score)).collect();
    let scores = (!scores.is_empty()).then(|| scores.join(", "))?;
    Some(format!(
        "{}, for experts: Quality of Outcome (draft-ietf-ippm-qoo-10): {scores}",
        judged.step
    ))
}

/// Formats a step's rates: `19.0 Mbit/s up (95 % of the tier)`.
pub(crate) fn rates(finding: &Finding) -> String {
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

fn loaded(
    finding: &Finding,
    judged: &StepJudgement,
    idle: Option<&LatencySummary>,
    load: &LatencySummary,
) -> String {
    let (name, rates) = (&finding.step, rates(finding));
    let Some(added) = judged.beside else {
        return format!("{name}: {rates}; working latency {}", quantiles(load));
    };
    let idle = idle.map_or(String::new(), |idle| format!(", idle {}", quantiles(idle)));
    let lost = if load.lost_percent() >= LOSS_PERCENT {
        format!("; {:.1} % of the probes were lost", load.lost_percent())
    } else {
        String::new()
    };
    format!(
        "{name}: {rates}; working latency {}{idle}. The load {}{lost}.",
        quantiles(load),
        graded(&added, IDLE)
    )
}

/// The delay that is subtracted.
const IDLE: &str = "the idle p50";

/// Formats `adds 209 ms (p99 minus the idle p50): grade D`.
fn graded(added: &AddedDelay, idle: &str) -> String {
    let how = added
        .added_ns
        .map_or(String::new(), |_| format!(" ({} minus {idle})", added.quantile.name()));
    format!("{}{how}: grade {}", added_words(added.ms()), added.grade)
}

/// Describes the round trips of the loading connections, or why they are unknown.
fn inside(finding: &Finding, judged: &StepJudgement) -> Vec<String> {
    let name = &finding.step;
    if let Some(reason) = &finding.inside_unknown {
        return vec![format!("{name}: round trips inside the load are not known: {reason}")];
    }
    let of_direction = |it: &InsideLatency| {
        let added = judged.inside.filter(|_| finding.inside.len() == 1);
        let grade =
            added.map_or(String::new(), |it| format!(". There the load {}", graded(&it, IDLE)));
        let load = if it.direction == Direction::Up { "uploading" } else { "downloading" };
        format!("{name}: inside the load (the {load} connections) {}{grade}.", quantiles_inside(it))
    };
    finding.inside.iter().map(of_direction).collect()
}

/// Formats `p50 84.0 ms, p99 96.1 ms (2000 readings of 4 connections)`.
fn quantiles_inside(it: &InsideLatency) -> String {
    let high = highest(it.distribution.highest_above_median());
    let connections = count(it.connections, "connection");
    let (p50, readings) = (in_ms(it.distribution.p50_ns), it.distribution.count);
    format!("p50 {p50} ms{high} ({readings} readings of {connections})")
}

/// Formats `, p99 96.1 ms`; empty if no percentile above the median is known.
fn highest(known: Option<(Quantile, i64)>) -> String {
    known.map_or(String::new(), |(quantile, ns)| format!(", {} {} ms", quantile.name(), in_ms(ns)))
}

/// Formats p50, the highest known percentile, and the number of samples.
fn quantiles(latency: &LatencySummary) -> String {
    let p50 = latency.told_ns(Quantile::P50).map_or("-".to_owned(), in_ms);
    let high = highest(latency.highest_answered());
    let of_sent = of_sent(latency);
    let (sent, window_s) = (latency.sent, window_s(latency));
    // Without a digit, half a second would become 0.
    let digits = usize::from(window_s < 1.0);
    format!("p50 {p50} ms{high}{of_sent} ({sent} probes in {window_s:.digits$} s)")
}

fn window_s(latency: &LatencySummary) -> f64 {
    latency.window.length_ns() as f64 / 1e9
}

/// Returns `, p99 of all probes sent 31 ms` if that differs from the percentile of the answered probes.
fn of_sent(latency: &LatencySummary) -> String {
    let Some((quantile, judged)) = latency.highest_judged() else { return String::new() };
    let answered = latency.highest_answered().map(|(_, answered)| in_ms(answered));
    match judged.answered_ns().map(in_ms) {
        None => format!(", {} of all probes sent: lost", quantile.name()),
        same if answered == same => String::new(),
        Some(other) => format!(", {} of all probes sent {other} ms", quantile.name()),
    }
}

/// Says that the load was cut short, and how long the rest was.
fn budget(finding: &Finding) -> Option<String> {
    let load = finding.headline(Phase::Load).filter(|_| finding.budget_spent)?;
    Some(format!(
        "{}: the load ended after {:.1} s, because the bytes that the budget leaves were spent",
        finding.step,
        window_s(load)
    ))
}

/// Returns sentences on limits of the load other than the line.
fn held_back(finding: &Finding) -> Vec<String> {
    let Finding { step, throttled_down, throttled_up, .. } = finding;
    let ways = |down: bool, up: bool| match (down, up) {
        (false, false) => None,
        (true, false) => Some("down"),
        (false, true) => Some("up"),
        (true, true) => Some("both ways"),
    };
    let therefore =
        "the line may be faster than this, and its queue longer under a load that fills it";
    let by_server = ways(*throttled_down, *throttled_up).map(|ways| {
        format!("{step}: the server's limit, not the line, limited the load {ways}: {therefore}")
    });
    let by_rate = ways(finding.capped_down && !throttled_down, finding.capped_up && !throttled_up)
        .map(|ways| {
            format!(
                "{step}: the load {ways} was UDP at a rate of its own, and it arrived: {therefore}"
            )
        });
    by_server.into_iter().chain(by_rate).collect()
}

/// Returns the latencies of the other probes under load.
fn other_classes(finding: &Finding) -> Option<String> {
    let headline = finding.headline(Phase::Load)?;
    let others: Vec<String> = finding
        .latencies
        .iter()
        .filter(|it| {
            it.window.phase == Phase::Load && it.is_open_loop() && it.probe != headline.probe
        })
        .map(|it| format!("{} {}", it.probe, quantiles(it)))
        .collect();
    (!others.is_empty()).then(|| format!("{}: other probes: {}", finding.step, others.join("; ")))
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
        let is_plain = fate.sent.parse() == Ok(Marking::default());
        return (!is_plain).then(|| {
            format!("{step}: {} arrived unchanged both ways ({} answers)", fate.sent, fate.answers)
        });
    }
    Some(format!("{step}: of {}, {} ({} answers)", fate.sent, parts.join(", "), fate.answers))
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{CeAlarm, CeRule, Distribution, PhaseWindow, Unmeasured};

    use super::*;

    /// Returns a distribution whose highest known percentile is the p99.
    fn distribution(count: u64, p50_ms: f64, p99_ms: f64) -> Distribution {
        let [p50_ns, p99_ns] = [p50_ms, p99_ms].map(|ms| (ms * 1e6).round() as i64);
        Distribution { count, p50_ns, p99_ns, max_ns: p99_ns, ..Distribution::default() }
    }

    fn latency(phase: Phase, p50_ms: f64, p99_ms: f64) -> LatencySummary {
        LatencySummary {
            probe: "probe".to_owned(),
            window: PhaseWindow { phase, start_ns: 0, end_ns: 5_000_000_000 },
            sent: 500,
            distribution: Some(distribution(500, p50_ms, p99_ms)),
            ..LatencySummary::default()
        }
    }

    fn up(load_p99_ms: f64) -> Finding {
        Finding {
            step: "up".to_owned(),
            valid: true,
            latencies: vec![
                latency(Phase::Idle, 12.0, 13.0),
                latency(Phase::Load, 85.0, load_p99_ms),
            ],
            goodput_up_mbit_s: Some(19.0),
            tier_up_percent: Some(95.0),
            ..Finding::default()
        }
    }

    #[test]
    fn a_servers_own_time_is_told_if_the_server_is_busy() {
        let said = "up: the server itself took 12 ms to answer (p99); no delay includes it";
        let of = |ms: i64| Finding { server_ns: Some(ms * 1_000_000), ..up(22.0) };
        assert!(finding_lines(&[of(12)]).iter().any(|line| line == said));
        assert!(!finding_lines(&[of(4)]).iter().any(|line| line.contains("the server itself")));
    }

    #[test]
    fn a_load_that_the_budget_ended_says_so() {
        let said = "up: the load ended after 5.0 s, because the bytes that the budget leaves were \
                    spent";
        let cut = Finding { budget_spent: true, ..up(22.0) };
        assert!(finding_lines(&[cut]).iter().any(|line| line == said));
        assert!(!finding_lines(&[up(22.0)]).iter().any(|line| line.contains("budget")));
    }

    #[test]
    fn a_short_queue_that_drops_is_graded_by_its_loss_and_gets_its_own_advice() {
        let delays = up(22.0);
        let mut drops = up(12.5);
        drops.step = "down".to_owned();
        let load = &mut drops.latencies[1];
        (load.sent, load.lost) = (600, 18);
        load.of_sent_ns = [(Quantile::P50, Some(12_100_000)), (Quantile::P99, None)].into();
        let judgement = judge_findings(&[delays.clone(), drops.clone()]);
        assert_eq!(judgement.worst_step.as_deref(), Some("down"));
        let lines = finding_lines(&[drops.clone()]);
        let said = "p50 85.0 ms, p99 12.5 ms, p99 of all probes sent: lost (600 probes in 5 s)";
        assert!(lines.iter().any(|line| line.contains(said)), "{lines:?}");
        assert_eq!(
            lines[0],
            "Grade C: while you upload, 3.0 % of the packets are lost. Calls crackle now and then."
        );
        let advice = lines.last().unwrap();
        assert!(advice.contains("ECN") && !advice.contains("CAKE"), "{advice}");
        // A few losses raise the percentile of all probes sent to the value of a slower answer,
        // which is printed if it differs from that of the answered probes after rounding.
        drops.latencies[1].of_sent_ns = [(Quantile::P99, Some(14_000_000))].into();
        assert!(
            finding_lines(&[drops]).iter().any(|it| it.contains("p99 of all probes sent 14.0 ms"))
        );
        assert!(!finding_lines(&[delays]).iter().any(|it| it.contains("of all")));
    }

    #[test]
    fn a_load_without_an_answer_is_graded_and_says_that_its_probes_were_lost() {
        let mut silent = up(12.5);
        let load = &mut silent.latencies[1];
        (load.lost, load.distribution) = (load.sent, None);
        let lines = finding_lines(&[silent]);
        assert!(lines[0].starts_with("Grade F"), "{lines:?}");
        let said = "p50 - ms, p99 of all probes sent: lost (500 probes in 5 s)";
        assert!(lines.iter().any(|line| line.contains(said)), "{lines:?}");
    }

    #[test]
    fn bloat_is_named_with_its_evidence_and_its_cure() {
        let lines = finding_lines(&[up(399.0)]);
        assert_eq!(
            lines,
            [
                "Grade D: while you upload, everything is 0.4 s late. Calls and games suffer.",
                "Calls: poor (443 ms from mouth to ear; 56 when idle).",
                "Games: poor (399 ms; 12 when idle).",
                "up: 19.0 Mbit/s up (95 % of the tier); working latency p50 85.0 ms, p99 399.0 ms \
                 (500 probes in 5 s), idle p50 12.0 ms, p99 13.0 ms (500 probes in 5 s). The load \
                 adds 387 ms (p99 minus the idle p50): grade D.",
                "up, for experts: Quality of Outcome (draft-ietf-ippm-qoo-10): call 60 %, game 0 %",
                "What to change: On OpenWrt install luci-app-sqm and set 17100 kbit/s up; on a \
                 Fritz!Box list calls and games as real-time applications (Internet > Filters > \
                 Prioritization); otherwise ask the provider for a router with smart queue \
                 management (CAKE or FQ-CoDel).",
            ]
        );
    }

    fn inside_of(p99_ms: f64) -> InsideLatency {
        let distribution = distribution(2_000, 40.0, p99_ms);
        let smallest_ns = Some(12_000_000);
        InsideLatency { direction: Direction::Up, connections: 4, smallest_ns, distribution }
    }

    #[test]
    fn the_grade_is_of_the_worse_of_beside_and_inside_and_says_which() {
        let mut queue_per_flow = up(19.0);
        queue_per_flow.inside = vec![inside_of(80.0)];
        let lines = finding_lines(&[queue_per_flow.clone()]);
        assert_eq!(
            lines[0],
            "Grade C: while you upload, only packets of the upload's own TCP connections are 68 ms late. \
             Web pages in them open a little later; calls and games go on."
        );
        assert!(lines[1].starts_with("Calls: good (63 ms"), "{lines:?}");
        assert!(lines[2].starts_with("Games: good"), "{lines:?}");
        assert_eq!(
            lines[3],
            "Web pages in the load's own TCP connections: good (loaded in 0.8 s; 0.1 when idle)."
        );
        let said = "up: inside the load (the uploading connections) p50 40.0 ms, p99 80.0 ms (2000 \
                    readings of 4 connections). There the load adds 68 ms (p99 minus the idle p50): \
                    grade C.";
        assert!(lines.iter().any(|line| line == said), "{lines:?}");
        let advice = lines.last().unwrap();
        assert!(advice.contains("a queue of its own already"), "{advice}");
        let mut fifo = up(399.0);
        fifo.inside = vec![inside_of(396.0)];
        let lines = finding_lines(&[fifo]);
        assert!(lines[0].contains("everything is 0.4 s late. Calls"));
        let mut equal = up(399.0);
        equal.inside = vec![inside_of(401.0)];
        let lines = finding_lines(&[equal]);
        assert!(lines[0].contains("everything is 0.4 s late. Calls"));
        queue_per_flow.inside.clear();
        queue_per_flow.inside_unknown = Some("no kernel reports them".to_owned());
        let lines = finding_lines(&[queue_per_flow]);
        assert!(lines[0].starts_with("Grade A: "), "{lines:?}");
        let said = "up: round trips inside the load are not known: no kernel reports them";
        assert!(lines.iter().any(|line| line == said), "{lines:?}");
    }

    #[test]
    fn a_good_line_gets_no_advice_and_a_slow_machine_no_verdict() {
        let lines = finding_lines(&[up(20.0)]);
        assert!(lines[0].starts_with("Grade A: ") && lines.len() == 5, "{lines:?}");
        let mut slow = up(399.0);
        slow.valid = false;
        slow.invalid_because = vec!["the prober was 9 ms late".to_owned()];
        let lines = finding_lines(&[slow]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("INVALID") && lines[0].contains("9 ms late"), "{}", lines[0]);
        assert_eq!(
            lines[1],
            "up (not reliable): 19.0 Mbit/s up (95 % of the tier); latency p50 85.0 \
             ms, p99 399.0 ms (500 probes in 5 s)."
        );
    }

    #[test]
    fn the_worst_step_gives_the_grade_and_steps_are_not_compared() {
        let down = Finding {
            step: "down".to_owned(),
            goodput_up_mbit_s: None,
            goodput_down_mbit_s: Some(38.0),
            tier_up_percent: None,
            ..up(20.0)
        };
        let lines = finding_lines(&[down, up(399.0)]);
        assert!(lines[0].contains("while you upload, everything"), "{}", lines[0]);
        assert_eq!(lines[3], "Video: good (38.0 Mbit/s carry 4K).");
        let advice = lines.last().unwrap();
        assert!(advice.contains("17100 kbit/s up") && !advice.contains("down"), "{advice}");
        assert!(!lines.iter().any(|line| line.contains("against")), "{lines:?}");
    }

    #[test]
    fn a_grade_beside_an_invalid_load_is_reported_for_the_valid_load_alone() {
        let void = Finding { step: "down".to_owned(), valid: false, ..up(20.0) };
        let lines = finding_lines(&[void.clone(), up(399.0)]);
        assert!(lines[0].ends_with("Calls and games suffer. Without a grade: down."), "{lines:?}");
        let both = Finding { step: "both".to_owned(), ..up(20.0) };
        let lines = finding_lines(&[void, up(399.0), both]);
        assert!(lines[0].ends_with("Without a grade: down."), "{lines:?}");
    }

    #[test]
    fn a_load_that_did_not_fill_the_line_is_reported_and_does_not_prove_a_slow_line() {
        let down = |mbit_s| Finding {
            step: "down".to_owned(),
            goodput_up_mbit_s: None,
            goodput_down_mbit_s: Some(mbit_s),
            tier_up_percent: None,
            capped_down: true,
            ..up(14.0)
        };
        assert_eq!(
            finding_lines(&[down(2.0)])[..3],
            [
                "Grade A+: the load adds next to nothing: 14 ms under load, 12 when idle. This load did not \
                 fill the line; a full one may be worse.",
                "Calls beside this load: good (58 ms from mouth to ear; 56 when idle).",
                "Games beside this load: good (14 ms; 12 when idle).",
            ]
        );
        let lines = finding_lines(&[down(2.0), Finding { throttled_up: true, ..up(399.0) }]);
        let text = lines.join("\n");
        assert!(lines[0].ends_with("a full one may be worse."), "{text}");
        assert!(
            !text.contains("Video") && text.contains("up: the server's limit, not the line"),
            "{text}"
        );
        assert!(text.contains("down: the load down was UDP at a rate of its own"), "{text}");
        assert!(text.contains("set a little less than the line carries"), "{text}");
        // The video is judged by the measured rate, though the line was not full.
        assert!(finding_lines(&[down(20.0)])[3].starts_with("Video: good (20.0 Mbit/s"));
        // The other direction was full and had a larger delay.
        let lines = finding_lines(&[down(2.0), up(399.0)]);
        assert!(lines[0].starts_with("Grade D: while you upload"), "{lines:?}");
        assert!(lines[0].ends_with("The line was not full in step down: it may be worse then."));
        assert!(lines[1].starts_with("Calls: poor"), "{lines:?}");
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
        let lines = finding_lines(&[marked]);
        assert_eq!(
            lines[5],
            "up: CE alarm: 2.5 % of 200 ECN packets of probe-dscp-0-ect1 up arrived marked in 2 s \
             while nothing was queued: a device marks without congestion, and ECN senders slow \
             down for nothing"
        );
    }

    #[test]
    fn a_load_that_adds_nothing_adds_no_negative_zero() {
        let lines = finding_lines(&[up(11.99)]);
        assert!(lines[0].starts_with("Grade A+"), "{lines:?}");
        assert!(
            lines[3].contains("The load adds less than 1 ms (p99 minus the idle p50): grade A+"),
            "{lines:?}"
        );
    }

    /// A download from a foreign server with three readings.
    fn foreign_download() -> Finding {
        let foreign = ForeignTest {
            test: "ndt7".to_owned(),
            smallest_ns: Some(20_000_000),
            loaded: vec![Readings {
                of: "readings of the loading connection".to_owned(),
                vantage: Vantage::Inside,
                distribution: Distribution { p90_ns: 60_000_000, ..distribution(3, 36.0, 60.0) },
            }],
            told: vec!["1.2 % of the bytes were sent again".to_owned()],
        };
        Finding {
            latencies: Vec::new(),
            goodput_up_mbit_s: None,
            goodput_down_mbit_s: Some(38.0),
            tier_up_percent: None,
            step: "down".to_owned(),
            foreign: Some(Box::new(foreign)),
            cannot_tell: vec![Unmeasured::Losses],
            ..up(20.0)
        }
    }

    #[test]
    fn a_foreign_server_is_graded_by_what_it_measures_and_the_rest_is_named() {
        let mut down = foreign_download();
        assert_eq!(
            finding_lines(&[down.clone()]),
            [
                "No grade: the test has fewer than 10 round trips under load, or none without it; not \
                 known: lost packets.",
                "Video: good (38.0 Mbit/s carry 4K).",
                "down: 38.0 Mbit/s down; round trip inside the load p50 36.0 ms, p90 60.0 ms, \
                 largest 60.0 ms (3 readings of the loading connection), 20.0 ms without.",
                "down: 1.2 % of the bytes were sent again",
            ]
        );
        // Few values are judged by the median, more by the highest percentile that they support.
        for (count, opening, added) in [
            (
                10,
                "Grade A: while you download, packets of the download's own TCP connections are 16 ms \
                 late. Web pages in them hardly notice. Graded by the p50 of 10 readings of the loading \
                 connection; not known: lost packets.",
                "adds 16 ms (p50 minus that without): grade A.",
            ),
            (
                50,
                "Grade B: while you download, packets of the download's own TCP connections are 40 ms \
                 late. Web pages in them hardly notice. Graded by the p90 of 50 readings of the loading \
                 connection; not known: lost packets.",
                "adds 40 ms (p90 minus that without): grade B.",
            ),
        ] {
            down.foreign.as_mut().unwrap().loaded[0].distribution.count = count;
            let lines = finding_lines(&[down.clone()]);
            assert_eq!(lines[0], opening);
            assert!(lines[3].ends_with(added), "{lines:?}");
            // No packet of a call was measured.
            assert!(!lines.iter().any(|it| it.starts_with("Calls")), "{lines:?}");
        }
        // A server with which packets beside the load were measured judges calls, too.
        let mut beside = down.clone();
        let foreign = beside.foreign.as_mut().unwrap();
        foreign.loaded[0].vantage = Vantage::Beside;
        let lines = finding_lines(&[beside]);
        assert!(lines[0].starts_with("Grade B: while you download, everything is 40 ms late."));
        assert!(lines[1].starts_with("Calls: good (100 ms from mouth to ear; 60 when idle)"));
        down.valid = false;
        down.invalid_because = vec!["the connection broke".to_owned()];
        let lines = finding_lines(&[down]);
        assert!(lines[0].starts_with("down: INVALID, no verdict: the connection broke."));
        assert!(lines[1].contains("Not reliable: 38.0 Mbit/s"), "{lines:?}");
    }
}
