//! Finds the segment of the path in which a load adds delay.
//!
//! The hops are probed at the same times, so the delay that the load adds up to each of them is
//! known at each of these times, and a segment's delay is the difference of two hops. Five rules
//! keep a slow router from being blamed for a queue, and a queue from being blamed on the wrong
//! segment:
//!
//! 1. **The delay of a hop is at most that of the hops behind it.** Packets to them pass the same
//!    queues. More than that is the hop's own slow path for answers.
//! 2. **Equal queues are compared.** The way back passes the shared queues at other times for a
//!    near hop than for a far one. Answers are therefore matched by the time of sending or by that
//!    of arrival, whichever agrees better: the first suits a queue on the way up, the other one on
//!    the way down.
//! 3. **A hop is not used if its answers are few or belie a queue**: it is often slower than what
//!    is behind it, or its delay without load varies more than that of the far end.
//! 4. **The evidence must separate.** The verdict names a segment only if it adds most of the
//!    delay, if both hops at its ends are used, if what is behind it stays calm, and, for the last
//!    segment, if echoes wait as other packets do.
//! 5. **A queue grows where the path is narrowest.** If a peer let the local network be loaded
//!    alone, a load far below its rate does not wait there, and one near its rate waits nowhere
//!    else.

#[cfg(test)]
#[path = "places_tests.rs"]
mod places;
#[cfg(test)]
mod tests;

use underload_probe::route::{HopProbes, PathProbe};
use underload_record::schema::{
    Distribution, HopReadings, Location, PathHop, PathSegment, PhaseWindow, SegmentDelay,
};
use underload_record::stats::{distribution, nearest_rank};

/// Below this added delay at p90 there is nothing to locate: grade A+.
const NOTICED_MS: f64 = 5.0;
/// Least share of the added delay by which a verdict names a segment.
const SHARE_LEAST: f64 = 0.6;
/// Fewest answers of a hop without and under load.
const IDLE_LEAST: usize = 5;
const LOAD_LEAST: usize = 20;
/// Least share of the far end's probes that must be answered.
const FAR_ANSWERED_LEAST: f64 = 0.5;
/// Answers sent within this time before or after another one smooth it.
const SMOOTHED_NS: u64 = 50_000_000;
/// An answer is smoothed to one of these quantiles of the answers near it in time.
const MEDIAN: f64 = 0.5;
const QUICKEST: f64 = 0.01;
/// Longest gap between two answers of a hop over which its delay is interpolated.
const GAP_MAX_NS: u64 = 300_000_000;
/// A hop that exceeds the one behind it by less than this, and by less than
/// [`TOLERANCE_SHARE`] of its delay, agrees with it.
const TOLERANCE_MS: f64 = 5.0;
const TOLERANCE_SHARE: f64 = 0.2;
/// Largest share of the times at which a hop may exceed the one behind it.
const EXCEEDS_MAX: f64 = 0.1;
/// Largest spread of what is behind the named segment, as a share of the segment's p90.
const RESIDUE_MAX: f64 = 0.5;
/// A load below this share of what the local network carries alone does not wait there.
const SPARES_LOCAL: f64 = 0.7;
/// A load from this share on waits in the local network.
const FILLS_LOCAL: f64 = 0.9;
/// A load through the router above this share of the local network's own rate shows that the peer
/// was the limit when the local network alone was loaded.
const SLOW_PEER: f64 = 1.2;
/// Echoes to the far end that are less delayed than this share of other packets do not wait in
/// the queue.
const ECHO_SHARE: f64 = 0.5;

/// The probes of one step, of all hops.
#[derive(Clone, Copy, Debug)]
pub struct PathProbes<'a> {
    /// The hops before the far end, nearest first: a peer if there is one, the router, and the
    /// provider's first hop. A hop that does not answer has no probes.
    pub near: &'a [HopProbes],
    /// The far end, probed by packets of the load's protocol.
    pub far: &'a HopProbes,
    /// The far end, probed by echoes as the other hops are.
    pub far_echoes: &'a [PathProbe],
    pub idle: PhaseWindow,
    pub load: PhaseWindow,
    /// Rate of the load as a share of what the local network carried when it was loaded alone;
    /// `None` if it was not.
    pub local_share: Option<f64>,
}

