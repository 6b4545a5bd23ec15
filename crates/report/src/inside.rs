//! Variants whose load waits much longer than the probes beside it, as behind a queue per flow.

use underload_record::schema::{Judged, Phase, Quantile, VariantInside, VariantLatency};

use crate::subject::Subject;
use crate::words::ms;

/// Least ratio, of the delay that the load adds to itself to that of its probes, in a sentence.
const FACTOR: i64 = 2;
/// Smallest difference of these delays that is stated, ns; a smaller wait of a page is not noticed.
const MORE_NS: i64 = 50_000_000;
/// Maximum number of variants in the sentence; the table has the rest.
const MOST: usize = 4;

/// Returns a sentence on these variants, each given with the latency of its probes under load;
/// `None` without any. No number of the probes shows what the load suffers there.
pub(crate) fn sentence<'a>(
    loaded: impl Iterator<Item = (&'a Subject<'a>, &'a VariantLatency)>,
) -> Option<String> {
    let told = loaded.filter_map(|(subject, beside)| {
        // Flows with an `extra_rtt` have another smallest round trip than the rest.
        if subject.run.record.scenario.text.contains("extra_rtt") {
            return None;
        }
        let added = |inside| added(subject, inside, beside);
        let (inside, beside, quantile) = subject.summary.inside.iter().filter_map(added).max()?;
        let is_longer = inside > FACTOR * beside && inside - beside > MORE_NS;
        is_longer.then(|| (subject.called(), ms(inside), ms(beside), quantile.name()))
    });
    let mut told = told.take(MOST);
    let (called, inside, beside, quantile) = told.next()?;
    let first = format!(
        "With {called} the packets of the load itself wait {inside} ms longer than idle at \
         {quantile}, those of the probes {beside} ms"
    );
    let others = told.map(|(called, inside, beside, quantile)| {
        format!("; with {called} {inside} ms and {beside} ms at {quantile}")
    });
    let others: String = others.collect();
    Some(format!("{first}{others}: the load delays itself, and other traffic little."))
}

/// Returns what the load adds to its own round trips and to those of probes beside it, ns, at the
/// highest quantile that both have.
fn added(
    subject: &Subject<'_>,
    inside: &VariantInside,
    beside: &VariantLatency,
) -> Option<(i64, i64, Quantile)> {
    let idle = subject.summary.headline(Phase::Idle)?.value_ns(Quantile::P50)?;
    let own = subject.trials().flat_map(|trial| &trial.inside);
    let own = own.filter(|of_trial| of_trial.direction == inside.direction);
    let smallest = own.filter_map(|of_trial| of_trial.smallest_ns).min()? as i64;
    [Quantile::P99, Quantile::P95, Quantile::P50].into_iter().find_map(|quantile| {
        let Judged::Answered(beside) = beside.judged(quantile)? else { return None };
        let inside = inside.told_over_repeats(quantile)?.mean as i64;
        Some((inside.saturating_sub(smallest), beside.saturating_sub(idle), quantile))
    })
}
