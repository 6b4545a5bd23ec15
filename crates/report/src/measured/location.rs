//! Sentences and rows about the segment in which a load adds delay.

use underload_record::judgement::{Grade, StepJudgement};
use underload_record::schema::{
    Finding, HopReadings, Location, PathHop, PathSegment, Quantile, SegmentDelay,
};

use crate::words::ms;

/// The heads of [`rows`]; the first two are of words.
pub(crate) const HEADS: [&str; 6] = ["segment", "up to", "p50", "p90", "p99", "share"];

/// Returns a row for each segment, and one for the whole path.
pub(crate) fn rows(location: &Location) -> Vec<[String; 6]> {
    let Some(total) = location.total.as_ref() else { return Vec::new() };
    let all = SegmentDelay { covers: Vec::new(), added: *total, share_percent: 100.0 };
    let mut rows: Vec<[String; 6]> =
        location.segments.iter().map(|it| row(&covered(it), &end_of(location, it), it)).collect();
    rows.push(row("whole path", "", &all));
    rows
}

fn row(segment: &str, end: &str, delay: &SegmentDelay) -> [String; 6] {
    let told = |quantile| delay.added.told_ns(quantile).map_or("-".to_owned(), ms);
    let [p50, p90, p99] = [Quantile::P50, Quantile::P90, Quantile::P99].map(told);
    let share = format!("{:.0} %", delay.share_percent);
    [segment.to_owned(), end.to_owned(), p50, p90, p99, share]
}

fn covered(delay: &SegmentDelay) -> String {
    delay.covers.iter().map(|it| it.name()).collect::<Vec<_>>().join(" and ")
}

/// Formats the hop at the end of a row's segments: `router 192.168.1.1`.
fn end_of(location: &Location, delay: &SegmentDelay) -> String {
    let end = delay.covers.last().and_then(|last| hop_after(location, *last));
    end.map_or(String::new(), hop_name)
}

fn hop_after(location: &Location, segment: PathSegment) -> Option<&HopReadings> {
    let is_split = |it: &HopReadings| it.hop == PathHop::Peer && it.unused_because.is_none();
    let end = match segment {
        PathSegment::Local if location.hops.iter().any(is_split) => PathHop::Peer,
        PathSegment::Local | PathSegment::Router => PathHop::Router,
        PathSegment::Access => PathHop::Provider,
        PathSegment::Beyond => PathHop::FarEnd,
    };
    location.hops.iter().find(|it| it.hop == end)
}

/// Formats `router 192.168.1.1`, or with its distance if it is not the first: `hop 2`.
fn hop_name(hop: &HopReadings) -> String {
    let mut name = hop.hop.name().to_owned();
    if !hop.address.is_empty() {
        name = format!("{name} {}", hop.address);
    }
    match hop.distance {
        Some(distance) if distance > 1 => format!("{name} (hop {distance})"),
        _ => name,
    }
}

/// Returns the segment that adds the delay, or why it is not known, and the hops that are not used.
pub(crate) fn lines(finding: &Finding, judged: &StepJudgement) -> Vec<String> {
    let Some(location) = finding.location.as_deref() else { return Vec::new() };
    let name = &finding.step;
    let mut lines = Vec::new();
    if let Some(segment) = location.verdict {
        let delay = location.segments.iter().find(|it| it.covers == [segment]);
        lines.extend(delay.map(|delay| {
            format!(
                "{name}: the delay is {}, up to the {}: {} ms at p90, {:.0} % of what the load \
                 adds.",
                place(segment),
                end_of(location, delay),
                ms(delay.added.p90_ns),
                delay.share_percent
            )
        }));
    } else if judged.beside.is_some_and(|beside| beside.grade == Grade::APlus) {
        // The hops are probed beside the load.
        lines.push(format!("{name}: the load adds too little delay beside it to say where."));
    } else if let Some(reason) = &location.not_known_because {
        lines.push(format!("{name}: where the delay is, is not known: {reason}."));
    }
    lines.extend(location.local_share_percent.map(|percent| {
        format!("{name}: this load is {percent:.0} % of what the local network carried alone.")
    }));
    let unused = location.hops.iter().filter_map(|hop| {
        let reason = hop.unused_because.as_ref()?;
        Some(format!("{name}: not used to find the delay: the {} {reason}.", hop_name(hop)))
    });
    lines.extend(unused);
    lines
}

fn place(segment: PathSegment) -> &'static str {
    match segment {
        PathSegment::Local => "in the local network",
        PathSegment::Router => "in the router itself",
        PathSegment::Access => "on the access line",
        PathSegment::Beyond => "beyond the provider's first hop",
    }
}

