//! When each address is probed.

use std::time::Duration;

use super::Survey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Since the start of the survey.
    pub at: Duration,
    /// Index of the address in the list of all hosts' addresses, host by host.
    pub target: usize,
}

/// Returns all turns in order. The hosts are spread evenly over the pause, so that no network sees
/// a burst; the addresses of one host take turns, so that the pause holds per host.
pub fn schedule(survey: &Survey) -> Vec<Turn> {
    let hosts = survey.hosts.len().max(1) as u32;
    let mut turns = Vec::new();
    let mut first = 0;
    for (position, host) in survey.hosts.iter().enumerate() {
        let offset = survey.pause * position as u32 / hosts;
        let families = host.addresses.len() as u32;
        for round in 0..survey.probes * families {
            let target = first + (round % families) as usize;
            turns.push(Turn { at: offset + survey.pause * round, target });
        }
        first += host.addresses.len();
    }
    turns.sort_by_key(|turn| (turn.at, turn.target));
    turns
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::super::{Asking, Host, PAUSE_MIN};
    use super::*;

    proptest! {
        /// In every survey, no host is probed twice within its pause, and each address is probed
        /// `probes` times.
        #[test]
        fn no_host_is_probed_above_its_rate_limit(
            families in prop::collection::vec(1_usize..3, 1..40),
            probes in 1_u32..20,
            more_s in 0_u64..100,
        ) {
            let address = |host: usize, family: usize| -> SocketAddr {
                ([10, family as u8, 0, host as u8], 443).into()
            };
            let hosts: Vec<Host> = families
                .iter()
                .enumerate()
                .map(|(host, count)| Host {
                    name: host.to_string(),
                    addresses: (0..*count).map(|family| address(host, family)).collect(),
                })
                .collect();
            let pause = PAUSE_MIN + Duration::from_secs(more_s);
            let survey = Survey { hosts, asking: Asking::Tcp, probes, pause };
            let turns = schedule(&survey);
            let owner: Vec<usize> = families
                .iter()
                .enumerate()
                .flat_map(|(host, count)| std::iter::repeat_n(host, *count))
                .collect();
            let mut last: Vec<Option<Duration>> = vec![None; families.len()];
            let mut asked = vec![0_u32; owner.len()];
            for turn in &turns {
                let host = owner[turn.target];
                if let Some(before) = last[host] {
                    prop_assert!(turn.at >= before + pause);
                }
                last[host] = Some(turn.at);
                asked[turn.target] += 1;
            }
            prop_assert!(asked.iter().all(|count| *count == probes));
            prop_assert!(turns.last().unwrap().at <= survey.duration());
        }
    }
}
