//! A measured line in words, for a terminal and for the page.

mod lines;
mod location;
mod words;

pub use lines::finding_lines;
pub(crate) use lines::{findings, opening, rates, step_lines};
pub(crate) use location::{HEADS as LOCATION_HEADS, rows as location_rows};
pub use words::sentences;
pub(crate) use words::{advice, because, colour, subject};

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use underload_record::judgement::{LoadedStep, Sentences, StepJudgement, judge};

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
}