/// Splits the delay that the load adds among the segments of the path.
pub fn locate(probes: &PathProbes<'_>) -> Location {
    let far = Course::new(&probes.far.probes, probes, MEDIAN);
    let too_few = far.unusable().or_else(|| far.loses_too_many());
    let times = far.answers_under_load(&probes.load);
    let far_added_ms: Vec<f64> = times.iter().map(|it| it.added_ms.max(0.0)).collect();
    let mut chain = vec![Node {
        hop: probes.far.hop,
        readings: far.readings(probes.far, too_few.clone()),
        added_ms: too_few.is_none().then(|| far_added_ms.clone()),
    }];
    let mut behind_ms = far_added_ms;
    for hop in probes.near.iter().rev() {
        let course = Course::new(&hop.probes, probes, MEDIAN);
        let along = |course: &Course| course.along(&times, &behind_ms, far.idle_spread_ms());
        // The quickest of a few answers shows the queue also if most of them are slow.
        let along = along(&course)
            .or_else(|reason| along(&Course::new(&hop.probes, probes, QUICKEST)).or(Err(reason)));
        let (unused, added_ms) = match along {
            Ok(own_ms) => {
                behind_ms = at_most(&own_ms, &behind_ms);
                (None, Some(behind_ms.clone()))
            }
            Err(reason) => (Some(reason), None),
        };
        chain.push(Node { hop: hop.hop, readings: course.readings(hop, unused), added_ms });
    }
    chain.reverse();
    let hops = chain.iter().map(|node| node.readings.clone()).collect();
    if let Some(reason) = too_few {
        let not_known_because = Some(format!("the far end {reason}"));
        return Location { hops, not_known_because, ..Location::default() };
    }
    let split = Split::new(&chain, probes.local_share);
    let verdict = split.verdict(&chain, &Course::new(probes.far_echoes, probes, MEDIAN), &times);
    Location {
        local_share_percent: probes.local_share.map(|share| share * 100.0),
        hops,
        segments: split.rows.iter().map(|row| row.delay(split.mean_ms())).collect(),
        total: Some(in_ns(&split.total_ms)),
        verdict: verdict.as_ref().ok().copied(),
        not_known_because: verdict.err(),
    }
}

/// A hop with the delay that the load adds up to it.
struct Node {
    hop: PathHop,
    readings: HopReadings,
    /// Delay that the load adds up to the hop, beside each answer of the far end; `None` if the
    /// hop is not used.
    added_ms: Option<Vec<f64>>,
}

/// The delay of the path, split among the segments between used hops.
struct Split {
    rows: Vec<Row>,
    total_ms: Vec<f64>,
    /// The load as a share of the rate of the local network alone ([`PathProbes::local_share`]).
    local_share: Option<f64>,
}

struct Row {
    covers: Vec<PathSegment>,
    added_ms: Vec<f64>,
    /// Delay behind the segment.
    behind_ms: Vec<f64>,
}

impl Row {
    fn mean_ms(&self) -> f64 {
        mean(&self.added_ms)
    }

    fn delay(&self, total_ms: f64) -> SegmentDelay {
        let share_percent = if total_ms > 0.0 { self.mean_ms() * 100.0 / total_ms } else { 0.0 };
        SegmentDelay { covers: self.covers.clone(), added: in_ns(&self.added_ms), share_percent }
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.covers.iter().map(|it| it.name()).collect();
        names.join(" and ")
    }
}

impl Split {
    fn new(chain: &[Node], local_share: Option<f64>) -> Self {
        let total_ms = chain.last().and_then(|far| far.added_ms.clone()).unwrap_or_default();
        let has_peer = chain.iter().any(|it| it.hop == PathHop::Peer && it.added_ms.is_some());
        let (mut rows, mut covers) = (Vec::new(), Vec::new());
        let mut before_ms = vec![0.0; total_ms.len()];
        for node in chain {
            match node.hop {
                // Without the peer the local network reaches to the router.
                PathHop::Peer if node.added_ms.is_none() => continue,
                PathHop::Router if !has_peer => covers.push(PathSegment::Local),
                hop => covers.push(hop.segment()),
            }
            let Some(up_to_ms) = &node.added_ms else { continue };
            let covers = narrowed(std::mem::take(&mut covers), local_share);
            let added_ms = differences(up_to_ms, &before_ms);
            rows.push(Row { covers, added_ms, behind_ms: differences(&total_ms, up_to_ms) });
            before_ms.clone_from(up_to_ms);
        }
        Self { rows, total_ms, local_share }
    }

