//! Checks any JSON as each message between devices, servers and orchestrators: it is rejected, or
//! equal after being written and parsed again, and every parsed request gets an answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::message::{
    Enrol, Enrolled, Heartbeat, HeartbeatAnswer, Move, Moved, Next, NextAnswer, OpenSession,
    Problem, Release, Released, Results, Session, Stored,
};

// The first byte selects the message; the rest is its JSON.
fuzz_target!(|bytes: &[u8]| {
    let Some((which, json)) = bytes.split_first() else { return };
    match which {
        b'a' => same::<Enrol>(json, |it| {
            it.attributes.is_acceptable();
        }),
        b'b' => same::<Enrolled>(json, |_| {}),
        b'c' => same::<OpenSession>(json, |it| drop(OpenSession::signed(it.device, it.at_ms))),
        b'd' => same::<Session>(json, |_| {}),
        b'e' => same::<Next>(json, |_| {}),
        b'f' => same::<NextAnswer>(json, |it| {
            // Fractional numbers may lose their last bit.
            it.alone.iter_mut().for_each(|alone| alone.runs_per_day = 1.0);
        }),
        b'g' => same::<Move>(json, |_| {}),
        b'h' => same::<Moved>(json, |_| {}),
        b'i' => same::<Release>(json, |_| {}),
        b'j' => same::<Released>(json, |_| {}),
        b'k' => same::<Results>(json, results),
        b'l' => same::<Stored>(json, |_| {}),
        b'm' => same::<Heartbeat>(json, |_| {}),
        b'n' => same::<HeartbeatAnswer>(json, |_| {}),
        _ => same::<Problem>(json, |_| {}),
    }
});

fn same<M: Serialize + DeserializeOwned + PartialEq>(json: &[u8], use_it: impl Fn(&mut M)) {
    let Ok(mut message) = serde_json::from_slice::<M>(json) else { return };
    use_it(&mut message);
    let text = serde_json::to_string(&message).expect("a message can be written");
    let again: M = serde_json::from_str(&text).expect("and read");
    assert!(again == message, "{text}");
}

fn results(it: &mut Results) {
    for numbered in &mut it.results {
        let is_good = numbered.result.fault().is_none();
        for step in &mut numbered.result.steps {
            step.tier_percent = None;
            for series in &step.series {
                let median = series.bins.quantile(0.5);
                assert!(median.is_none_or(f64::is_finite), "{median:?}");
                let counted = series.bins.count().checked_add(series.lost);
                assert!(!is_good || counted == Some(series.sent), "{series:?}");
            }
        }
    }
}
