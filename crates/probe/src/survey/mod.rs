//! Round trips to many hosts, a few probes each: what servers around the world look like from here.
//!
//! - [`Survey`]: hosts, what they are asked, how often, and nothing faster than [`PAUSE_MIN`].
//! - [`Asking`]: one probe: a TCP handshake, an ICMP echo, a QUIC version negotiation.
//! - [`schedule()`]: when which address is asked, as a function of numbers alone.
//!
//! Other people's machines are asked here. So a host is asked twice a minute at most, whichever of
//! its addresses it is; an address that two names share is one host; and no list is longer than
//! [`HOSTS_MAX`].

mod ask;
mod quic;
mod schedule;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use ask::{Asking, Silence};
pub use quic::{is_negotiation, opening};
pub use schedule::{Turn, schedule};

/// From one probe of a host to its next, at least: two a minute.
pub const PAUSE_MIN: Duration = Duration::from_secs(30);
/// Hosts of a survey, at most.
pub const HOSTS_MAX: usize = 200;
/// Probes of a host and family, at most.
pub const PROBES_MAX: u32 = 1_000;
/// A probe that takes longer is lost.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A host to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As the user named it.
    pub name: String,
    /// One address of each family, IPv4 first; not empty.
    pub addresses: Vec<SocketAddr>,
}

/// What is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Whom; at most [`HOSTS_MAX`].
    pub hosts: Vec<Host>,
    /// How.
    pub asking: Asking,
    /// Probes of each host and family.
    pub probes: u32,
    /// From one probe of a host to its next.
    pub pause: Duration,
}

/// What one address answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Position of the host in the survey.
    pub host: usize,
    /// The address that was asked.
    pub address: SocketAddr,
    /// Probes that went out.
    pub sent: u32,
    /// Round trips, in the order of asking, ns.
    pub round_trips_ns: Vec<u64>,
    /// The error of the last probe that could not be sent, in the kernel's words.
    pub trouble: Option<String>,
}

/// Why a survey is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyError {
    /// Nobody to ask.
    #[error("there is no host to ask")]
    Empty,
    /// Too many at once.
    #[error("{hosts} hosts: at most {HOSTS_MAX} are asked")]
    Hosts {
        /// How many there are.
        hosts: usize,
    },
    /// Faster than anybody wants to be asked.
    #[error("a host is asked every 30s at most")]
    Pause,
    /// Too few or too many probes.
    #[error("1 to {PROBES_MAX} probes of each host")]
    Probes,
    /// One address under two names would be asked twice as often.
    #[error("{first} and {second} are one host: {address}")]
    Twice {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// Their address.
        address: IpAddr,
    },
}

impl Survey {
    /// Refuses what other people's machines should not be asked.
    ///
    /// # Errors
    /// [`SurveyError`].
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

    /// Whether all of it stays on this machine.
    pub fn is_local(&self) -> bool {
        self.hosts.iter().flat_map(|host| &host.addresses).all(|it| it.ip().is_loopback())
    }

    /// How long it takes at least.
    pub fn duration(&self) -> Duration {
        let families = self.hosts.iter().map(|host| host.addresses.len()).max().unwrap_or(0);
        self.pause * self.probes * families as u32
    }

    /// Asks everybody, until all is asked or `cancelled`. `watch` is told after each answer how
    /// many probes have come to an end.
    ///
    /// # Errors
    /// [`SurveyError`].
    pub fn run(
        &self,
        watch: &mut dyn FnMut(usize, usize),
        cancelled: &AtomicBool,
    ) -> Result<Vec<Answers>, SurveyError> {
        self.check()?;
        let turns = schedule(self);
        let mut answers = self.blank();
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
                // It ends within ANSWER_MAX, and a second has less than seven of them.
                std::thread::spawn(move || {
                    // Who does not listen any more was interrupted.
                    let _ = done.send((turn.target, asking.ask(address, ANSWER_MAX)));
                });
            }
            let wait = turns.get(next).map_or(LOOK, |turn| turn.at.saturating_sub(start.elapsed()));
            let Ok((target, outcome)) = outcomes.recv_timeout(wait.min(LOOK)) else { continue };
            ended += 1;
            match outcome {
                Ok(round_trip) => {
                    answers[target].round_trips_ns.push(round_trip.as_nanos() as u64);
                }
                Err(Silence::Lost) => {}
                Err(Silence::Trouble(words)) => {
                    // What could not be asked is not lost.
                    answers[target].sent = answers[target].sent.saturating_sub(1);
                    answers[target].trouble = Some(words);
                }
            }
            watch(ended, turns.len());
        }
        Ok(answers)
    }

    fn blank(&self) -> Vec<Answers> {
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

/// Between two looks at the interruption.
const LOOK: Duration = Duration::from_millis(200);

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
    fn what_others_should_not_be_asked_is_refused() {
        let good = survey(&["127.0.0.1:1", "127.0.0.2:1"]);
        assert_eq!(good.check(), Ok(()));
        assert!(good.is_local() && !survey(&["192.0.2.1:1"]).is_local());
        assert_eq!(survey(&[]).check(), Err(SurveyError::Empty));
        let fast = Survey { pause: Duration::from_secs(29), ..good.clone() };
        assert_eq!(fast.check(), Err(SurveyError::Pause));
        assert_eq!(Survey { probes: 0, ..good.clone() }.check(), Err(SurveyError::Probes));
        // Other ports of one address are the same machine.
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
    fn one_round_asks_everybody_once_and_tells_who_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let closed = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().to_string();
        let survey = survey(&[&open, &closed]);
        // The second host's turn is half a pause after the first's: too long for a test.
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
        // A refusal is an answer, too.
        assert!(Asking::Tcp.ask(answers[1].address, ANSWER_MAX).is_ok());
    }
}
