//! `[[plot]]` of a sweep: pictures of its cells, in its report.

use super::axis::Axis;
use super::file::{PlotForm, PlotKeys, SweepFile};
use underload_scenario::keys::{Fault, Faults, alternatives};

/// Pictures of a sweep, at most.
const MOST_PLOTS: usize = 24;
/// Values of an axis among which `only` is checked, at most.
const MOST_VALUES: u64 = 1_000;
/// The name of the variant in keys that name an axis.
const VARIANT: &str = "variant";

/// A property by which a picture groups cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    Variant,
    /// The axis at this position.
    Axis(usize),
}

impl PlotKeys {
    fn line_name(&self) -> Option<&str> {
        let is_variant = self.x.as_deref().is_some_and(|x| x == VARIANT);
        let default = || (!is_variant).then_some(VARIANT);
        self.line.as_deref().or_else(default)
    }

    /// Returns the dimension whose values have a curve, a colour or a row each, if there is one.
    pub fn line(&self, axes: &[String]) -> Option<Dimension> {
        dimension(self.line_name()?, axes)
    }

    /// Returns the dimension along the x axis; `None` for a scatter plot.
    pub fn x(&self, axes: &[String]) -> Option<Dimension> {
        dimension(self.x.as_deref()?, axes)
    }

    /// Returns the values of dimensions that the shown cells have.
    pub fn only(&self, axes: &[String]) -> Vec<(Dimension, String)> {
        let wanted = self.only.iter();
        wanted.filter_map(|(name, value)| Some((dimension(name, axes)?, value.clone()))).collect()
    }

    pub(super) fn metrics(&self) -> impl Iterator<Item = &String> {
        [&self.metric].into_iter().chain(&self.x_metric)
    }

    fn check(&self, axes: &[Axis], variants: &[&str]) -> Result<(), Fault> {
        let fault = |key: &str, problem: &str| Err(Fault::new(key, problem));
        if self.title.is_empty() {
            return fault("title", "a picture needs a heading");
        }
        match (self.kind, &self.x, &self.x_metric) {
            (PlotForm::Scatter, _, None) => {
                return fault("x_metric", "is missing: the metric along the x axis");
            }
            (PlotForm::Scatter, Some(_), _) => {
                return fault("x", "a `scatter` has `x_metric` in place of it");
            }
            (PlotForm::Scatter, None, Some(_)) | (_, Some(_), None) => {}
            (_, _, Some(_)) => return fault("x_metric", "is a key of `scatter` alone"),
            (_, None, None) => return fault("x", "is missing: the axis along the x axis"),
        }
        let names: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        let line = self.line.as_deref().and_then(|line| dimension(line, &names));
        if line.is_some() && line == self.x(&names) {
            return fault("line", "is equal to `x`; expected another axis");
        }
        if self.kind == PlotForm::Heat && self.line_name().is_none() {
            return fault("line", "is missing: the axis whose values are the rows");
        }
        let is_known = |key: &str, name: &str| {
            if dimension(name, &names).is_some() {
                return Ok(());
            }
            let known = alternatives(names.iter().map(String::as_str).chain([VARIANT]));
            Err(Fault::new(key, format!("no axis is called {name:?}; expected {known}")))
        };
        self.x.iter().try_for_each(|name| is_known("x", name))?;
        self.line.iter().try_for_each(|name| is_known("line", name))?;
        for (name, value) in &self.only {
            is_known("only", name)?;
            let known = match dimension(name, &names) {
                Some(Dimension::Axis(axis)) => values(&axes[axis]),
                _ => Some(variants.iter().map(|variant| (*variant).to_owned()).collect()),
            };
            if let Some(known) = known.filter(|known| !known.contains(value)) {
                let known = alternatives(known.iter().map(String::as_str));
                let problem = format!("{name} has no value {value:?}; expected {known}");
                return Err(Fault::new("only", problem));
            }
        }
        Ok(())
    }
}

/// Rejects pictures of axes, variants and values that a sweep does not have.
pub(super) fn check(file: &SweepFile, axes: &[Axis], variants: &[&str], faults: &mut Faults) {
    if file.plot.len() > MOST_PLOTS {
        faults.add(Fault::new("plot", format!("more than {MOST_PLOTS} pictures")));
    }
    for (index, plot) in file.plot.iter().enumerate() {
        let checked = plot.check(axes, variants);
        faults.accept(checked.map_err(|fault| fault.under(&format!("plot[{index}]"))));
    }
}

