//! Round trips to many hosts, a few probes each: how near servers around the world are.
//!
//! - [`Survey`]: hosts and the number of probes; never faster than [`PAUSE_MIN`].
//! - [`Asking`]: one probe: a TCP handshake, an ICMP echo, a QUIC version negotiation.
//! - [`Echoes`]: ICMP echoes to one host, whenever the caller sends one.
//! - [`schedule()`]: when each address is probed, a function of numbers alone.
//!
//! The hosts belong to other people. A host is therefore probed at most twice a minute, with all
//! its addresses together; an address under two names is rejected; and a list has at most
//! [`HOSTS_MAX`] hosts.

mod ask;
mod echoes;
mod quic;
mod schedule;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use ask::{Asking, Silence};
pub(crate) use ask::{ECHO_BYTES, EchoSocket, echo, fill};
pub use echoes::{Echo, Echoes};
pub use quic::{is_negotiation, opening};
pub use schedule::{Turn, schedule};

/// Shortest interval between probes of one host: two a minute.
pub const PAUSE_MIN: Duration = Duration::from_secs(30);
pub const HOSTS_MAX: usize = 200;
/// Maximum number of probes per host and address family.
pub const PROBES_MAX: u32 = 1_000;
/// A probe without an answer within this time is lost.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// One address of each family, IPv4 first; not empty.
    pub addresses: Vec<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The hosts, at most [`HOSTS_MAX`].
    pub hosts: Vec<Host>,
    pub asking: Asking,
    /// Probes per host and address family.
    pub probes: u32,
    /// Interval between probes of one host.
    pub pause: Duration,
}

/// The round trips of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    pub host: usize,
    pub address: SocketAddr,
    pub sent: u32,
    /// Round trips in the order of arrival, ns.
    pub round_trips_ns: Vec<u64>,
    /// The error of the last probe that could not be sent.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyError {
    #[error("there is no host to ask")]
    Empty,
    #[error("{hosts} hosts: at most {HOSTS_MAX} are asked")]
    Hosts { hosts: usize },
    #[error("a host is asked every 30s at most")]
    Pause,
    #[error("1 to {PROBES_MAX} probes of each host")]
    Probes,
    /// An address with two names would be probed twice as often.
    #[error("{first} and {second} are one host: {address}")]
    Twice { first: String, second: String, address: IpAddr },
}

