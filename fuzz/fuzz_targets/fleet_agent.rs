//! Checks for any answers to a device that it always continues, and loads its line only with a
//! lease.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_fleet::agent::{Agent, Limits, Local, Memory, News, Ran, Settings, Task, Trouble};
use underload_fleet::outcome::Outcome;
use underload_fleet::plan::Kind;

const NOW_MS: u64 = 1_800_000_000_000;
/// Maximum number of answers in one input.
const LINES_MAX: usize = 100;

// Each line is an answer: its JSON, or a letter for a failure.
fuzz_target!(|text: &str| {
    let mut rng = Rng::new(1);
    let (orchestrators, start_within) = (2, Span::from_secs(60));
    let (version, attributes) = (String::new(), None);
    let (confirm_removal, limits) = (Span::from_secs(600), Limits::default());
    let settings =
        Settings { orchestrators, start_within, version, attributes, confirm_removal, limits };
    let mut now = Time::ZERO;
    let mut agent = Agent::begin(settings, Memory::default(), now, NOW_MS, &mut rng);
    let mut local = Local { epoch: 1, ..Local::default() };
    for line in text.lines().take(LINES_MAX) {
        let mut task = agent.next(now, &local, &mut rng);
        for _ in 0..8 {
            let Task::Wait { until } = task else { break };
            assert!(until > now, "it waits for what has passed");
            now = until;
            task = agent.next(now, &local, &mut rng);
        }
        let news = match task {
            Task::Wait { .. } => continue,
            Task::Stop => {
                assert_eq!(agent.next(now, &local, &mut rng), Task::Stop);
                return;
            }
            Task::Ask { .. } => answer(line, |it| News::Next(Box::new(it))),
            Task::Move { .. } => answer(line, News::Moved),
            Task::Release { .. } => {
                if line.is_empty() {
                    News::Released
                } else {
                    failed(line)
                }
            }
            Task::HandIn { .. } if line.is_empty() => {
                local.waiting = 0;
                News::Stored
            }
            Task::HandIn { most, .. } => {
                assert!(most > 0);
                failed(line)
            }
            Task::Run(run) => {
                let loads = run.steps.iter().any(|step| step.kind != Kind::Latency);
                assert!(!loads || run.lease.is_some(), "{run:?}");
                now += Span::from_secs(10);
                ran(line, now)
            }
            Task::Keep(_) if line == "f" => News::NotKept,
            Task::Keep(_) => {
                local.waiting += 1;
                News::Kept
            }
            Task::Discard => {
                local.waiting -= 1;
                local.dropped += 1;
                News::Discarded
            }
            Task::Renew => {
                local.epoch += 1;
                News::Renewed
            }
        };
        agent.hear(now, news, &mut rng);
        local.is_busy = line.ends_with('!');
    }
});

fn answer<A: DeserializeOwned>(line: &str, news: impl FnOnce(A) -> News) -> News {
    serde_json::from_str(line).map_or_else(|_| failed(line), news)
}

fn failed(line: &str) -> News {
    News::Trouble(match line.as_bytes().first() {
        Some(b'l') => Trouble::Later { after_ms: line[1..].parse().unwrap_or(u64::MAX) },
        Some(b'u') => Trouble::Unfit,
        Some(b'r') => Trouble::Refused,
        Some(b'o') => Trouble::Outdated,
        Some(b'g') => Trouble::Removed { at_ms: line[1..].parse().unwrap_or(NOW_MS) },
        _ => Trouble::NoAnswer,
    })
}

fn ran(line: &str, began: Time) -> News {
    let reason = line.to_owned();
    News::Ran(Box::new(if line.starts_with('t') {
        Ran::TurnedAway { reason }
    } else {
        Ran::Over { outcome: Outcome::Measured, reason, began, steps: Vec::new(), bytes: 1 << 20 }
    }))
}