/// Returns the cure of a segment; `None` for the access line, whose cure depends on its rate.
pub(super) fn cure(segment: PathSegment) -> Option<&'static str> {
    match segment {
        PathSegment::Local => Some(
            "Use a cable or move nearer to the access point, use its 5 or 6 GHz band, or replace \
             it by one with a queue per device (OpenWrt has it): a shaper on the line does not \
             shorten the queue of the Wi-Fi.",
        ),
        PathSegment::Router => Some(
            "Relieve the router: turn off what inspects each packet (statistics, parental \
             controls, antivirus), update it, or replace it by a faster one.",
        ),
        PathSegment::Beyond => Some(
            "Measure to another server; if that one is slow, too, show this report to the \
             provider: nothing at home shortens a queue in its network.",
        ),
        PathSegment::Access => None,
    }
}

#[cfg(test)]
mod tests {
    use underload_record::judgement::{AddedDelay, LoadedStep};
    use underload_record::schema::Distribution;

    use super::*;

    fn delay(covers: &[PathSegment], ms: i64, share_percent: f64) -> SegmentDelay {
        let ns = ms * 1_000_000;
        let added = Distribution { count: 500, p50_ns: ns, p90_ns: ns, p99_ns: ns, ..of_none() };
        SegmentDelay { covers: covers.to_vec(), added, share_percent }
    }

    fn of_none() -> Distribution {
        Distribution::default()
    }

    fn located(verdict: Option<PathSegment>) -> Finding {
        let hop = |hop, address: &str, distance| HopReadings {
            hop,
            address: address.to_owned(),
            distance,
            sent: 250,
            answered: 250,
            idle_ns: Some(1_000_000),
            unused_because: None,
        };
        let location = Location {
            hops: vec![
                hop(PathHop::Router, "192.168.1.1", Some(1)),
                hop(PathHop::Provider, "203.0.113.0/24", Some(2)),
                hop(PathHop::FarEnd, "a.example", None),
            ],
            segments: vec![
                delay(&[PathSegment::Local], 120, 92.0),
                delay(&[PathSegment::Access], 8, 7.0),
                delay(&[PathSegment::Beyond], 1, 1.0),
            ],
            total: Some(delay(&[], 129, 100.0).added),
            verdict,
            not_known_because: verdict.is_none().then(|| "the far end does not answer".to_owned()),
            local_share_percent: None,
        };
        Finding {
            step: "down".to_owned(),
            location: Some(Box::new(location)),
            ..Finding::default()
        }
    }

    #[test]
    fn the_place_of_the_delay_is_named_with_its_hop_and_share() {
        let judged = LoadedStep::default().judge();
        assert_eq!(
            lines(&located(Some(PathSegment::Local)), &judged),
            ["down: the delay is in the local network, up to the router 192.168.1.1: 120 ms at \
                 p90, 92 % of what the load adds."]
        );
        let mut wide = located(Some(PathSegment::Access));
        if let Some(location) = wide.location.as_mut() {
            location.local_share_percent = Some(10.4);
        }
        let told = &lines(&wide, &judged)[1];
        assert_eq!(told, "down: this load is 10 % of what the local network carried alone.");
        let mut silent = located(None);
        if let Some(location) = silent.location.as_mut() {
            location.hops[1].unused_because = Some("does not answer".to_owned());
        }
        assert_eq!(
            lines(&silent, &judged),
            [
                "down: where the delay is, is not known: the far end does not answer.",
                "down: not used to find the delay: the provider's first hop 203.0.113.0/24 (hop \
                 2) does not answer.",
            ]
        );
    }

    /// The step of a line with a fair queue, which delays the packets of the load and no others.
    #[test]
    fn a_delay_inside_the_load_alone_has_no_place_and_no_mystery() {
        let mut judged = LoadedStep::default().judge();
        let added = |ms: i64, grade| {
            let (quantile, added_ns) = (Quantile::P99, Some(ms * 1_000_000));
            Some(AddedDelay { quantile, added_ns, grade })
        };
        (judged.beside, judged.inside) = (added(2, Grade::APlus), added(210, Grade::D));
        assert_eq!(
            lines(&located(None), &judged),
            ["down: the load adds too little delay beside it to say where."]
        );
    }

    #[test]
    fn the_table_has_a_row_for_each_segment_and_one_for_all() {
        let location = located(None).location.unwrap();
        let rows = rows(&location);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[0].join("|"), "local network|router 192.168.1.1|120|120|120|92 %");
        assert_eq!(rows[3].join("|"), "whole path||129|129|129|100 %");
    }

    #[test]
    fn only_the_access_line_has_no_specific_cure() {
        assert!(cure(PathSegment::Local).is_some_and(|cure| cure.contains("Wi-Fi")));
        assert_eq!(cure(PathSegment::Access), None);
    }
}
