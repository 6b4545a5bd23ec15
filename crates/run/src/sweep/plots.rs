//! `[[plot]]` of a sweep: pictures of all its cells, in its report.

use std::collections::BTreeMap;

use serde::Serialize;
use underload_record::schema::PlotAxis;

use super::SweepFile;
use super::axis::Axis;
use crate::keys::{Fault, Faults, alternatives, keys, word, words};

/// Pictures of a sweep, at most.
const MOST_PLOTS: usize = 24;
/// Values of an axis that a name is looked up among, at most.
const MOST_VALUES: u64 = 1_000;
/// What stands for the arm where an axis is named.
const ARM: &str = "arm";

keys! {
    /// The keys of `[[plot]]`. What a sweep computes does not depend on them, but for the metrics
    /// that get a column.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PlotKeys {
        /// The form of the picture.
        pub kind: PlotForm,
        /// Its heading.
        pub title: String,
        /// What is shown upwards, of a heat map as colour.
        pub metric: String,
        /// What its axis is called, with its unit; the metric's name where it is left out.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub says: String = String::new(),
        /// The axis that goes to the right.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub x: Option<String>,
        /// What a scatter plot shows to the right.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub x_metric: Option<String>,
        /// What the axis to the right is called, with its unit; its own name where it is left out.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub x_says: String = String::new(),
        /// The axis of which each value is a curve, a colour or a row of its own, or `arm`, which
        /// it is where it is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub line: Option<String>,
        /// The cells that are meant, by values of axes or the arm; all where it is left out.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub only: BTreeMap<String, String> = BTreeMap::new(),
        /// Axes of the picture that grow by factors.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub log: Vec<PlotAxis> = Vec::new(),
    }
}

/// Forms of a picture of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotForm {
    /// Lines over an axis: means over all others.
    Sweep,
    /// A point per cell, one metric over another.
    Scatter,
    /// How far cells lie apart: median, quartiles, extremes.
    Box,
    /// A square for each value of two axes, coloured by the mean over all others.
    Heat,
}

words! { PlotForm, word: Sweep Scatter Box Heat; }

/// What a picture tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// The arm.
    Arm,
    /// The axis of this number.
    Axis(usize),
}

impl PlotKeys {
    /// The name of what has a curve, a colour or a row of its own, if anything has.
    fn line_name(&self) -> Option<&str> {
        let usual = || (self.x.as_deref() != Some(ARM)).then_some(ARM);
        self.line.as_deref().or_else(usual)
    }

    /// What has a curve, a colour or a row of its own, of a sweep with these axes.
    pub fn line(&self, axes: &[String]) -> Option<Dimension> {
        dimension(self.line_name()?, axes)
    }

    /// What goes to the right.
    pub fn x(&self, axes: &[String]) -> Option<Dimension> {
        dimension(self.x.as_deref()?, axes)
    }

    /// The cells that are meant: what they are told by, and the value that it has.
    pub fn only(&self, axes: &[String]) -> Vec<(Dimension, String)> {
        let wanted = self.only.iter();
        wanted.filter_map(|(name, value)| Some((dimension(name, axes)?, value.clone()))).collect()
    }

    /// The metrics that it shows.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &String> {
        [&self.metric].into_iter().chain(&self.x_metric)
    }

    fn check(&self, axes: &[Axis], arms: &[&str]) -> Result<(), Fault> {
        let fault = |key: &str, problem: &str| Err(Fault::new(key, problem));
        if self.title.is_empty() {
            return fault("title", "a picture needs a heading");
        }
        match (self.kind, &self.x, &self.x_metric) {
            (PlotForm::Scatter, _, None) => {
                return fault("x_metric", "is missing: what a `scatter` shows to the right");
            }
            (PlotForm::Scatter, Some(_), _) => {
                return fault("x", "a `scatter` has `x_metric` to the right, and no axis");
            }
            (PlotForm::Scatter, None, Some(_)) | (_, Some(_), None) => {}
            (_, _, Some(_)) => return fault("x_metric", "is what a `scatter` shows, and no other"),
            (_, None, None) => return fault("x", "is missing: the axis that goes to the right"),
        }
        if self.line.is_some() && self.line == self.x {
            return fault("line", "goes to the right already; expected another axis");
        }
        if self.kind == PlotForm::Heat && self.line_name().is_none() {
            return fault("line", "is missing: the axis whose values are the rows");
        }
        let names: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        let is_known = |key: &str, name: &str| {
            if dimension(name, &names).is_some() {
                return Ok(());
            }
            let known = alternatives(names.iter().map(String::as_str).chain([ARM]));
            Err(Fault::new(key, format!("no axis is called {name:?}; expected {known}")))
        };
        self.x.iter().try_for_each(|name| is_known("x", name))?;
        self.line.iter().try_for_each(|name| is_known("line", name))?;
        for (name, value) in &self.only {
            is_known("only", name)?;
            let known = match dimension(name, &names) {
                Some(Dimension::Axis(axis)) => values(&axes[axis]),
                _ => Some(arms.iter().map(|arm| (*arm).to_owned()).collect()),
            };
            if let Some(known) = known.filter(|known| !known.contains(value)) {
                let known = alternatives(known.iter().map(String::as_str));
                let problem = format!("{name} is never {value:?}; expected {known}");
                return Err(Fault::new("only", problem));
            }
        }
        Ok(())
    }
}