    fn mean_ms(&self) -> f64 {
        mean(&self.total_ms)
    }

    /// Returns the segment that adds the delay.
    ///
    /// # Errors
    /// Returns why it is not known, as the end of a sentence.
    fn verdict(
        &self,
        chain: &[Node],
        echoes: &Course,
        times: &[Answer],
    ) -> Result<PathSegment, String> {
        if quantile(&self.total_ms, 0.9) < NOTICED_MS {
            return Err(format!("the load adds less than {NOTICED_MS:.0} ms"));
        }
        let by_mean = |one: &&Row, other: &&Row| one.mean_ms().total_cmp(&other.mean_ms());
        let Some(top) = self.rows.iter().max_by(by_mean) else {
            return Err("no hop was probed".to_owned());
        };
        if top.mean_ms() < SHARE_LEAST * self.mean_ms() {
            return Err(format!("no segment adds most of the delay: {}", self.shares()));
        }
        let &[segment] = top.covers.as_slice() else {
            return Err(format!("{} cannot be told apart: {}", top.names(), silent(chain)));
        };
        let top_p90_ms = quantile(&top.added_ms, 0.9);
        if spread(&top.behind_ms) > TOLERANCE_MS.max(RESIDUE_MAX * top_p90_ms) {
            return Err(format!(
                "the far end's delay does not follow that at the end of the {}",
                segment.name()
            ));
        }
        if let Some(share) = self.local_share.filter(|it| *it < SPARES_LOCAL)
            && segment == PathSegment::Local
        {
            return Err(format!(
                "the local network alone carried more ({:.0} % of that is this load), and hops \
                 behind it answer as if packets waited there",
                share * 100.0
            ));
        }
        if segment == PathSegment::Beyond {
            echoes.wait_as_others(times)?;
        }
        Ok(segment)
    }

    /// Formats `local network 48 %, access line 52 %`.
    fn shares(&self) -> String {
        let shares = self
            .rows
            .iter()
            .map(|row| format!("{} {:.0} %", row.names(), row.mean_ms() * 100.0 / self.mean_ms()));
        shares.collect::<Vec<_>>().join(", ")
    }
}

/// Removes from segments that no hop distinguishes those in which the load cannot wait.
fn narrowed(mut covers: Vec<PathSegment>, local_share: Option<f64>) -> Vec<PathSegment> {
    if let (Some(share), [PathSegment::Local, _, ..]) = (local_share, covers.as_slice()) {
        if (FILLS_LOCAL..=SLOW_PEER).contains(&share) {
            covers.truncate(1);
        } else if share < SPARES_LOCAL {
            covers.remove(0);
        }
    }
    covers
}

/// Lists the unused hops with their reasons.
fn silent(chain: &[Node]) -> String {
    let unused = chain.iter().filter(|it| it.hop != PathHop::Peer).filter_map(|node| {
        let reason = node.readings.unused_because.as_ref()?;
        Some(format!("the {} {reason}", node.hop.name()))
    });
    unused.collect::<Vec<_>>().join(", and ")
}

/// An answered probe and its delay.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sent_ns: u64,
    arrived_ns: u64,
    /// Delay above the median without load; smoothed among neighbours.
    added_ms: f64,
}

/// The delay of one hop over time.
#[derive(Debug)]
struct Course {
    sent_under_load: usize,
    answered_under_load: usize,
    answered_idle: usize,
    idle_ms: Option<f64>,
    /// By time of sending.
    answers: Vec<Answer>,
    idle: PhaseWindow,
}

