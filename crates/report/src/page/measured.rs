//! The sections on a measured line: grade, meaning, advice, and the findings of each step.

use maud::{Markup, html};
use underload_record::judgement::{AddedDelay, SCALE, StepJudgement, judge_findings};
use underload_record::schema::{Finding, LatencySummary, MarkingFate, Phase, Quantile};
use underload_store::RunData;

use super::parts::{Column, NOTHING, folded, head, table, table_of, unit_head, words_head};
use crate::measured::{self, findings};
use crate::words::{ms, one_line, significant, thousands};

/// Renders the grade with its sentence, what it means, and the advice. `None` if the run is not a
/// measurement with known steps. [`section`] has the findings in words.
pub(super) fn card(runs: &[RunData]) -> Option<Markup> {
    let findings = findings(runs)?;
    let judgement = judge_findings(&findings);
    let opening = measured::opening(&findings, &judgement);
    Some(html! {
        @if let Some(grade) = judgement.grade {
            div.card {
                span.grade.(measured::colour(grade)) { (grade) }
                p.verdict { @if let Some(line) = &opening { (one_line(line)) } }
            }
            "\n"
        } @else if let Some(line) = &opening {
            p.verdict { (one_line(line)) } "\n"
        } @else {
            p.verdict { "No step can be believed, so the line has no grade." } "\n"
        }
        @if !judgement.uses.is_empty() {
            ul.uses {
                "\n"
                @for it in &judgement.uses {
                    li {
                        span.suits.(it.suits) { (it.suits) }
                        (measured::subject(it)) ": " (measured::because(it))
                    }
                    "\n"
                }
            }
            "\n"
        }
        @if let Some(cure) = &judgement.cure {
            p.advice { (one_line(&measured::advice(cure))) } "\n"
        }
    })
}

/// Renders a row per step, and the fate of the markings.
pub(super) fn section(runs: &[RunData]) -> Markup {
    let Some(findings) = findings(runs) else { return html! {} };
    let judgement = judge_findings(&findings);
    let steps = findings.iter().zip(&judgement.steps);
    let rows: Vec<Markup> = steps.map(|(finding, judged)| step_row(finding, judged)).collect();
    let marked: Vec<(&Finding, &MarkingFate)> = findings
        .iter()
        .flat_map(|finding| finding.markings.iter().map(move |fate| (finding, fate)))
        .collect();
    let changed = marked.iter().any(|(_, fate)| {
        let is_marked = fate.up_ce_percent > 0.0 || fate.down_ce_percent > 0.0;
        is_marked || fate.up_became.is_some() || fate.down_became.is_some()
    });
    let said = measured::step_lines(&findings, &judgement);
    html! {
        h2 { "Step by step" } "\n"
        p.note {
            "Added beside: p99 of the probes beside the load (of too few samples p95 or p90, named "
            "there) above the idle p50. Added inside: as much of the round trips of the loading "
            "connections, as their senders' kernels smooth them; a dash is not known. The worse of "
            "both has the grade: " (scale()) ", as in DSLReports' test, for p99 instead of the mean. "
            "RPM and QoO are for experts. Buffer: what a plain buffer would hold. Steps load the "
            "line in different ways and are not compared with each other."
        }
        "\n"
        (table("Grade, delay and rate of each step", &step_heads(), &rows))
        @if findings.iter().any(|finding| !finding.cannot_tell.is_empty()) {
            p.note {
                "A dash is what this test cannot tell, not zero. The p50 under load is that of "
                "the readings named below, if it names some."
            }
            "\n"
        }
        (where_delayed(&findings))
        ul.said {
            "\n"
            @for line in &said { li { (one_line(line)) } "\n" }
        }
        "\n"
        @if !marked.is_empty() {
            (folded("What became of markings", changed, &markings(&marked)))
        }
    }
}

/// Formats the limits of the grades: `A+ below 5 ms and up to 1 % of loss, …`.
fn scale() -> String {
    let known = SCALE.iter().filter(|it| it.below_ms.is_finite());
    let limits = known.map(|it| {
        format!("{} below {} ms and up to {} % of loss", it.grade, it.below_ms, it.lost_percent_max)
    });
    limits.collect::<Vec<_>>().join(", ")
}

/// Renders where the load of each step adds delay; nothing if that was not measured.
fn where_delayed(findings: &[Finding]) -> Markup {
    let rows: Vec<Markup> = findings.iter().flat_map(location_rows).collect();
    if rows.is_empty() {
        return html! {};
    }
    let heads = measured::LOCATION_HEADS;
    let heads = html! {
        (words_head("step")) (words_head(heads[0])) (words_head(heads[1]))
        @for name in &heads[2..5] { (unit_head(name, "ms")) }
        (head(heads[5]))
    };
    html! {
        h3 { "Where the delay is" } "\n"
        p.note {
            "Delay that the load adds between two hops that were probed at the same times, above "
            "the idle median. A router that is slow to answer is not counted as a queue."
        }
        "\n"
        (table("Where the delay of each step is", &heads, &rows))
    }
}

