//! Summaries of sums: quantiles, distributions, tables and captions.

use std::cmp::Reverse;

use underload_fleet::bins::{Bins, GAMMA, value_of};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::store::{Archive, Dimension, Filter, PlanRow, Sum, Summed};
use underload_record::stats::binned_quantile;
use underload_report::diagram::Curve;
use underload_report::{one_line, thousands};

use super::problem::{Problem, Result};
use super::question::{Ask, LOADS};
use super::table::{Cell, Column, count, number};
use crate::store;

/// The quantile of the probes sent, milliseconds, as in a study: a lost probe is longer than every
/// answer. `None` if the quantile is a lost probe.
pub fn quantile_ms(bins: &Bins, lost: u64, share: f64) -> Option<f64> {
    let counts = bins.iter().map(|(bin, count)| (i64::from(bin), count));
    binned_quantile(GAMMA, counts, bins.count().saturating_add(lost), share).map(|us| us / 1e3)
}

/// The distribution function: delays in milliseconds, with the percentage of all probes, including
/// lost ones, that took at most as long.
pub(super) fn cumulative(bins: &Bins, lost: u64) -> Vec<(f64, f64)> {
    let all = bins.count().saturating_add(lost).max(1) as f64;
    let mut seen = 0_u64;
    let points = bins.iter().flat_map(|(bin, count)| {
        let before = seen as f64 * 100.0 / all;
        seen = seen.saturating_add(count);
        // Assumes that delays are spread evenly over a bin.
        let upper = GAMMA.powi(i32::from(bin)) / 1e3;
        [(upper / GAMMA, before), (upper, seen as f64 * 100.0 / all)]
    });
    let mut points: Vec<(f64, f64)> = points.collect();
    points.dedup_by(|next, last| {
        (next.1 - last.1).abs() < 1e-12 && (next.0 / last.0 - 1.0).abs() < 1e-9
    });
    points
}

/// The percentage of all probes, lost ones included, in `bars` bars of `width_ms`.
pub(super) fn shares(bins: &Bins, lost: u64, from_ms: f64, width_ms: f64, bars: usize) -> Vec<f64> {
    let all = bins.count().saturating_add(lost).max(1) as f64;
    let mut shares = vec![0.0; bars];
    for (bin, counted) in bins.iter() {
        let part = (value_of(bin) / 1e3 - from_ms) / width_ms;
        if part >= 0.0
            && let Some(share) = shares.get_mut(part as usize)
        {
            *share += counted as f64 * 100.0 / all;
        }
    }
    shares
}

/// The dimensions of a query, with the cohort, because cohorts can differ within a marking.
pub(super) fn dimensions(archive: &mut dyn Archive, ask: &Ask) -> Result<Vec<Dimension>> {
    let mut by = ask.question.dimensions()?;
    let filter = &ask.question.filter;
    if by.contains(&Dimension::Dscp) && !by.contains(&Dimension::Cohort) {
        let plans = archive.plans()?.into_iter();
        let mut meant =
            plans.filter(|row| filter.plan.as_ref().is_none_or(|name| row.name == *name));
        let has_cohorts =
            |row: PlanRow| Plan::parse(&row.text).is_ok_and(|plan| plan.cohorts.len() > 1);
        if filter.cohort.is_none() && meant.any(has_cohorts) {
            by.insert(0, Dimension::Cohort);
        }
    }
    Ok(by)
}

/// The cells of [`columns`] for a group.
pub(super) fn cells(sum: &Sum) -> [Cell; 6] {
    let quantile = |share| Cell::number(quantile_ms(&sum.bins, sum.lost, share));
    let lost = sum.lost as f64 * 100.0 / sum.sent.max(1) as f64;
    [
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        Cell::Number(lost),
        Cell::Count(sum.tests),
        Cell::Count(sum.devices),
    ]
}

pub(super) fn columns() -> [Column; 6] {
    [
        number("p50_ms", "p50", "ms"),
        number("p95_ms", "p95", "ms"),
        number("p99_ms", "p99", "ms"),
        number("lost_percent", "Lost", "%"),
        count("series", "Series"),
        count("devices", "Devices"),
    ]
}

/// Maximum number of curves in a chart: readers cannot distinguish more.
pub(super) const CURVES: usize = 8;

/// Returns the groups with the most tests, ordered by name.
pub(super) fn largest(whole: &Loaded) -> Vec<&Sum> {
    let mut sums: Vec<&Sum> = whole.sums.iter().collect();
    sums.sort_by_key(|sum| Reverse(sum.tests));
    sums.truncate(CURVES);
    sums.sort_by_key(|sum| number_or_text(&sum.key));
    sums
}

/// Sort key that orders numbers by value and other texts by bytes.
fn number_or_text(key: &[String]) -> Vec<(u64, String)> {
    let number = |text: &String| (text.parse().unwrap_or(u64::MAX), text.clone());
    key.iter().map(number).collect()
}

