//! How the model of `underload path` is learnt, for the program that makes it and for tests.

use std::fmt::Write as _;

use super::{Component, Control, FEATURES, FeatureVector, Model, QueueKind};

/// Weight, in cases, of the common covariance that is mixed into each component's: a component of
/// few cases must not be certain about a feature that it never saw vary.
const SHRINKAGE: f64 = 25.0;
/// Smallest standard deviation of a feature: no measured line matches a simulated one more closely
/// than this (a twentieth of a factor of ten, 5 % of the probes).
const DEVIATION_MIN: f64 = 0.05;

/// Learns components from labelled vectors.
pub fn learn<'a>(
    cases: impl IntoIterator<Item = (QueueKind, Control, &'a str, FeatureVector)>,
) -> Model {
    let mut groups: Vec<Group> = Vec::new();
    for (kind, control, name, vector) in cases {
        let same = |group: &&mut Group| group.control == control && group.name == name;
        match groups.iter_mut().find(same) {
            Some(group) => group.vectors.push(vector),
            None => {
                let (name, vectors) = (name.to_owned(), vec![vector]);
                groups.push(Group { kind, control, name, vectors });
            }
        }
    }
    let pooled = pooled_covariance(&groups);
    let components = groups.iter().map(|group| group.component(&pooled)).collect();
    Model { components }
}

/// Writes the format of [`Model::read`].
pub fn write(model: &Model) -> String {
    let mut text = String::new();
    for component in &model.components {
        let control = match component.control {
            Control::LossBased => "loss-based",
            Control::Bbr => "bbr",
        };
        let Component { kind, name, cases, .. } = component;
        // Writing to a string cannot fail.
        let _ = write!(text, "{kind},{control},{name},{cases}");
        let lower = (0..FEATURES)
            .flat_map(|row| (0..=row).map(move |column| (row, column)))
            .map(|(row, column)| component.covariance[row][column]);
        for value in component.mean.into_iter().chain(lower) {
            let _ = write!(text, ",{}", shortened(value));
        }
        text.push('\n');
    }
    text
}

/// Formats a value with at most four decimal places, enough for a few hundred cases.
fn shortened(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

struct Group {
    kind: QueueKind,
    control: Control,
    name: String,
    vectors: Vec<FeatureVector>,
}

type Square = [[f64; FEATURES]; FEATURES];

impl Group {
    fn mean(&self) -> [f64; FEATURES] {
        std::array::from_fn(|feature| {
            let known = self.vectors.iter().filter_map(|vector| vector[feature]);
            let (sum, count) = known.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
            sum / f64::from(count.max(1))
        })
    }

    /// Returns the sum of products of deviations; a missing value has no deviation.
    fn scatter(&self, mean: &[f64; FEATURES]) -> Square {
        let mut scatter = [[0.0; FEATURES]; FEATURES];
        for vector in &self.vectors {
            let deviation: [f64; FEATURES] =
                std::array::from_fn(|i| vector[i].map_or(0.0, |value| value - mean[i]));
            for (row, a) in scatter.iter_mut().zip(deviation) {
                for (cell, b) in row.iter_mut().zip(deviation) {
                    *cell += a * b;
                }
            }
        }
        scatter
    }

    fn component(&self, pooled: &Square) -> Component {
        let mean = self.mean();
        let mut covariance = self.scatter(&mean);
        let cases = self.vectors.len() as f64;
        for (row, (cells, common)) in covariance.iter_mut().zip(pooled).enumerate() {
            for (column, (cell, common)) in cells.iter_mut().zip(common).enumerate() {
                *cell = (*cell + SHRINKAGE * common) / (cases + SHRINKAGE);
                if row == column {
                    *cell += DEVIATION_MIN * DEVIATION_MIN;
                }
            }
        }
        Component {
            kind: self.kind,
            control: self.control,
            name: self.name.clone(),
            cases: self.vectors.len() as u32,
            mean,
            covariance,
        }
    }
}

/// Returns the covariance around the groups' own means.
fn pooled_covariance(groups: &[Group]) -> Square {
    let mut pooled = [[0.0; FEATURES]; FEATURES];
    let cases: usize = groups.iter().map(|group| group.vectors.len()).sum();
    for group in groups {
        let scatter = group.scatter(&group.mean());
        for (row, more) in pooled.iter_mut().zip(&scatter) {
            for (cell, more) in row.iter_mut().zip(more) {
                *cell += more / cases.max(1) as f64;
            }
        }
    }
    pooled
}
