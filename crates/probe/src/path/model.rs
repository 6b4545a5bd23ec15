//! The likelihood model: the evidence of each discipline.
//!
//! The file is plain text, one component per line: kind, congestion control, discipline, number of
//! cases, then the mean of each feature, then the lower triangle of the covariance, row by row.

use std::sync::OnceLock;

use super::evidence::Control;
use super::features::{FEATURES, FeatureVector};
use super::kind::QueueKind;

#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    pub kind: QueueKind,
    pub control: Control,
    /// The discipline, for example `codel`.
    pub name: String,
    /// Number of cases that the component was learnt from.
    pub cases: u32,
    pub mean: [f64; FEATURES],
    pub covariance: [[f64; FEATURES]; FEATURES],
}

/// The classifier's model: one component per discipline and kind of congestion control.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub components: Vec<Component>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ModelError {
    pub line: usize,
    pub what: &'static str,
}

/// Degrees of freedom of the t density: heavy tails, but a finite variance.
const FREEDOM: f64 = 5.0;

impl Model {
    /// Returns the model that was learnt from the simulator, see `docs/contributing/path.md`.
    pub fn built_in() -> &'static Self {
        static MODEL: OnceLock<Model> = OnceLock::new();
        // A test reads the file, so parsing cannot fail here.
        MODEL.get_or_init(|| Self::read(include_str!("model.txt")).unwrap_or_default())
    }

    /// Returns the components of one kind of congestion control.
    pub fn components_for(&self, control: Control) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(move |component| component.control == control)
    }

    /// Parses a line for each component: kind, control, name, number of cases, the mean, then the
    /// lower triangle of the covariance, separated by commas.
    ///
    /// # Errors
    /// Returns the first line that is malformed.
    pub fn read(text: &str) -> Result<Self, ModelError> {
        let mut components = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let error = |what| ModelError { line: index + 1, what };
            components.push(Component::read(line).map_err(error)?);
        }
        Ok(Self { components })
    }
}

/// Returns row and column of the lower triangle of a symmetric matrix.
fn lower_triangle() -> impl Iterator<Item = (usize, usize)> {
    (0..FEATURES).flat_map(|row| (0..=row).map(move |column| (row, column)))
}

impl Component {
    /// Returns the logarithm of the t density of the measured features, without constant terms, and
    /// the squared Mahalanobis distance per measured feature.
    pub fn log_likelihood(&self, vector: &FeatureVector) -> (f64, f64) {
        let known: Vec<usize> = (0..FEATURES).filter(|index| vector[*index].is_some()).collect();
        let deviation: Vec<f64> = known
            .iter()
            .map(|index| vector[*index].unwrap_or_default() - self.mean[*index])
            .collect();
        let (distance, log_root_determinant) = self.whiten(&known, deviation);
        let dimensions = known.len().max(1) as f64;
        let density = -(FREEDOM + dimensions) / 2.0 * (1.0 + distance / FREEDOM).ln();
        (density - log_root_determinant, distance / dimensions)
    }

    /// Returns the squared Mahalanobis distance and half the logarithm of the determinant for the
    /// features in `known`, by Cholesky's decomposition.
    fn whiten(&self, known: &[usize], mut deviation: Vec<f64>) -> (f64, f64) {
        let mut root = vec![vec![0.0; known.len()]; known.len()];
        let (mut distance, mut log_root_determinant) = (0.0, 0.0);
        for row in 0..known.len() {
            for column in 0..=row {
                let covariance = self.covariance[known[row]][known[column]];
                let done: f64 = (0..column).map(|k| root[row][k] * root[column][k]).sum();
                root[row][column] = if row == column {
                    (covariance - done).max(VARIANCE_MIN).sqrt()
                } else {
                    (covariance - done) / root[column][column]
                };
            }
            let done: f64 = (0..row).map(|k| root[row][k] * deviation[k]).sum();
            deviation[row] = (deviation[row] - done) / root[row][row];
            distance += deviation[row] * deviation[row];
            log_root_determinant += root[row][row].ln();
        }
        (distance, log_root_determinant)
    }

