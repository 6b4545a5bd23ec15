//! From samples of probes to what is handed in of them.

use underload_fleet::bins::Bins;
use underload_fleet::outcome::SeriesResult;
use underload_record::schema::{Phase, Sample};

/// What each series of probes showed in a phase; the series are numbered as their markings are.
pub(crate) fn series_of(classes: &[u8], phase: Phase, samples: &[Sample]) -> Vec<SeriesResult> {
    let of_series = |(index, dscp): (usize, &u8)| {
        let is_of = |sample: &&Sample| sample.flow as usize == index && sample.phase == phase;
        one(*dscp, samples.iter().filter(is_of))
    };
    classes.iter().enumerate().map(of_series).collect()
}

fn one<'a>(dscp: u8, samples: impl Iterator<Item = &'a Sample>) -> SeriesResult {
    let mut rtts_ns = Vec::new();
    let (mut sent, mut bins) = (0, Bins::default());
    for sample in samples {
        sent += 1;
        if let Some(rtt_ns) = sample.rtt_ns {
            bins.add(rtt_ns as f64 / 1e3);
            rtts_ns.push(rtt_ns);
        }
    }
    rtts_ns.sort_unstable();
    let answered = rtts_ns.len() as u64;
    // The nearest rank among all that were sent; the lost ones come last.
    let quantile = |percent: u64| {
        let rank = (sent * percent).div_ceil(100).max(1);
        rtts_ns.get(rank as usize - 1).map(|rtt_ns| micros(*rtt_ns))
    };
    let sum: u128 = rtts_ns.iter().map(|rtt_ns| u128::from(*rtt_ns)).sum();
    SeriesResult {
        dscp,
        sent,
        lost: sent - answered,
        bins,
        p50_us: quantile(50),
        p99_us: quantile(99),
        mean_us: (answered > 0).then(|| micros((sum / u128::from(answered)) as u64)),
        max_us: rtts_ns.last().map(|rtt_ns| micros(*rtt_ns)),
    }
}

/// To the nearest.
fn micros(nanos: u64) -> u64 {
    nanos.saturating_add(500) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(flow: u16, phase: Phase, rtt_ms: Option<u64>) -> Sample {
        let rtt_ns = rtt_ms.map(|rtt| rtt * 1_000_000);
        Sample { flow, phase, rtt_ns, ..Sample::default() }
    }

    #[test]
    fn lost_probes_are_longer_than_all_others() {
        let mut samples: Vec<Sample> =
            (1..=99).map(|rtt| sample(1, Phase::Load, Some(rtt))).collect();
        samples.push(sample(1, Phase::Load, None));
        samples.push(sample(0, Phase::Load, None));
        samples.push(sample(1, Phase::Ramp, Some(9_000)));
        let [none, series] = &series_of(&[0, 45], Phase::Load, &samples)[..] else { panic!() };
        assert_eq!((series.dscp, series.sent, series.lost), (45, 100, 1));
        assert_eq!((series.p50_us, series.p99_us), (Some(50_000), Some(99_000)));
        assert_eq!((series.mean_us, series.max_us), (Some(50_000), Some(99_000)));
        assert_eq!(series.bins.count(), 99);
        assert_eq!((none.sent, none.lost, none.p50_us, none.max_us), (1, 1, None, None));
        samples.extend([sample(1, Phase::Load, None), sample(1, Phase::Load, None)]);
        let series = &series_of(&[0, 45], Phase::Load, &samples)[1];
        assert_eq!((series.lost, series.p99_us), (3, None), "it was lost");
    }
}