fn location_rows(finding: &Finding) -> Vec<Markup> {
    let rows = finding.location.as_deref().map(measured::location_rows).unwrap_or_default();
    let row = |cells: [String; 6]| {
        html! {
            tr {
                th.text { (one_line(&finding.step)) }
                @for cell in &cells[..2] { td.text { (one_line(cell)) } }
                @for cell in &cells[2..] { td { (cell) } }
            }
        }
    };
    rows.into_iter().map(row).collect()
}

fn step_heads() -> Markup {
    html! {
        (words_head("step")) (head("grade")) (unit_head("p99 under load", "ms"))
        (unit_head("added beside", "ms")) (unit_head("p99 inside the load", "ms"))
        (unit_head("added inside", "ms")) (unit_head("p50 under load", "ms"))
        (unit_head("idle p50", "ms"))
        (unit_head("buffer", "KiB")) (unit_head("responsiveness", "RPM, draft-09"))
        (unit_head("lowest QoO", "%"))
        (words_head("carried"))
    }
}

fn step_row(finding: &Finding, judged: &StepJudgement) -> Markup {
    let value = |value: Option<f64>| value.map_or(NOTHING.to_owned(), significant);
    let (idle, load) = (finding.headline(Phase::Idle), finding.headline(Phase::Load));
    // Servers of another kind report readings that replace the median.
    let readings = finding.foreign.as_ref().and_then(|foreign| foreign.loaded.first());
    let medians = |all: Option<&LatencySummary>| all?.told_ns(Quantile::P50);
    let median = medians(load).or(readings.map(|it| it.distribution.p50_ns));
    let inside_high = finding.worst_inside().and_then(|it| it.distribution.highest_above_median());
    let load_high = load.and_then(LatencySummary::highest_answered);
    html! {
        tr {
            th.text.step {
                (finding.step)
                @if !finding.valid {
                    " " span.missed { @if finding.uncertain { "UNCERTAIN" } @else { "INVALID" } }
                }
                @if !finding.label.is_empty() { " " span.spec { (finding.label) } }
            }
            td { @if let Some(grade) = judged.grade { b { (grade) } } @else { (NOTHING) } }
            td { b { (load_high.map_or(NOTHING.to_owned(), high)) } }
            td { (judged.beside.map_or(NOTHING.to_owned(), added_ms)) }
            td { b { (inside_high.map_or(NOTHING.to_owned(), high)) } }
            td { (judged.inside.map_or(NOTHING.to_owned(), added_ms)) }
            td { (median.map_or(NOTHING.to_owned(), ms)) }
            td { (medians(idle).map_or(NOTHING.to_owned(), ms)) }
            td { (value(finding.buffer_kib)) }
            td { (finding.rpm.map_or(NOTHING.to_owned(), |rpm| format!("{:.0}", rpm.draft_09))) }
            td { (value(judged.lowest_qoo())) }
            td.text { (measured::rates(finding)) }
        }
    }
}

/// Formats the latency that a load adds, ms; `lost` if its percentile is a lost probe.
fn added_ms(delay: AddedDelay) -> String {
    delay.added_ns.map_or("lost".to_owned(), |ns| ms(ns.max(0)))
}

/// Formats `399`, or with the quantile's name unless it is p99: `399 (p95)`.
fn high((quantile, ns): (Quantile, i64)) -> String {
    match quantile {
        Quantile::P99 => ms(ns),
        other => format!("{} ({})", ms(ns), other.name()),
    }
}

fn markings(rows: &[(&Finding, &MarkingFate)]) -> Markup {
    type Cells<'c, 'r> = Column<'c, (&'r Finding, &'r MarkingFate)>;
    let became = |became: &Option<String>| became.clone().unwrap_or_default();
    let columns = [
        Cells::new(words_head("step"), |(finding, _)| html! { th.text { (finding.step) } }),
        Cells::words("probe", |(_, fate)| fate.probe.clone()),
        Cells::words("sent as", |(_, fate)| fate.sent.clone()),
        Cells::numbers("answers", |(_, fate)| thousands(fate.answers)),
        Cells::units("kept up", "%", |(_, fate)| significant(fate.up_kept_percent)),
        Cells::words("became", |(_, fate)| became(&fate.up_became)),
        Cells::units("CE up", "%", |(_, fate)| significant(fate.up_ce_percent)),
        Cells::units("kept down", "%", |(_, fate)| {
            fate.down_kept_percent.map_or(NOTHING.to_owned(), significant)
        }),
        Cells::words("became", |(_, fate)| became(&fate.down_became)),
        Cells::units("CE down", "%", |(_, fate)| significant(fate.down_ce_percent)),
    ];
    table_of("Markings of each step", &columns, rows)
}