impl Course {
    /// `share` is the quantile of near answers that replaces each of them.
    fn new(probes: &[PathProbe], all: &PathProbes<'_>, share: f64) -> Self {
        let answer = |probe: &PathProbe| {
            let round_trip_ns = probe.round_trip_ns?;
            let arrived_ns = probe.sent_ns.saturating_add(round_trip_ns);
            Some(Answer {
                sent_ns: probe.sent_ns,
                arrived_ns,
                added_ms: round_trip_ns as f64 / 1e6,
            })
        };
        let mut answers: Vec<Answer> = probes.iter().filter_map(answer).collect();
        answers = smoothed(&answers, share);
        let within = |window: &PhaseWindow| -> Vec<f64> {
            let within = answers.iter().filter(|it| window.contains(it.sent_ns));
            within.map(|it| it.added_ms).collect()
        };
        let (idle, load) = (within(&all.idle), within(&all.load));
        let idle_ms = (!idle.is_empty()).then(|| quantile(&idle, 0.5));
        for answer in &mut answers {
            answer.added_ms -= idle_ms.unwrap_or(0.0);
        }
        Self {
            sent_under_load: probes.iter().filter(|it| all.load.contains(it.sent_ns)).count(),
            answered_under_load: load.len(),
            answered_idle: idle.len(),
            idle_ms,
            answers,
            idle: all.idle,
        }
    }

    fn readings(&self, hop: &HopProbes, unused_because: Option<String>) -> HopReadings {
        HopReadings {
            hop: hop.hop,
            address: hop.address.clone(),
            distance: hop.distance,
            sent: self.sent_under_load as u64,
            answered: self.answered_under_load as u64,
            idle_ns: self.idle_ms.map(|ms| (ms * 1e6).round() as i64),
            unused_because,
        }
    }

    /// Returns why too little is known about the hop, if so.
    fn unusable(&self) -> Option<String> {
        let (answered, sent) = (self.answered_under_load, self.sent_under_load);
        if answered == 0 && self.answered_idle == 0 {
            return Some("does not answer".to_owned());
        }
        let is_enough = self.answered_idle >= IDLE_LEAST && answered >= LOAD_LEAST;
        (!is_enough).then(|| {
            let idle = self.answered_idle;
            format!("answered only {idle} probes without load and {answered} of {sent} under load")
        })
    }

    fn loses_too_many(&self) -> Option<String> {
        let (answered, sent) = (self.answered_under_load, self.sent_under_load);
        let is_lossy = (answered as f64) < FAR_ANSWERED_LEAST * sent as f64;
        is_lossy.then(|| format!("answered only {answered} of {sent} probes under load"))
    }

    fn answers_under_load(&self, load: &PhaseWindow) -> Vec<Answer> {
        self.answers.iter().copied().filter(|it| load.contains(it.sent_ns)).collect()
    }

    fn idle_spread_ms(&self) -> f64 {
        let idle = self.answers.iter().filter(|it| self.idle.contains(it.sent_ns));
        spread(&idle.map(|it| it.added_ms).collect::<Vec<_>>())
    }

    /// Returns the hop's delay beside each answer of the far end.
    ///
    /// # Errors
    /// Returns why the hop's answers do not show the queues on the path, as the end of a sentence.
    fn along(
        &self,
        far: &[Answer],
        behind_ms: &[f64],
        far_idle_spread_ms: f64,
    ) -> Result<Vec<f64>, String> {
        if let Some(reason) = self.unusable() {
            return Err(reason);
        }
        let own_ms = self.best_match(far).ok_or("answers with long gaps")?;
        let exceeds = |(own, behind): &(&f64, &f64)| {
            **own - **behind > TOLERANCE_MS.max(TOLERANCE_SHARE * **own)
        };
        let exceeding = own_ms.iter().zip(behind_ms).filter(exceeds).count();
        if exceeding as f64 > EXCEEDS_MAX * own_ms.len() as f64 {
            return Err("answers later than the hosts behind it".to_owned());
        }
        if self.idle_spread_ms() > far_idle_spread_ms + TOLERANCE_MS {
            return Err("answers late at times even without load".to_owned());
        }
        Ok(own_ms)
    }

    /// Matches the hop's answers with those of the far end by the time of sending or by that of
    /// arrival, whichever leaves the smaller spread of differences. `None` if too few match.
    fn best_match(&self, far: &[Answer]) -> Option<Vec<f64>> {
        let residue = |own: &[f64]| {
            let far_ms: Vec<f64> = far.iter().map(|it| it.added_ms).collect();
            spread(&far_ms.iter().zip(own).map(|(far, own)| far - own).collect::<Vec<_>>())
        };
        let by_departure = self.matched(far, |it| it.sent_ns)?;
        let by_arrival = self.matched(far, |it| it.arrived_ns)?;
        let is_departure = residue(&by_departure) <= residue(&by_arrival);
        Some(if is_departure { by_departure } else { by_arrival })
    }