    fn read(line: &str) -> Result<Self, &'static str> {
        let mut fields = line.split(',');
        let mut word = || fields.next().ok_or("too few fields");
        let kind = QueueKind::from_name(word()?).ok_or("no such kind of queue")?;
        let control = match word()? {
            "loss-based" => Control::LossBased,
            "bbr" => Control::Bbr,
            _ => return Err("expected loss-based or bbr"),
        };
        let name = word()?.to_owned();
        let cases = word()?.parse().map_err(|_| "expected a number of cases")?;
        let mut number = || {
            let value: f64 = word()?.parse().map_err(|_| "expected a number")?;
            if value.is_finite() { Ok(value) } else { Err("expected a finite number") }
        };
        let mut mean = [0.0; FEATURES];
        for value in &mut mean {
            *value = number()?;
        }
        let mut covariance = [[0.0; FEATURES]; FEATURES];
        for (row, column) in lower_triangle() {
            let value = number()?;
            (covariance[row][column], covariance[column][row]) = (value, value);
        }
        match word() {
            Ok(_) => Err("too many fields"),
            Err(_) => Ok(Self { kind, control, name, cases, mean, covariance }),
        }
    }
}

/// Smallest variance after rounding.
const VARIANCE_MIN: f64 = 1e-6;

#[cfg(test)]
#[path = "../../tests/support/learn.rs"]
mod learn;

#[cfg(test)]
mod tests {
    use super::learn::{learn, write};
    use super::*;

    /// Two disciplines that differ in the third feature alone, with a little noise in all.
    fn cases() -> Vec<(QueueKind, Control, &'static str, FeatureVector)> {
        let mut state = 7_u32;
        let mut noise = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) - 0.5
        };
        let kinds = [(QueueKind::DropTail, "fifo", 0.0), (QueueKind::FlowQueuing, "fair", 3.0)];
        let mut cases = Vec::new();
        for (kind, name, third) in kinds {
            for _ in 0..60 {
                let mut vector: FeatureVector = std::array::from_fn(|_| Some(noise()));
                vector[2] = Some(third + noise());
                cases.push((kind, Control::LossBased, name, vector));
            }
        }
        cases
    }

    #[test]
    fn a_learned_model_reads_back_and_ranks_the_cases() {
        let model = learn(cases());
        let read = Model::read(&write(&model)).unwrap();
        for (kind, control, _, vector) in cases() {
            let best = read
                .components_for(control)
                .max_by(|a, b| a.log_likelihood(&vector).0.total_cmp(&b.log_likelihood(&vector).0))
                .unwrap();
            assert_eq!(best.kind, kind);
            assert!(best.log_likelihood(&vector).1 < 3.0, "a case it was learnt from");
        }
        assert_eq!(read.components_for(Control::Bbr).count(), 0);
    }

    #[test]
    fn a_missing_feature_does_not_change_the_probabilities() {
        let model = learn(cases());
        let (_, _, _, mut vector) = cases()[0];
        vector[2] = None;
        let both: Vec<_> = model
            .components_for(Control::LossBased)
            .map(|component| component.log_likelihood(&vector))
            .collect();
        // The remaining noise is equally large in both.
        assert!((both[0].0 - both[1].0).abs() < 6.0, "{both:?}");
        assert!(both.iter().all(|(_, distance)| *distance < 3.0), "{both:?}");
        let nothing = [None; FEATURES];
        assert!(
            model.components_for(Control::LossBased).all(|c| c.log_likelihood(&nothing).0 == 0.0)
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let text = write(&learn(cases()));
        let second = text.lines().next().unwrap().replacen("drop-tail", "magic", 1);
        let error = Model::read(&format!("{text}{second}\n")).unwrap_err();
        assert_eq!(error, ModelError { line: 3, what: "no such kind of queue" });
        let cut = &text[..text.len() - 30];
        assert_eq!(Model::read(cut).unwrap_err().line, 2);
        assert_eq!(Model::read(&text.replacen("60,", "60,nan,", 1)).unwrap_err().line, 1);
    }

    #[test]
    fn the_built_in_model_is_read() {
        let model = Model::read(include_str!("model.txt")).unwrap();
        assert!(model.components_for(Control::LossBased).count() >= 11);
        assert!(model.components_for(Control::Bbr).count() >= 11);
    }
}