/// Describes the tests and devices of each curve, and what is not shown.
pub(super) fn made_of(ask: &Ask, whole: &Loaded, by: &[Dimension], groups: &[&Sum]) -> String {
    let parts = groups.iter().map(|sum| {
        let name = group_words(by, sum, 0);
        format!("{name}: {} series of {} devices", thousands(sum.tests), thousands(sum.devices))
    });
    let meant = ask.question.words();
    let meant = if meant.is_empty() { String::new() } else { format!(" Only {meant}.") };
    let left_out = match whole.sums.len() - groups.len() {
        0 => String::new(),
        more => format!(" {more} smaller groups are in the table only."),
    };
    let parts = parts.collect::<Vec<_>>().join("; ");
    format!("{parts}.{meant}{left_out}{}", whole.hidden_words(ask))
}

/// Returns the first and last position of the curves' points, and their highest value.
pub(super) fn extent(curves: &[Curve]) -> Option<(f64, f64, f64)> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let first = points().map(|(at, _)| *at).reduce(f64::min)?;
    let last = points().map(|(at, _)| *at).reduce(f64::max)?;
    let most = points().map(|(_, value)| *value).reduce(f64::max)?;
    Some((first, last, most))
}

/// Describes the group of a sum, without the first `skip` dimensions.
pub(super) fn group_words(by: &[Dimension], sum: &Sum, skip: usize) -> String {
    let is_alone = by.len() == skip + 1;
    let words = by.iter().zip(&sum.key).skip(skip).map(|(dimension, value)| match dimension {
        Dimension::Dscp if is_alone => marking_words(value),
        Dimension::Dscp => format!("DSCP {value}"),
        Dimension::Cohort => known(value, "no group"),
        Dimension::Hour => format!("{value:0>2}:00 UTC"),
        Dimension::Attribute(name) if name == "tier" => format!("{value} Mbit/s"),
        _ => known(value, "not known"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Returns a value that devices or operators chose, or `none` if it is empty. A value equal to
/// `none` is quoted.
fn known(value: &str, none: &str) -> String {
    let words = one_line(value);
    match words.trim_matches('"') {
        _ if value.is_empty() => none.to_owned(),
        same if same == none => format!("\"{words}\""),
        _ => words,
    }
}

/// Describes a marking with its class, if known: 45 uses the low latency queue (RFC 9956), 0 and 8
/// the classic one.
pub(super) fn marking_words(dscp: &str) -> String {
    match dscp {
        "0" | "8" => format!("DSCP {dscp} (classic)"),
        "45" => format!("DSCP {dscp} (low latency)"),
        _ => format!("DSCP {dscp}"),
    }
}

/// The sums of one load: the query's, or the first of [`LOADS`] that has results.
pub(super) struct Loaded {
    pub(super) kind: Kind,
    pub(super) sums: Vec<Sum>,
    /// Number of groups with too few devices to be shown.
    pub(super) hidden: usize,
    /// Days without data for this query, because only their sums are stored.
    pub(super) left_out: Summed,
}

impl Loaded {
    pub(super) fn read(
        archive: &mut dyn Archive,
        ask: &Ask,
        filter: &Filter,
        by: &[Dimension],
    ) -> Result<Self> {
        let dscp = ask.question.dscp()?.map(|dscp| dscp.to_string());
        // An archive cannot filter by load and marking. So they are its first dimensions here, and
        // the sums are filtered below.
        let mut dimensions = vec![Dimension::Kind];
        dimensions.extend(dscp.iter().map(|_| Dimension::Dscp));
        dimensions.extend_from_slice(by);
        let mut found = archive.sums(filter, &dimensions)?;
        if let Some(dscp) = dscp {
            found.retain_mut(|sum| sum.key.len() > 1 && sum.key.remove(1) == dscp);
        }
        let names = LOADS.map(|choice| choice.key);
        let is_there =
            |name: &&str| found.iter().any(|sum| sum.key.first().is_some_and(|k| k == name));
        let kind = match ask.question.load()? {
            Some(kind) => kind,
            None => {
                let found = names.into_iter().find(is_there).unwrap_or(names[0]);
                Kind::from_name(found).unwrap_or(Kind::Latency)
            }
        };
        let is_it = |sum: &Sum| sum.key.first().is_some_and(|name| name == kind.name());
        let mut sums: Vec<Sum> = found.into_iter().filter(is_it).collect();
        for sum in &mut sums {
            sum.key.remove(0);
        }
        let before = sums.len();
        sums.retain(|sum| sum.devices >= ask.least_devices);
        let hidden = before - sums.len();
        let left_out = if store::needs_results(filter, by) {
            archive.summed(filter)?
        } else {
            Summed::default()
        };
        Ok(Self { kind, sums, hidden, left_out })
    }

    /// Returns a sentence with the reason why nothing is shown. `period` is text.
    pub(super) fn nothing(&self, ask: &Ask, period: &str) -> String {
        let words = self.words();
        if self.left_out.days > 0 {
            let days = store::summed_words(self.left_out);
            return format!(
                "What was measured {words} {period} cannot be grouped or filtered like this: only \
                 sums of {days} are stored."
            );
        }
        match self.hidden {
            0 => format!("Nothing was measured {words} {period}."),
            _ => format!(
                "All groups that were measured {words} {period} have fewer than {} devices and \
                 are not shown.",
                ask.least_devices
            ),
        }
    }

    /// Returns a sentence about days that are missing from the numbers.
    pub(super) fn left_out_sentence(&self) -> Option<String> {
        let is_partial = self.left_out.days > 0 && !self.sums.is_empty();
        is_partial.then(|| {
            let days = store::summed_words(self.left_out);
            let are = if self.left_out.days == 1 { "is" } else { "are" };
            format!("{days} {are} stored as sums only and missing here.")
        })
    }

    /// `with the upstream full`
    pub(super) fn words(&self) -> &'static str {
        match self.kind {
            Kind::Upload => "with the upstream full",
            Kind::Download => "with the downstream full",
            Kind::Latency => "on an idle line",
        }
    }

    /// Returns a sentence about groups that are not shown; empty if all are shown.
    pub(super) fn hidden_words(&self, ask: &Ask) -> String {
        match self.hidden {
            0 => String::new(),
            hidden => format!(
                " {hidden} of the groups have fewer than {} devices and are not shown.",
                ask.least_devices
            ),
        }
    }
}

/// Rejects a filter that selects fewer devices than a viewer may see.
pub(super) fn check_group(archive: &mut dyn Archive, ask: &Ask, filter: &Filter) -> Result<()> {
    if ask.visitor.is_operator() {
        return Ok(());
    }
    let too_few = || {
        Err(Problem::NotAllowed(
            "Too few devices have this in common to be shown: a viewer sees groups, not homes.",
        ))
    };
    if !filter.attributes.is_empty() && archive.count_devices(filter)? < ask.least_devices {
        return too_few();
    }
    // Also counts devices whose runs did not measure.
    let measured = archive.sums(filter, &[])?.first().map_or(0, |sum| sum.devices);
    let due = archive.outcomes(filter)?.devices;
    let is_few = |devices: u64| devices > 0 && devices < ask.least_devices;
    if is_few(measured) || is_few(due) { too_few() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(delays_ms: impl IntoIterator<Item = f64>) -> Bins {
        let mut bins = Bins::default();
        delays_ms.into_iter().for_each(|delay| bins.add(delay * 1e3));
        bins
    }

    #[test]
    fn a_value_equal_to_the_placeholder_is_quoted() {
        let of = |name: &str, value: &str| {
            let sum = Sum { key: vec![value.to_owned()], ..Sum::default() };
            group_words(&[Dimension::Attribute(name.to_owned())], &sum, 0)
        };
        assert_eq!(of("region", ""), "not known");
        assert_eq!(of("region", "not known"), "\"not known\"");
        assert_eq!(of("region", "\"not known\""), "\"\"not known\"\"");
        assert_eq!(of("region", "north"), "north");
    }

    #[test]
    fn a_lost_probe_is_above_every_answer_in_a_quantile() {
        let bins = bins((1..=98).map(f64::from));
        let p99 = |lost| quantile_ms(&bins, lost, 0.99);
        assert!((p99(0).expect("all came") / 98.0 - 1.0).abs() < 0.02);
        assert_eq!(p99(2), None, "the 99th of 100 was lost");
        let half = quantile_ms(&bins, 98, 0.5).expect("half came");
        assert!((half / 98.0 - 1.0).abs() < 0.02, "{half}");
        assert_eq!(quantile_ms(&Bins::default(), 0, 0.5), None);
    }

    #[test]
    fn a_distribution_ends_at_the_share_of_answered_probes() {
        let bins = bins([10.0, 10.0, 20.0]);
        let points = cumulative(&bins, 1);
        assert!(points.is_sorted_by(|before, after| before.0 <= after.0 && before.1 <= after.1));
        assert_eq!(points.last().map(|point| point.1), Some(75.0));
        let of =
            |delay: f64| points.iter().rfind(|point| point.0 <= delay).map_or(0.0, |point| point.1);
        assert!((of(9.0), of(15.0), of(21.0)) == (0.0, 50.0, 75.0), "{points:?}");
    }

    #[test]
    fn parts_are_shares_of_all_probes() {
        let bins = bins([5.0, 20.0, 22.0, 400.0]);
        assert_eq!(shares(&bins, 1, 0.0, 15.0, 3), [20.0, 40.0, 0.0]);
        assert_eq!(shares(&bins, 0, 15.0, 15.0, 1), [50.0]);
    }
}
