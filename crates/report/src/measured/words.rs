//! The words of a judgement. Everything that they say is decided in [`underload_record::judgement`].

use underload_record::judgement::{
    Cure, Grade, Judgement, PAGE_ROUND_TRIPS, STREAMS, Sentences, Shape, StepJudgement, Stream,
    Suitability, Use, UseJudgement,
};
use underload_record::schema::{Direction, Vantage};

use super::location;

/// Returns the sentences of a judgement.
pub fn sentences(judgement: &Judgement) -> Sentences {
    Sentences {
        opening: opening(judgement),
        uses: judgement.uses.iter().map(use_line).collect(),
        advice: judgement.cure.as_ref().map(advice),
    }
}

/// Returns the grade of the worst valid step; `None` if no step has one.
pub(crate) fn opening(judgement: &Judgement) -> Option<String> {
    let worst = judgement.worst()?;
    let (grade, scope, adds) = (judgement.grade?, scope(judgement), adds_where(worst)?);
    let graded: Vec<&StepJudgement> = with_grade(judgement).collect();
    let from = match graded.len() {
        1 => String::new(),
        steps => format!(" (step {}, the worst of {steps})", worst.step),
    };
    if !worst.line_full {
        return Some(format!(
            "Grade {grade} under a load that did not fill the line{scope}: it {adds}{from}; a full \
             line may be worse."
        ));
    }
    let open = names(graded.into_iter().filter(|step| !step.line_full));
    let unknown = if open.is_empty() {
        String::new()
    } else {
        format!(" The line was not full in step {open}: it may be worse then.")
    };
    let means = noticed(grade, worst.noticed?);
    Some(format!(
        "Grade {grade} for latency under load{scope}: the load {adds}{from}; {means}.{unknown}"
    ))
}

fn with_grade(judgement: &Judgement) -> impl Iterator<Item = &StepJudgement> {
    judgement.steps.iter().filter(|step| step.grade.is_some())
}

fn names<'a>(steps: impl Iterator<Item = &'a StepJudgement>) -> String {
    steps.map(|step| step.step.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns `, of step up alone (no grade: down)`; empty if every loaded step is valid.
fn scope(judgement: &Judgement) -> String {
    let void = names(judgement.steps.iter().filter(|step| step.void));
    if void.is_empty() {
        return String::new();
    }
    let step = if with_grade(judgement).count() == 1 { "step" } else { "steps" };
    format!(", of {step} {} alone (no grade: {void})", names(with_grade(judgement)))
}

/// Formats the latency that a load adds and, if both are known, where it does: `adds 31 ms inside
/// it, 7 ms beside it`.
fn adds_where(step: &StepJudgement) -> Option<String> {
    let adds = added_words(step.worst_ms()?);
    let (here, there, other) = match step.vantage? {
        Vantage::Beside => ("beside", "inside", step.inside),
        Vantage::Inside => ("inside", "beside", step.beside),
    };
    let Some(other) = other.and_then(|other| other.added_ms) else { return Some(adds) };
    let other = if other < 0.5 { "less than 1".to_owned() } else { format!("{other:.0}") };
    Some(format!("{adds} {here} it, {other} ms {there} it"))
}

/// Formats added latency: `adds 209 ms`. The value can be negative, because an idle processor wakes
/// later than a busy one; infinity is a lost probe.
pub(super) fn added_words(added_ms: f64) -> String {
    match added_ms {
        f64::INFINITY => "loses the probe at its highest percentile".to_owned(),
        ..0.5 => "adds less than 1 ms".to_owned(),
        added_ms => format!("adds {added_ms:.0} ms"),
    }
}

/// Returns what a user of the line notices if the grade is that of packets beside or inside the
/// load.
fn noticed(grade: Grade, vantage: Vantage) -> &'static str {
    match (vantage, grade) {
        (_, Grade::APlus) => "nobody notices that the line is busy",
        (Vantage::Beside, Grade::A) => "calls and games keep working while the line is busy",
        (Vantage::Beside, Grade::B) => "fast games notice that the line is busy, calls do not",
        (Vantage::Beside, Grade::C) => "fast games suffer while the line is busy, calls may lag",
        (Vantage::Beside, Grade::D) => "calls lag and fast games suffer while the line is busy",
        (Vantage::Beside, Grade::F) => "everything interactive stalls while the line is busy",
        (Vantage::Inside, Grade::A) => {
            "a page over a busy connection opens about as fast as over an idle one"
        }
        (Vantage::Inside, Grade::B) => "a page over a busy connection opens a little later",
        (Vantage::Inside, Grade::C) => "a page over a busy connection opens noticeably later",
        (Vantage::Inside, Grade::D) => "a page over a busy connection opens slowly",
        (Vantage::Inside, Grade::F) => "whatever shares a busy connection stalls",
    }
}

/// Formats a use: `A call on the busy line: good, 63 ms from mouth to ear.`
pub(crate) fn use_line(it: &UseJudgement) -> String {
    format!("A {}{}: {}, {}.", it.name, when(it), it.suits, because(it))
}

/// Returns when the judgement applies; a stream depends on the rate alone.
pub(crate) fn when(it: &UseJudgement) -> &'static str {
    match (it.name, it.line_full) {
        (Use::VideoStream, _) => "",
        (Use::WebPage, true) => " on the busy connection",
        (Use::WebPage, false) => " inside this load",
        (Use::Call | Use::Game, true) => " on the busy line",
        (Use::Call | Use::Game, false) => " beside this load",
    }
}

