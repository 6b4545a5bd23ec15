//! Converts a scenario's path to Linux's queues and links.

use std::collections::BTreeSet;

use underload_aqm::link::RateProcess;
use underload_aqm::registry::QueueConfig;
use underload_emu::qdisc::{Hop, Shaping};
use underload_record::link::LinkName;
use underload_record::schema::Direction;
use underload_scenario::{Lane, Path, Scenario};
use underload_tc::words;

use crate::error::RunError;

/// Checks that Linux has all queues and links of a scenario. Returns the kinds of its queues.
pub(in crate::world) fn check(scenario: &Scenario) -> Result<BTreeSet<String>, RunError> {
    let mut kinds = BTreeSet::new();
    for variant in &scenario.variants {
        let hops = hops(&variant.path).map_err(|problem| {
            let (name, variant) = (&scenario.name, &variant.name);
            RunError::Refused(format!(
                "{name}: variant {variant}: {problem}; expected --world kernel-tcp, which has all \
                 queues and links, or --variant with other variants"
            ))
        })?;
        let shaped = hops.into_iter().filter_map(|hop| hop.shaping);
        kinds.extend(shaped.filter_map(|shaping| shaping.queue.into_iter().next()));
    }
    Ok(kinds)
}

/// Returns what the routers are to do with packets up and down.
pub(super) fn hops(path: &Path) -> Result<[Hop; 2], String> {
    Ok([hop(&path.up[0], "up")?, hop(&path.down[0], "down")?])
}

pub(super) fn names(path: &Path) -> [LinkName; 2] {
    let name = |lane: &Lane, direction| LinkName {
        direction,
        queue: lane.queue.label().to_string(),
        link: lane.link.label.to_string(),
        ..LinkName::default()
    };
    [name(&path.up[0], Direction::Up), name(&path.down[0], Direction::Down)]
}

fn hop(lane: &Lane, direction: &str) -> Result<Hop, String> {
    let link = &lane.link;
    let place = |problem: &str| format!("path.{direction}: {problem}");
    let rate = match &link.rate {
        RateProcess::Unlimited => None,
        RateProcess::Constant(_) => link.facts().rate,
        _ => {
            return Err(place(&format!("`{}`: Linux has only links of constant rate", link.label)));
        }
    };
    if !link.flight.is_empty() || !link.middlebox.is_empty() {
        let known = "Linux's links here have delay, loss and overhead only";
        return Err(place(&format!("`{}`: {known}", link.label)));
    }
    // A direction whose link the scenario does not name is only a delay, and is not recorded.
    let shaping = match rate.filter(|_| !lane.is_wide) {
        None => None,
        Some(rate) => {
            let queue = lane.queue.known().ok_or_else(|| place("a queue of the caller's own"))?;
            let overhead_bytes = link.overhead_bytes;
            let arguments = words::arguments(&queue.label, &link.facts(), Some(overhead_bytes))
                .map_err(|error| format!("path.{direction}_queue: {error}"))?;
            let own_rate = match &queue.config {
                QueueConfig::Cake(config) => config.rate,
                _ => None,
            };
            let is_shaper = own_rate.is_some_and(|own| own < rate);
            Some(Shaping { rate, overhead_bytes, queue: arguments, is_shaper })
        }
    };
    Ok(Hop { shaping, delay: link.delay, loss_q32: link.loss_q32 })
}

#[cfg(test)]
mod tests {
    use underload_aqm::rate::Rate;
    use underload_aqm::time::Span;

    use super::*;

    fn scenario(path: &str) -> Scenario {
        let text = format!(
            "[path]\n{path}\n[phases]\nidle = \"0s\"\nload = \"1s\"\n\
             [[flow]]\nkind = \"probe\"\ninterval = \"10ms\"\n"
        );
        Scenario::parse(&text, "test").expect("a valid scenario")
    }

    #[test]
    fn a_path_becomes_a_shaped_and_a_wide_hop() {
        let path = "up = \"20mbit\"\nup_queue = \"codel\"\noverhead = \"14B\"\nrtt = \"40ms\"";
        let scenario = scenario(path);
        let [up, down] = hops(&scenario.variants[0].path).expect("Linux has them");
        let shaping = up.shaping.expect("a rate");
        assert_eq!(shaping.rate, Rate::from_megabits_per_second(20));
        assert_eq!((shaping.overhead_bytes, shaping.is_shaper), (14, false));
        assert_eq!(shaping.queue[0], "codel");
        assert_eq!((up.delay, down.delay), (Span::from_millis(20), Span::from_millis(20)));
        assert_eq!(down.shaping, None);
        let kinds: Vec<_> = check(&scenario).expect("possible").into_iter().collect();
        assert_eq!(kinds, ["codel"]);
    }

    #[test]
    fn cake_shapes_where_it_is_slower_than_the_link() {
        for (rate, expected) in [("20mbit", true), ("1gbit", false), ("2gbit", false)] {
            let scenario = scenario(&format!("up = \"1gbit\"\nup_queue = \"cake:rate={rate}\""));
            let [up, _] = hops(&scenario.variants[0].path).expect("Linux has it");
            assert_eq!(up.shaping.expect("a rate").is_shaper, expected, "{rate}");
        }
    }

    #[test]
    fn queues_that_linux_lacks_are_refused_with_advice() {
        for (path, expected) in [
            (
                "up = \"10mbit\"\nup_queue = \"bode\"",
                "path.up_queue: there is no Linux queue `bode`",
            ),
            (
                "up = \"steps:0s=6mbit,1s=1mbit\"\nup_queue = \"codel\"",
                "only links of constant rate",
            ),
            ("up = \"10mbit:jitter=5ms\"\nup_queue = \"codel\"", "delay, loss and overhead only"),
            ("up = \"10mbit\"\nup_queue = \"codel:profile=rfc\"", "expected linux, the only one"),
        ] {
            let error = check(&scenario(path)).expect_err(path).to_string();
            assert!(error.starts_with("test: variant default: path.up"), "{error}");
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("expected --world kernel-tcp"), "{error}");
        }
    }
}
