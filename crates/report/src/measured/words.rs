//! The words of a judgement. Everything that they say is decided in [`underload_record::judgement`].

use underload_record::judgement::{
    Cure, Grade, Judgement, SCALE, Sentences, Shape, StepJudgement, Suitability, Use, UseJudgement,
};
use underload_record::schema::{Direction, PerDirection, Vantage};

use super::location;
use crate::words::capital;

/// Returns the sentences of a judgement.
pub fn sentences(judgement: &Judgement) -> Sentences {
    Sentences {
        opening: opening(judgement),
        uses: judgement.uses.iter().map(use_line).collect(),
        advice: judgement.cure.as_ref().map(advice),
        sender: sender(judgement),
    }
}

/// Returns what the low delay of steps means whose sender did not fill the buffer.
fn sender(judgement: &Judgement) -> Option<String> {
    let unfilled = with_grade(judgement).filter(|step| step.buffer_unfilled);
    let loaded = unfilled.map(|step| step.loaded).next()?;
    let busy = busy(loaded);
    Some(format!(
        "{}, this browser's sender lost nothing and did not fill the line's buffer, as congestion control such \
         as BBR does not: the low delay is that of this sender only, and another one may add more.",
        capital(busy)
    ))
}

/// Returns the grade of the worst valid step and what a user notices; `None` if no step has one.
pub(crate) fn opening(judgement: &Judgement) -> Option<String> {
    let (worst, grade) = (judgement.worst()?, judgement.grade?);
    let (busy, added_ms) = (busy(worst.loaded), worst.worst_ms()?);
    let noticed = worst.noticed?;
    let says = if worst.by_loss {
        let lost = worst.lost_percent;
        format!("{busy}, {lost:.1} % of the packets are lost. {}", noticed_loss(grade))
    } else if grade == Grade::APlus {
        adds_nothing(added_ms, worst.idle_ns.map_or(0.0, ms))
    } else if added_ms.is_infinite() {
        format!("{busy}, next to nothing comes back.")
    } else {
        let shown = [worst.beside, worst.inside][usize::from(noticed == Vantage::Inside)];
        let late = late(shown.map_or(added_ms, |shown| shown.ms()));
        let what = match noticed {
            Vantage::Beside => "everything is".to_owned(),
            Vantage::Inside => {
                let whose = match worst.loaded {
                    PerDirection { down: true, up: false } => "download",
                    PerDirection { down: false, up: true } => "upload",
                    _ => "load",
                };
                // Without packets beside the load, others may be late, too.
                let only = if worst.beside.is_some() { "only " } else { "" };
                format!("{only}packets of the {whose}'s own TCP connections are")
            }
        };
        format!("{busy}, {what} {late} late. {}", noticed_delay(judgement, grade, noticed))
    };
    let void = names(judgement.steps.iter().filter(|step| step.void));
    let void = if void.is_empty() { void } else { format!(" Without a grade: {void}.") };
    let open = names(with_grade(judgement).filter(|step| !step.line_full));
    let open = match open.as_str() {
        "" => open,
        _ if !worst.line_full => {
            " This load did not fill the line; a full one may be worse.".to_owned()
        }
        _ => format!(" The line was not full in step {open}: it may be worse then."),
    };
    Some(format!("Grade {grade}: {says}{void}{open}"))
}

/// Returns what a user does who loads these directions.
fn busy(loaded: PerDirection<bool>) -> &'static str {
    match (loaded.down, loaded.up) {
        (false, false) => "while the line is busy",
        (true, false) => "while you download",
        (false, true) => "while you upload",
        (true, true) => "while you download and upload",
    }
}

fn adds_nothing(added_ms: f64, idle_ms: f64) -> String {
    let loaded_ms = idle_ms + added_ms;
    if added_ms < 1.0 {
        return format!("the load adds nothing: {loaded_ms:.1} ms, as when idle.");
    }
    format!("the load adds next to nothing: {loaded_ms:.0} ms under load, {idle_ms:.0} when idle.")
}

/// Converts nanoseconds to milliseconds.
pub(super) fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Formats a delay: `45 ms`, `0.2 s`.
pub(super) fn late(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1e3) }
}

fn with_grade(judgement: &Judgement) -> impl Iterator<Item = &StepJudgement> {
    judgement.steps.iter().filter(|step| step.grade.is_some())
}

