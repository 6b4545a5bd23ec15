//! `[[plot]]` of a sweep: pictures of its cells, in its report.

use underload_record::schema::{PlotKind, PlotRecord};
use underload_scenario::keys::{Fault, alternatives};
use underload_store::sweep::SweepPlot;

use super::axis::Axis;
use super::file::{PlotForm, PlotKeys};

/// Maximum number of pictures of a sweep.
pub(super) const MOST_PLOTS: usize = 24;
/// Maximum number of values of an axis among which `only` is checked.
const MOST_VALUES: u64 = 1_000;
/// In keys that name an axis, this name means the variant.
const VARIANT: &str = "variant";

impl PlotKeys {
    pub(super) fn metrics(&self) -> impl Iterator<Item = &String> {
        [&self.metric].into_iter().chain(&self.x_metric)
    }

    /// Checks that the picture has the keys of its form.
    fn check_form(&self) -> Result<(), Fault> {
        let fault = |key: &str, problem: &str| Err(Fault::new(key, problem));
        if self.title.is_empty() {
            return fault("title", "a picture needs a heading");
        }
        match (self.kind, &self.x, &self.x_metric) {
            (PlotForm::Scatter, _, None) => {
                fault("x_metric", "is missing: the metric along the x axis")
            }
            (PlotForm::Scatter, Some(_), _) => {
                fault("x", "a `scatter` has `x_metric` in place of it")
            }
            (PlotForm::Scatter, None, Some(_)) | (_, Some(_), None) => Ok(()),
            (_, _, Some(_)) => fault("x_metric", "is a key of `scatter` alone"),
            (_, None, None) => fault("x", "is missing: the axis along the x axis"),
        }
    }

    /// Returns the picture. Rejects axes, variants and values that the sweep does not have.
    pub(super) fn plot(
        &self,
        axes: &[Axis],
        variants: &[&str],
        metrics: &[String],
    ) -> Result<SweepPlot, Fault> {
        self.check_form()?;
        let names = || axes.iter().map(|axis| axis.name.as_str()).chain([VARIANT]);
        let dimension = |key: &str, name: &str| {
            names().position(|known| known == name).ok_or_else(|| {
                let known = alternatives(names());
                Fault::new(key, format!("no axis is called {name:?}; expected {known}"))
            })
        };
        let x = self.x.as_deref().map(|x| dimension("x", x)).transpose()?;
        let line = match self.line.as_deref() {
            None if x == Some(axes.len()) => None,
            line => Some(dimension("line", line.unwrap_or(VARIANT))?),
        };
        if line.is_some() && line == x {
            return Err(Fault::new("line", "is equal to `x`; expected another axis"));
        }
        if self.kind == PlotForm::Heat && line.is_none() {
            return Err(Fault::new("line", "is missing: the axis whose values are the rows"));
        }
        let mut only = Vec::new();
        for (name, value) in &self.only {
            let position = dimension("only", name)?;
            let known = match axes.get(position) {
                Some(axis) => values(axis),
                None => Some(variants.iter().map(|variant| (*variant).to_owned()).collect()),
            };
            if let Some(known) = known.filter(|known| !known.contains(value)) {
                let known = alternatives(known.iter().map(String::as_str));
                let problem = format!("{name} has no value {value:?}; expected {known}");
                return Err(Fault::new("only", problem));
            }
            only.push((position, value.clone()));
        }
        let metric = |metric: &String| metrics.iter().position(|name| name == metric);
        let x_metric = self.x_metric.as_ref();
        let or = |own: &String, usual: Option<&String>| match usual {
            Some(usual) if own.is_empty() => usual.clone(),
            _ => own.clone(),
        };
        let picture = PlotRecord {
            kind: match self.kind {
                PlotForm::Sweep => PlotKind::Sweep,
                PlotForm::Scatter => PlotKind::Scatter,
                PlotForm::Box => PlotKind::Box,
                PlotForm::Heat => PlotKind::Heat,
            },
            title: self.title.clone(),
            says: or(&self.says, Some(&self.metric)),
            x_says: or(&self.x_says, self.x.as_ref().or(x_metric)),
            log: self.log.clone(),
            ..PlotRecord::default()
        };
        let (metric, x_metric) =
            (metric(&self.metric).unwrap_or_default(), x_metric.and_then(metric));
        Ok(SweepPlot { picture, line, x, metric, x_metric, only })
    }
}