fn dimension(name: &str, axes: &[String]) -> Option<Dimension> {
    let axis = axes.iter().position(|axis| axis == name).map(Dimension::Axis);
    axis.or_else(|| (name == VARIANT).then_some(Dimension::Variant))
}

/// Returns the values of an axis; `None` if there are more than [`MOST_VALUES`].
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
        let file: SweepFile = super::super::keys_of(&file).map_err(|it| it.to_string())?;
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
        assert_eq!(told("kind = \"box\"\nx = \"variant\""), "");
        assert_eq!(told("kind = \"heat\"\nx = \"path.up\"\nline = \"path.rtt\""), "");
        assert_eq!(told("kind = \"scatter\"\nx_metric = \"goodput.up\"\nline = \"path.up\""), "");
        let only = "only = { \"path.up\" = \"5mbit\", variant = \"codel\" }";
        assert_eq!(told(&format!("kind = \"sweep\"\nx = \"path.rtt\"\n{only}")), "");
        for (rest, words) in [
            ("kind = \"sweep\"", "plot[0].x: is missing"),
            ("kind = \"scatter\"", "plot[0].x_metric: is missing"),
            ("kind = \"scatter\"\nx_metric = \"a\"\nx = \"variant\"", "plot[0].x: a `scatter`"),
            ("kind = \"box\"\nx = \"variant\"\nx_metric = \"a\"", "plot[0].x_metric: is a key of"),
            ("kind = \"sweep\"\nx = \"path.down\"", "expected path.up, path.rtt or variant"),
            (
                "kind = \"sweep\"\nx = \"variant\"\nline = \"variant\"",
                "plot[0].line: is equal to `x`",
            ),
            (
                "kind = \"sweep\"\nx = \"variant\"\nline = \"variant\"",
                "plot[0].line: is equal to `x`",
            ),
            ("kind = \"heat\"\nx = \"variant\"", "plot[0].line: is missing"),
            ("kind = \"sweep\"\nx = \"path.up\"\nline = \"odd\"", "plot[0].line: no axis"),
            ("kind = \"box\"\nx = \"variant\"\nonly = { odd = \"1\" }", "plot[0].only: no axis"),
            (
                "kind = \"box\"\nx = \"variant\"\nonly = { \"path.up\" = \"6mbit\" }",
                "path.up has no value \"6mbit\"; expected 5mbit or 10mbit",
            ),
            (
                "kind = \"box\"\nx = \"path.up\"\nonly = { variant = \"pie\" }",
                "expected fifo or codel",
            ),
            ("kind = \"time\"\nx = \"variant\"", "time"),
        ] {
            let told = told(rest);
            assert!(told.contains(words), "{rest}: {told}");
        }
        let many = "kind = \"box\"\nx = \"variant\"\ntitle = \"t\"\nmetric = \"m\"\n[[plot]]\n";
        let many = format!("{}{}", many.repeat(24), many.trim_end_matches("[[plot]]\n"));
        assert!(checked(&many).is_err_and(|told| told.contains("more than 24 pictures")));
    }

    #[test]
    fn variants_are_the_lines_where_nothing_else_is_said() {
        let of = |rest: &str| {
            let plot = format!("title = \"t\"\nmetric = \"m\"\nkind = \"box\"\n{rest}");
            let plot = checked(&plot).expect("right").plot.remove(0);
            let axes = ["path.up", "path.rtt"].map(str::to_owned);
            (plot.line(&axes), plot.x(&axes))
        };
        let (variant, up, rtt) = (Dimension::Variant, Dimension::Axis(0), Dimension::Axis(1));
        assert_eq!(of("x = \"path.rtt\""), (Some(variant), Some(rtt)));
        assert_eq!(of("x = \"variant\""), (None, Some(variant)));
        assert_eq!(of("x = \"variant\""), (None, Some(variant)));
        assert_eq!(of("x = \"variant\"\nline = \"path.up\""), (Some(up), Some(variant)));
    }
}