impl Survey {
    /// Rejects a survey that would burden other people's machines.
    ///
    /// # Errors
    /// Returns the first limit that is violated.
    pub fn check(&self) -> Result<(), SurveyError> {
        if self.hosts.is_empty() {
            return Err(SurveyError::Empty);
        }
        if self.hosts.len() > HOSTS_MAX {
            return Err(SurveyError::Hosts { hosts: self.hosts.len() });
        }
        if self.pause < PAUSE_MIN {
            return Err(SurveyError::Pause);
        }
        if !(1..=PROBES_MAX).contains(&self.probes) {
            return Err(SurveyError::Probes);
        }
        let mut seen: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for host in &self.hosts {
            for address in &host.addresses {
                if let Some(first) = seen.insert(address.ip(), &host.name) {
                    return Err(SurveyError::Twice {
                        first: first.to_owned(),
                        second: host.name.clone(),
                        address: address.ip(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns true if all addresses are this machine's loopback.
    pub fn is_local(&self) -> bool {
        self.hosts.iter().flat_map(|host| &host.addresses).all(|it| it.ip().is_loopback())
    }

    pub fn duration(&self) -> Duration {
        let families = self.hosts.iter().map(|host| host.addresses.len()).max().unwrap_or(0);
        self.pause * self.probes * families as u32
    }

    /// Sends all probes, or stops when `cancelled` becomes true. Calls `watch` after each probe
    /// with the number of finished probes and of all probes.
    pub fn run(
        &self,
        watch: &mut dyn FnMut(usize, usize),
        cancelled: &AtomicBool,
    ) -> Result<Vec<Answers>, SurveyError> {
        self.check()?;
        let turns = schedule(self);
        let mut answers = self.empty_answers();
        let (done, outcomes) = mpsc::channel();
        let start = Instant::now();
        let (mut next, mut ended) = (0, 0);
        while ended < turns.len() {
            if cancelled.load(Ordering::Relaxed) {
                break;
            }
            let now = start.elapsed();
            while let Some(turn) = turns.get(next).filter(|turn| turn.at <= now) {
                let (done, turn, asking) = (done.clone(), *turn, self.asking);
                let address = answers[turn.target].address;
                answers[turn.target].sent += 1;
                next += 1;
                // The thread ends within ANSWER_MAX; at most seven start per second.
                std::thread::spawn(move || {
                    // The receiver is gone after a cancellation.
                    let _ = done.send((turn.target, asking.ask(address, ANSWER_MAX)));
                });
            }
            let until_next = |turn: &Turn| turn.at.saturating_sub(start.elapsed());
            let wait = turns.get(next).map_or(CHECK_INTERVAL, until_next);
            let received = outcomes.recv_timeout(wait.min(CHECK_INTERVAL));
            let Ok((target, outcome)) = received else { continue };
            ended += 1;
            match outcome {
                Ok(round_trip) => {
                    answers[target].round_trips_ns.push(round_trip.as_nanos() as u64);
                }
                Err(Silence::Lost) => {}
                Err(Silence::Trouble(words)) => {
                    // A probe that was not sent is not lost.
                    answers[target].sent = answers[target].sent.saturating_sub(1);
                    answers[target].trouble = Some(words);
                }
            }
            watch(ended, turns.len());
        }
        Ok(answers)
    }

    fn empty_answers(&self) -> Vec<Answers> {
        let of_host = |(host, it): (usize, &Host)| {
            let blank = |address: &SocketAddr| Answers {
                host,
                address: *address,
                sent: 0,
                round_trips_ns: Vec::new(),
                trouble: None,
            };
            it.addresses.iter().map(blank).collect::<Vec<_>>()
        };
        self.hosts.iter().enumerate().flat_map(of_host).collect()
    }
}

const CHECK_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn survey(addresses: &[&str]) -> Survey {
        let host = |text: &&str| Host {
            name: format!("host {text}"),
            addresses: vec![text.parse().unwrap()],
        };
        Survey {
            hosts: addresses.iter().map(host).collect(),
            asking: Asking::Tcp,
            probes: 1,
            pause: PAUSE_MIN,
        }
    }

    #[test]
    fn invalid_surveys_are_refused() {
        let good = survey(&["127.0.0.1:1", "127.0.0.2:1"]);
        assert_eq!(good.check(), Ok(()));
        assert!(good.is_local() && !survey(&["192.0.2.1:1"]).is_local());
        assert_eq!(survey(&[]).check(), Err(SurveyError::Empty));
        let fast = Survey { pause: Duration::from_secs(29), ..good.clone() };
        assert_eq!(fast.check(), Err(SurveyError::Pause));
        assert_eq!(Survey { probes: 0, ..good.clone() }.check(), Err(SurveyError::Probes));
        // Two ports of one address are one machine.
        let twice = survey(&["127.0.0.1:1", "127.0.0.1:2"]).check().unwrap_err();
        assert_eq!(
            twice.to_string(),
            "host 127.0.0.1:1 and host 127.0.0.1:2 are one host: 127.0.0.1"
        );
        let many: Vec<String> = (0..201).map(|it| format!("10.0.0.{}:{it}", it % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(survey(&many).check(), Err(SurveyError::Hosts { hosts: 201 }));
    }

    #[test]
    fn one_round_probes_every_host_once_and_reports_silent_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let closed = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().to_string();
        let survey = survey(&[&open, &closed]);
        // The second host is due half a pause later: too long for a test.
        let cancelled = AtomicBool::new(false);
        let mut ends = Vec::new();
        let answers = survey
            .run(
                &mut |ended, all| {
                    ends.push((ended, all));
                    cancelled.store(true, Ordering::Relaxed);
                },
                &cancelled,
            )
            .unwrap();
        assert_eq!(ends, [(1, 2)]);
        assert_eq!((answers[0].sent, answers[0].round_trips_ns.len()), (1, 1));
        assert_eq!((answers[1].sent, answers[1].round_trips_ns.len()), (0, 0));
        // A refusal counts as an answer.
        assert!(Asking::Tcp.ask(answers[1].address, ANSWER_MAX).is_ok());
    }
}