fn names<'a>(steps: impl Iterator<Item = &'a StepJudgement>) -> String {
    steps.map(|step| step.step.as_str()).collect::<Vec<_>>().join(", ")
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

/// Returns what a user notices of the delay of the worst step.
fn noticed_delay(judgement: &Judgement, grade: Grade, noticed: Vantage) -> String {
    let interactive = judgement.uses.iter().filter(|it| matches!(it.name, Use::Call | Use::Game));
    let suits = interactive.clone().map(|it| it.suits).max();
    if noticed == Vantage::Beside {
        let those = interactive.filter(|it| Some(it.suits) == suits).map(|it| it.name);
        let who = match those.collect::<Vec<_>>()[..] {
            [Use::Game] => "Games",
            [Use::Call] => "Calls",
            _ => "Calls and games",
        };
        let what = match suits {
            None | Some(Suitability::Good) => "hardly notice",
            Some(Suitability::Fair) => "lag now and then",
            Some(Suitability::Poor) if grade == Grade::F => "stall",
            Some(Suitability::Poor) => "suffer",
        };
        return format!("{who} {what}.");
    }
    let pages = match grade {
        Grade::APlus | Grade::A | Grade::B => "Web pages in them hardly notice",
        Grade::C => "Web pages in them open a little later",
        Grade::D => "Web pages in them open slowly",
        Grade::F => "Web pages in them hardly open",
    };
    let is_good = suits == Some(Suitability::Good);
    format!("{pages}{}.", if is_good { "; calls and games go on" } else { "" })
}

/// Returns what a user notices of the loss of a step.
fn noticed_loss(grade: Grade) -> &'static str {
    match grade {
        Grade::APlus | Grade::A | Grade::B => "Nobody notices.",
        Grade::C => "Calls crackle now and then.",
        Grade::D => "Calls break up and games jump.",
        Grade::F => "Calls and games break off.",
    }
}

/// Formats a use: `Games: poor (230 ms; 20 when idle).`
pub(crate) fn use_line(it: &UseJudgement) -> String {
    format!("{}: {} ({}).", subject(it), it.suits, because(it))
}

/// Returns the use, and its load if that did not fill the line. A stream depends on the rate alone.
pub(crate) fn subject(it: &UseJudgement) -> &'static str {
    match (it.name, it.line_full) {
        (Use::Call, true) => "Calls",
        (Use::Call, false) => "Calls beside this load",
        (Use::Game, true) => "Games",
        (Use::Game, false) => "Games beside this load",
        (Use::WebPage, true) => "Web pages in the load's own TCP connections",
        (Use::WebPage, false) => "Web pages in this load's own TCP connections",
        (Use::VideoStream, _) => "Video",
    }
}

/// Returns the measured number behind the judgement.
pub(crate) fn because(it: &UseJudgement) -> String {
    let idle = |shown: fn(f64) -> String| {
        it.idle_ns.map_or(String::new(), |ns| format!("; {} when idle", shown(ms(ns))))
    };
    let (whole, seconds) = (|ms: f64| format!("{ms:.0}"), |ms: f64| format!("{:.1}", ms / 1e3));
    let because = match (it.name, it.delay_ns.map(ms)) {
        (Use::VideoStream, _) => carried(it),
        (_, None) => "next to nothing comes back".to_owned(),
        (Use::Call, Some(ms)) => format!("{ms:.0} ms from mouth to ear{}", idle(whole)),
        (Use::Game, Some(ms)) => format!("{ms:.0} ms{}", idle(whole)),
        (Use::WebPage, Some(ms)) => format!("loaded in {} s{}", seconds(ms), idle(seconds)),
    };
    match it.lost_percent {
        Some(lost) => format!("{because}; {lost:.1} % of the packets lost"),
        None => because,
    }
}

fn carried(it: &UseJudgement) -> String {
    let rate = it.mbit_s.unwrap_or(0.0);
    match it.stream {
        Some(stream) => format!("{rate:.1} Mbit/s carry {stream}"),
        None => format!("{rate:.1} Mbit/s carry no 720p"),
    }
}

/// Returns the class of a letter on a page: that of calls and games.
pub(crate) fn colour(grade: Grade) -> Suitability {
    SCALE[grade as usize].interactive
}

/// Returns what to change.
pub(crate) fn advice(cure: &Cure) -> String {
    let shaping = cure.shape.as_ref().map(shaping);
    let losing = cure.lost_percent.map(|percent| {
        format!(
            "The queue is short and drops {percent:.1} % of the packets: turn on ECN on your \
             devices (Linux: sysctl net.ipv4.tcp_ecn=1), which marks them instead, or use fewer \
             connections at once. A shaper does not help."
        )
    });
    let others = cure.segments.iter().filter_map(|it| location::cure(*it)).map(str::to_owned);
    let advice: Vec<String> = shaping.into_iter().chain(losing).chain(others).collect();
    format!("What to change: {}", advice.join(" "))
}

/// Returns the cure of a queue on the access line.
fn shaping(shape: &Shape) -> String {
    let kbit = |direction: Direction| {
        let kbit = shape.mbit_s[direction]? * 1e3;
        // A step of 100 kbit/s may exceed a slow line.
        let step = if kbit < 500.0 { 1.0 } else { 100.0 };
        Some(format!("{:.0}", (kbit / step).round().max(1.0) * step))
    };
    let rates = match (kbit(Direction::Down), kbit(Direction::Up)) {
        (None, None) => "a little less than the line carries".to_owned(),
        (Some(down), None) => format!("{down} kbit/s down"),
        (None, Some(up)) => format!("{up} kbit/s up"),
        (Some(down), Some(up)) => format!("{down}/{up} kbit/s (down/up)"),
    };
    if shape.per_flow {
        return format!(
            "Each flow has a queue of its own already, and it is too long: set its target to 5 ms, \
             or a shaper with CAKE in front of it to {rates}."
        );
    }
    format!(
        "On OpenWrt install luci-app-sqm and set {rates}; on a Fritz!Box list calls and games as \
         real-time applications (Internet > Filters > Prioritization); otherwise ask the provider \
         for a router with smart queue management (CAKE or FQ-CoDel)."
    )
}