    /// Interpolates the hop's delay at a time of each answer of the far end. `None` if more than
    /// half of these times are in gaps; elsewhere a gap keeps the delay before it.
    fn matched(&self, far: &[Answer], time: fn(&Answer) -> u64) -> Option<Vec<f64>> {
        let mut own = self.answers.clone();
        own.sort_by_key(time);
        let at: Vec<Option<f64>> =
            far.iter().map(|it| interpolated(&own, time, time(it))).collect();
        if at.iter().flatten().count() * 2 < at.len() {
            return None;
        }
        let mut last = at.iter().flatten().next().copied()?;
        let filled = at.into_iter().map(|known| {
            last = known.unwrap_or(last);
            last
        });
        Some(filled.collect())
    }

    /// Checks that echoes to the far end are delayed as other packets are.
    ///
    /// # Errors
    /// Returns why that is not so or not known, as the end of a sentence.
    fn wait_as_others(&self, far: &[Answer]) -> Result<(), String> {
        let echoes_ms = if self.unusable().is_none() { self.best_match(far) } else { None };
        let Some(echoes_ms) = echoes_ms else {
            return Err("the far end answers no echoes, so that hops which answer echoes at once \
                        may be before or behind the queue"
                .to_owned());
        };
        let others_ms: Vec<f64> = far.iter().map(|it| it.added_ms).collect();
        if mean(&echoes_ms) < ECHO_SHARE * mean(&others_ms) {
            return Err("echoes do not wait where other packets do, so that the answers of hops \
                        say nothing"
                .to_owned());
        }
        Ok(())
    }
}

/// Interpolates the delay at `wanted` between answers sorted by `time`; `None` in a gap.
fn interpolated(sorted: &[Answer], time: fn(&Answer) -> u64, wanted: u64) -> Option<f64> {
    let next = sorted.partition_point(|it| time(it) < wanted);
    let is_near = |it: &&Answer| time(it).abs_diff(wanted) <= GAP_MAX_NS;
    let after = sorted.get(next).filter(is_near);
    let before = next.checked_sub(1).and_then(|last| sorted.get(last)).filter(is_near);
    match (before, after) {
        (Some(before), Some(after)) => {
            let length = (time(after) - time(before)).max(1) as f64;
            let part = (wanted - time(before)) as f64 / length;
            Some(before.added_ms + part * (after.added_ms - before.added_ms))
        }
        (one, other) => one.or(other).map(|it| it.added_ms),
    }
}

/// Replaces each delay by a quantile of the delays of answers sent within [`SMOOTHED_NS`] of it.
fn smoothed(answers: &[Answer], share: f64) -> Vec<Answer> {
    let mut first = 0;
    let smooth = |(index, answer): (usize, &Answer)| {
        while answers[first].sent_ns.saturating_add(SMOOTHED_NS) < answer.sent_ns {
            first += 1;
        }
        let near = answers[first..]
            .iter()
            .take_while(|it| it.sent_ns <= answers[index].sent_ns.saturating_add(SMOOTHED_NS));
        let near: Vec<f64> = near.map(|it| it.added_ms).collect();
        Answer { added_ms: quantile(&near, share), ..*answer }
    };
    answers.iter().enumerate().map(smooth).collect()
}

fn at_most(own_ms: &[f64], limit_ms: &[f64]) -> Vec<f64> {
    own_ms.iter().zip(limit_ms).map(|(own, limit)| own.max(0.0).min(*limit)).collect()
}

fn differences(longer_ms: &[f64], shorter_ms: &[f64]) -> Vec<f64> {
    longer_ms.iter().zip(shorter_ms).map(|(longer, shorter)| longer - shorter).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns a quantile by nearest rank; 0 without values.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    nearest_rank(&sorted, share).unwrap_or(0.0)
}

/// Returns the difference of p90 and p10; 0 without values.
fn spread(values: &[f64]) -> f64 {
    quantile(values, 0.9) - quantile(values, 0.1)
}

fn in_ns(values_ms: &[f64]) -> Distribution {
    let mut values_ns: Vec<i64> = values_ms.iter().map(|ms| (ms * 1e6) as i64).collect();
    distribution(&mut values_ns).unwrap_or_default()
}