/// Returns the measured number behind the judgement.
pub(crate) fn because(it: &UseJudgement) -> String {
    let because = match (it.name, it.delay_ms) {
        (Use::VideoStream, _) => carried(it),
        (_, None) => "too few probes came back".to_owned(),
        (Use::Call, Some(ms)) => format!("{ms:.0} ms from mouth to ear"),
        (Use::Game, Some(ms)) => format!("round trips of {ms:.0} ms"),
        (Use::WebPage, Some(ms)) => format!(
            "{PAGE_ROUND_TRIPS:.0} round trips of {:.0} ms take {:.1} s",
            ms / PAGE_ROUND_TRIPS,
            ms / 1e3
        ),
    };
    match it.lost_percent {
        Some(lost) => format!("{because} and {lost:.1} % of the packets lost"),
        None => because,
    }
}

fn carried(it: &UseJudgement) -> String {
    let rate = it.mbit_s.unwrap_or(0.0);
    let needed = |wanted: Stream| STREAMS.into_iter().find(|(stream, _)| *stream == wanted);
    match it.stream.and_then(needed) {
        Some((stream, needed)) => {
            format!("{rate:.1} Mbit/s down carry {stream} ({needed:.0} Mbit/s)")
        }
        None => format!("{rate:.1} Mbit/s down carry no 720p (3 Mbit/s)"),
    }
}

/// Returns the class of a letter or word on a page.
pub(crate) fn colour(grade: Grade) -> Suitability {
    match grade {
        Grade::APlus | Grade::A => Suitability::Good,
        Grade::B | Grade::C => Suitability::Fair,
        Grade::D | Grade::F => Suitability::Poor,
    }
}

/// Returns what to change.
pub(crate) fn advice(cure: &Cure) -> String {
    let shaping = cure.shape.as_ref().map(shaping);
    let others = cure.segments.iter().filter_map(|it| location::cure(*it)).map(str::to_owned);
    let advice: Vec<String> = shaping.into_iter().chain(others).collect();
    format!("What to change: {}", advice.join(" "))
}

/// Returns the cure of a queue on the access line.
fn shaping(shape: &Shape) -> String {
    let rate =
        |direction: Direction| Some(format!("{:.1} Mbit/s {direction}", shape.mbit_s[direction]?));
    let rates: Vec<String> =
        [Direction::Down, Direction::Up].into_iter().filter_map(rate).collect();
    let shape = if rates.is_empty() {
        "a little less than the line carries".to_owned()
    } else {
        format!("about {}", rates.join(" and "))
    };
    format!(
        "smart queue management (CAKE or FQ-CoDel) on the router, shaped to {shape}; or ask the \
         provider for active queue management on the modem."
    )
}
