//! A measured line in words, for a terminal and for the page.

mod lines;
mod location;
mod words;

pub use lines::finding_lines;
pub(crate) use lines::{findings, grade_lines, opening, rates, step_lines};
pub(crate) use location::{HEADS as LOCATION_HEADS, rows as location_rows};
pub use words::sentences;
pub(crate) use words::{advice, because, colour, subject};

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use underload_aqm::rng::Rng;
    use underload_record::judgement::{
        HighPercentile, LoadedStep, Sentences, StepJudgement, judge,
    };
    use underload_record::schema::{PathSegment, PerDirection, Quantile};

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        steps: Vec<LoadedStep>,
        /// Lowest Quality of Outcome of each step, percent.
        quality: Vec<f64>,
        #[serde(flatten)]
        sentences: Sentences,
    }

    #[test]
    fn judgements_have_the_sentences_of_the_examples() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../tests/judged.json")).unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            let judgement = judge(&case.steps);
            assert_eq!(sentences(&judgement), case.sentences);
            let lowest = judgement.steps.iter().filter_map(StepJudgement::lowest_qoo);
            assert_eq!(lowest.map(f64::round).collect::<Vec<_>>(), case.quality);
        }
    }

    fn step(name: &str, rng: &mut Rng) -> LoadedStep {
        let mut unit = || f64::from(rng.next_u32()) / 4_294_967_296.0;
        let mut any = |least: f64, most: f64| least * (most / least).powf(unit());
        let idle_ms = any(0.2, 300.0);
        let [beside, answered, inside] =
            [0; 3].map(|_| (idle_ms + any(0.01, 5_000.0) - any(0.01, 1.0)).max(0.1));
        let (rate_up, rate_down, lost) = (any(0.01, 900.0), any(0.01, 900.0), any(0.01, 99.0));
        let mut is = |percent| rng.below(100) < percent;
        let ns = |ms: f64| (ms * 1e6).round() as i64;
        let p99 = |ms: Option<f64>| HighPercentile { quantile: Quantile::P99, ns: ms.map(ns) };
        LoadedStep {
            step: name.to_owned(),
            valid: is(90),
            loaded: true,
            idle_p50_ns: is(95).then_some(ns(idle_ms)),
            beside: is(95).then(|| p99((lost < 1.0).then_some(beside))),
            answered: is(95).then(|| p99(Some(answered))),
            inside: is(70).then(|| p99(is(95).then_some(inside))),
            lost_percent: if is(50) { 0.0 } else { lost },
            mbit_s: PerDirection::new(is(50).then_some(rate_up), is(50).then_some(rate_down)),
            held_back: PerDirection::new(is(10), is(10)),
            segment: is(10).then_some(PathSegment::Beyond),
            recovery: None,
            in_order: is(50),
        }
    }

    /// Whether a sender that lost nothing made neither the probes nor its own packets wait.
    fn is_unfilled(step: &LoadedStep) -> bool {
        let answered = step.answered.and_then(|it| it.ns);
        let sent = step.beside.and_then(|it| it.ns.or(answered));
        let is_short = |ns: Option<i64>| {
            ns.zip(step.idle_p50_ns).is_some_and(|(ns, idle_ns)| ns - idle_ns < 30_000_000)
        };
        let is_held_back = step.held_back.up || step.held_back.down;
        let inside = step.inside.and_then(|it| it.ns);
        let loses = !step.in_order || step.lost_percent > 0.0;
        step.valid && !loses && !is_held_back && is_short(sent) && is_short(inside)
    }

    /// Compares sentences with the numbers of the judgement, by rules that this test states again.
    #[test]
    fn sentences_of_random_lines_do_not_contradict_their_numbers() {
        for seed in 0..10_000 {
            let rng = &mut Rng::new(seed);
            let steps = [step("down", rng), step("up", rng)];
            let judgement = judge(&steps);
            let Sentences { opening, uses, advice, sender } = sentences(&judgement);
            assert_eq!(sender.is_some(), steps.iter().any(is_unfilled), "{seed}");
            let all = [opening.clone(), advice.clone()].into_iter().flatten().chain(uses.clone());
            for text in all {
                let words = text.split(|letter: char| " (;,".contains(letter));
                let numbers = words.filter_map(|word| word.parse::<f64>().ok());
                let is_bad = |it: f64| !it.is_finite() || it.to_bits() == (-0.0_f64).to_bits();
                assert!(!numbers.into_iter().any(is_bad), "{seed}: {text}");
            }
            let suits = |word: &str| {
                let is_so = |it: &&String| it.contains(&format!(": {word} "));
                uses.iter()
                    .filter(|it| it.starts_with("Calls") || it.starts_with("Games"))
                    .any(|it| is_so(&it))
            };
            let opening = opening.unwrap_or_default();
            assert_eq!(judgement.grade.is_some(), !opening.is_empty(), "{seed}");
            if let Some(grade) = judgement.grade {
                assert!(opening.starts_with(&format!("Grade {grade}: ")), "{seed}: {opening}");
            }
            let says = |words: &[&str]| words.iter().any(|words| opening.contains(words));
            let poor = [" suffer.", "s stall.", "Calls break up", "break off"];
            assert!(!says(&poor) || suits("poor"), "{seed}: {opening} {uses:?}");
            let fair = ["lag now and then", "crackle"];
            assert!(!says(&fair) || suits("fair"), "{seed}: {opening} {uses:?}");
            let good = ["Calls and games hardly"];
            assert!(!says(&good) || !suits("poor"), "{seed}: {opening} {uses:?}");
            let added = |it: &LoadedStep| {
                let sent = it.beside?.ns.or(it.answered.and_then(|answered| answered.ns));
                let worst = [sent, it.inside.and_then(|inside| inside.ns)].into_iter().flatten();
                Some(worst.max()? - it.idle_p50_ns?)
            };
            let is_quick = |it: &LoadedStep| {
                added(it).is_none_or(|ns| ns < 30_000_000) && it.lost_percent <= 1.0
            };
            let is_known = |it: &LoadedStep| {
                it.beside.is_some_and(|beside| beside.ns.is_some() || it.answered.is_some())
                    && it.inside.is_none_or(|inside| inside.ns.is_some())
            };
            if steps.iter().all(|it| !it.valid || is_known(it) && is_quick(it)) {
                assert_eq!(advice, None, "{seed}: {opening}");
            }
            let rates = steps.iter().flat_map(|it| [it.mbit_s.up, it.mbit_s.down]).flatten();
            let most_kbit_s = rates.fold(0.0, f64::max) * 1e3;
            let advice = advice.unwrap_or_default();
            let before_rate = |word: &&str| word.parse::<f64>().is_ok_and(|it| it > most_kbit_s);
            let rate = advice.split(" kbit/s").next().filter(|text| text.len() < advice.len());
            let too_high = rate.and_then(|text| text.rsplit([' ', '/']).next()).filter(before_rate);
            assert_eq!(too_high, None, "{seed}: {advice}");
        }
    }
}