/// Refuses pictures of what a sweep does not have.
pub(super) fn check(file: &SweepFile, axes: &[Axis], arms: &[&str], faults: &mut Faults) {
    if file.plot.len() > MOST_PLOTS {
        faults.add(Fault::new("plot", format!("more than {MOST_PLOTS} pictures")));
    }
    for (index, plot) in file.plot.iter().enumerate() {
        let checked = plot.check(axes, arms);
        faults.accept(checked.map_err(|fault| fault.under(&format!("plot[{index}]"))));
    }
}

fn dimension(name: &str, axes: &[String]) -> Option<Dimension> {
    match name {
        ARM => Some(Dimension::Arm),
        _ => axes.iter().position(|axis| axis == name).map(Dimension::Axis),
    }
}

/// The values of an axis, where they are few enough to be looked through.
fn values(axis: &Axis) -> Option<Vec<String>> {
    let levels = axis.levels().filter(|levels| *levels <= MOST_VALUES)?;
    Some((0..levels).map(|level| axis.level(level).value.text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: &str = "
        [[axis]]
        key = \"path.up\"
        values = [\"5mbit\", \"10mbit\"]
        [[axis]]
        key = \"path.rtt\"
        from = \"5ms\"
        to = \"50ms\"
        steps = 4
    ";

    fn checked(plot: &str) -> Result<SweepFile, String> {
        let file = format!("{AXES}\n[[plot]]\n{plot}");
        let file: SweepFile = crate::keys::from_text(&file).map_err(|it| it.to_string())?;
        let axes: Result<Vec<Axis>, Fault> =
            file.axis.iter().map(|keys| Axis::read(keys.clone(), true)).collect();
        let axes = axes.map_err(|fault| fault.to_string())?;
        let mut faults = Faults::default();
        check(&file, &axes, &["fifo", "codel"], &mut faults);
        faults.result(Some(file)).map_err(|fault| fault.to_string())
    }

    fn told(rest: &str) -> String {
        let plot = format!("title = \"t\"\nmetric = \"load.rtt.p99\"\n{rest}");
        checked(&plot).err().unwrap_or_default()
    }

    #[test]
    fn a_picture_names_axes_and_values_that_are_there() {
        assert_eq!(told("kind = \"sweep\"\nx = \"path.up\""), "");
        assert_eq!(told("kind = \"box\"\nx = \"arm\""), "");
        assert_eq!(told("kind = \"heat\"\nx = \"path.up\"\nline = \"path.rtt\""), "");
        assert_eq!(told("kind = \"scatter\"\nx_metric = \"goodput.up\"\nline = \"path.up\""), "");
        let only = "only = { \"path.up\" = \"5mbit\", arm = \"codel\" }";
        assert_eq!(told(&format!("kind = \"sweep\"\nx = \"path.rtt\"\n{only}")), "");
        for (rest, words) in [
            ("kind = \"sweep\"", "plot[0].x: is missing"),
            ("kind = \"scatter\"", "plot[0].x_metric: is missing"),
            ("kind = \"scatter\"\nx_metric = \"a\"\nx = \"arm\"", "plot[0].x: a `scatter`"),
            ("kind = \"box\"\nx = \"arm\"\nx_metric = \"a\"", "plot[0].x_metric: is what"),
            ("kind = \"sweep\"\nx = \"path.down\"", "expected path.up, path.rtt or arm"),
            ("kind = \"sweep\"\nx = \"arm\"\nline = \"arm\"", "plot[0].line: goes to the right"),
            ("kind = \"heat\"\nx = \"arm\"", "plot[0].line: is missing"),
            ("kind = \"sweep\"\nx = \"path.up\"\nline = \"odd\"", "plot[0].line: no axis"),
            ("kind = \"box\"\nx = \"arm\"\nonly = { odd = \"1\" }", "plot[0].only: no axis"),
            (
                "kind = \"box\"\nx = \"arm\"\nonly = { \"path.up\" = \"6mbit\" }",
                "path.up is never \"6mbit\"; expected 5mbit or 10mbit",
            ),
            ("kind = \"box\"\nx = \"path.up\"\nonly = { arm = \"pie\" }", "expected fifo or codel"),
            ("kind = \"time\"\nx = \"arm\"", "time"),
        ] {
            let told = told(rest);
            assert!(told.contains(words), "{rest}: {told}");
        }
        let many = "kind = \"box\"\nx = \"arm\"\ntitle = \"t\"\nmetric = \"m\"\n[[plot]]\n";
        let many = format!("{}{}", many.repeat(24), many.trim_end_matches("[[plot]]\n"));
        assert!(checked(&many).is_err_and(|told| told.contains("more than 24 pictures")));
    }

    #[test]
    fn arms_are_the_lines_where_nothing_else_is_said() {
        let of = |rest: &str| {
            let plot = format!("title = \"t\"\nmetric = \"m\"\nkind = \"box\"\n{rest}");
            let plot = checked(&plot).expect("right").plot.remove(0);
            let axes = ["path.up", "path.rtt"].map(str::to_owned);
            (plot.line(&axes), plot.x(&axes))
        };
        let (arm, up, rtt) = (Dimension::Arm, Dimension::Axis(0), Dimension::Axis(1));
        assert_eq!(of("x = \"path.rtt\""), (Some(arm), Some(rtt)));
        assert_eq!(of("x = \"arm\""), (None, Some(arm)));
        assert_eq!(of("x = \"arm\"\nline = \"path.up\""), (Some(up), Some(arm)));
    }
}