/// Returns the values of an axis; `None` if there are more than [`MOST_VALUES`].
fn values(axis: &Axis) -> Option<Vec<String>> {
    let levels = axis.levels().filter(|levels| *levels <= MOST_VALUES)?;
    Some((0..levels).map(|level| axis.level(level).value.text).collect())
}

#[cfg(test)]
mod tests {
    use super::super::file::SweepFile;
    use super::*;
    use underload_scenario::keys::Faults;

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

    fn checked(plot: &str) -> Result<SweepPlot, String> {
        let file = format!("{AXES}\n[[plot]]\n{plot}");
        let file: SweepFile = super::super::keys_of(&file).map_err(|it| it.to_string())?;
        let mut faults = Faults::default();
        let read = file.axis.read("axis", &mut faults).into_iter().filter_map(|(_, keys)| keys);
        let axes: Vec<Axis> = read.map(|keys| Axis::read(keys, true).expect("right")).collect();
        let (_, keys) = file.plot.read("plot", &mut faults).remove(0);
        let metrics = ["load.rtt.p99", "goodput.up"].map(str::to_owned);
        let keys = faults.result(keys).map_err(|fault| fault.to_string())?;
        keys.plot(&axes, &["fifo", "codel"], &metrics).map_err(|fault| fault.to_string())
    }

    fn told(rest: &str) -> String {
        let plot = format!("title = \"t\"\nmetric = \"load.rtt.p99\"\n{rest}");
        checked(&plot).err().unwrap_or_default()
    }

    #[test]
    fn a_plot_must_name_existing_axes_and_values() {
        assert_eq!(told("kind = \"sweep\"\nx = \"path.up\""), "");
        assert_eq!(told("kind = \"box\"\nx = \"variant\""), "");
        assert_eq!(told("kind = \"heat\"\nx = \"path.up\"\nline = \"path.rtt\""), "");
        assert_eq!(told("kind = \"scatter\"\nx_metric = \"goodput.up\"\nline = \"path.up\""), "");
        let only = "only = { \"path.up\" = \"5mbit\", variant = \"codel\" }";
        assert_eq!(told(&format!("kind = \"sweep\"\nx = \"path.rtt\"\n{only}")), "");
        for (rest, words) in [
            ("kind = \"sweep\"", "x: is missing"),
            ("kind = \"scatter\"", "x_metric: is missing"),
            ("kind = \"scatter\"\nx_metric = \"a\"\nx = \"variant\"", "x: a `scatter`"),
            ("kind = \"box\"\nx = \"variant\"\nx_metric = \"a\"", "x_metric: is a key of"),
            ("kind = \"sweep\"\nx = \"path.down\"", "expected path.up, path.rtt or variant"),
            ("kind = \"sweep\"\nx = \"variant\"\nline = \"variant\"", "line: is equal to `x`"),
            ("kind = \"sweep\"\nx = \"variant\"\nline = \"variant\"", "line: is equal to `x`"),
            ("kind = \"heat\"\nx = \"variant\"", "line: is missing"),
            ("kind = \"sweep\"\nx = \"path.up\"\nline = \"odd\"", "line: no axis"),
            ("kind = \"box\"\nx = \"variant\"\nonly = { odd = \"1\" }", "only: no axis"),
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
    }

    #[test]
    fn variants_are_the_curves_by_default() {
        let of = |rest: &str| {
            let plot = format!("title = \"t\"\nmetric = \"m\"\nkind = \"box\"\n{rest}");
            let plot = checked(&plot).expect("right");
            (plot.line, plot.x)
        };
        let (up, rtt, variant) = (0, 1, 2);
        assert_eq!(of("x = \"path.rtt\""), (Some(variant), Some(rtt)));
        assert_eq!(of("x = \"variant\""), (None, Some(variant)));
        assert_eq!(of("x = \"variant\""), (None, Some(variant)));
        assert_eq!(of("x = \"variant\"\nline = \"path.up\""), (Some(up), Some(variant)));
    }
}
