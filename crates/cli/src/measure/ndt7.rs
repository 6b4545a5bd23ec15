//! `underload measure ndt7`: a test against M-Lab's public servers, and against others that speak
//! ndt7.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use underload_compat::ndt7::{
    DURATION, End, LOCATE_URL, Located, Ndt7Error, Ndt7Result, Ndt7Target, Ndt7Test, locate,
};
use underload_compat::nq::{LoadDirection, NqTrust};
use underload_disk::{self as disk, Access};
use underload_report::plain_text;

use super::Arguments;
use super::responsiveness::{name, trust};
use crate::exit::{OrBadInput, bad_input};
use crate::home;
use crate::interrupt::Interrupt;

/// True if HOST names an ndt7 server, or the nearest one.
pub fn is_wanted(host: &str) -> bool {
    host == "ndt7" || host.starts_with("ndt7://")
}

/// Servers of these domains are M-Lab's.
const PUBLIC: [&str; 2] = ["measurement-lab.org", "measurementlab.net"];

const TERMS: &str = "\
M-Lab (Measurement Lab) runs these servers as a public experiment:
  - your IP address and the result are kept and published, for anybody and for ever;
  - a test moves as much as your line carries in 20 s: on 100 Mbit/s some 250 MB;
  - 40 tests a day are allowed; who asks more often is turned away.
Its terms:   https://www.measurementlab.net/aup/
Its privacy: https://www.measurementlab.net/privacy/";

/// Tests down, then up (or only one of them), and prints the result.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.check_foreign().or_bad_input()?;
    if let Some(duration) = arguments.duration.filter(|it| *it > DURATION || it.as_secs() == 0) {
        return Err(bad_input(anyhow!("--duration: {duration:?}: ndt7 takes from 1s to 10s")));
    }
    let trust = trust(&arguments.trust)?;
    let candidates = candidates(arguments)?;
    let interrupt = Interrupt::watch()?;
    let directions = match (arguments.up, arguments.down) {
        (true, _) => vec![LoadDirection::Up],
        (_, true) => vec![LoadDirection::Down],
        _ => vec![LoadDirection::Down, LoadDirection::Up],
    };
    let (mut at, mut results) = (0, Vec::new());
    for direction in directions {
        let outcome = first(&candidates, &mut at, |located| {
            let target = located.target.clone();
            let duration_max = arguments.duration.unwrap_or(DURATION);
            let congestion_control = Some(arguments.congestion_control.clone());
            let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
            eprintln!(
                "{}: loading {} for {:.0} s at most",
                test.target.name,
                name(direction),
                duration_max.as_secs_f64()
            );
            test.run(&mut |_, _| {}, interrupt.flag())
        });
        let result = interrupt.explain(outcome.map_err(|error| hinted(error, trust)))?;
        if result.end == End::Cancelled {
            return interrupt
                .explain(Err(anyhow!("interrupted while loading {}", name(direction))));
        }
        results.push((direction, result));
    }
    print(arguments, &candidates[at], &results)
}

/// Servers to try, in this order; not empty.
fn candidates(arguments: &Arguments) -> anyhow::Result<Vec<Located>> {
    let named = arguments.host != "ndt7";
    if named && arguments.locate.is_some() {
        return Err(bad_input(anyhow!(
            "--locate: only with `ndt7` alone, which asks for a server"
        )));
    }
    let url = arguments.locate.as_deref().unwrap_or(LOCATE_URL);
    let target =
        if named { Some(Ndt7Target::of_host(&arguments.host).or_bad_input()?) } else { None };
    let is_public = |host: &str| {
        PUBLIC
            .iter()
            .any(|it| host == *it || host.strip_suffix(it).is_some_and(|it| it.ends_with('.')))
    };
    if target.as_ref().map_or(url == LOCATE_URL, |target| is_public(target.host())) {
        agree(arguments.accept_terms)?;
    }
    match target {
        Some(target) => Ok(vec![Located { target, place: String::new() }]),
        None => match locate(url) {
            Err(error @ Ndt7Error::Target { .. }) => Err(bad_input(anyhow!("--locate: {error}"))),
            found => Ok(found?),
        },
    }
}

/// Runs with the first server that takes the test; the rest of a run stays with it.
fn first<T>(
    candidates: &[Located],
    at: &mut usize,
    mut run: impl FnMut(&Located) -> Result<T, Ndt7Error>,
) -> anyhow::Result<T> {
    loop {
        match run(&candidates[*at]) {
            Ok(done) => return Ok(done),
            // Only who could not be reached is passed over: a server that misbehaves is told.
            Err(error @ (Ndt7Error::Connect { .. } | Ndt7Error::WebSocket { .. }))
                if *at + 1 < candidates.len() =>
            {
                eprintln!(
                    "{}; trying the next server",
                    plain_text(&format!("{:#}", anyhow!(error)))
                );
                *at += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A certificate that nobody vouches for is what a server of one's own has.
fn hinted(error: anyhow::Error, trust: NqTrust) -> anyhow::Error {
    let handshake = matches!(
        error.downcast_ref(),
        Some(Ndt7Error::Connect { step: "the TLS handshake with", .. })
    );
    if handshake && trust == NqTrust::System {
        return error.context("a server with a certificate of its own needs --trust");
    }
    error
}

/// Shows the terms until they are accepted, which is asked for once.
fn agree(accepts: bool) -> anyhow::Result<()> {
    let file = agreement()?;
    if file.is_file() {
        return Ok(());
    }
    if !accepts {
        eprintln!("{TERMS}");
        return Err(bad_input(anyhow!(
            "the terms are not accepted yet: say so with --accept-terms"
        )));
    }
    let folder = disk::directory_of(&file);
    disk::create_directory(folder, Access::Usual).with_context(|| folder.display().to_string())?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let text = format!("{TERMS}\n\naccepted {now}\n");
    disk::write_whole(&file, text.as_bytes(), Access::Usual)
        .with_context(|| file.display().to_string())?;
    eprintln!("{TERMS}\naccepted; kept in {}", file.display());
    Ok(())
}

fn agreement() -> anyhow::Result<PathBuf> {
    Ok(home::data()?.join("mlab-terms-accepted"))
}

fn print(
    arguments: &Arguments,
    located: &Located,
    results: &[(LoadDirection, Ndt7Result)],
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let document = json!({
            "version": 1,
            "server": located.target.name,
            "place": located.place,
            "cannot_tell": CANNOT_TELL,
            "results": results.iter().map(as_json).collect::<Vec<Value>>(),
        });
        serde_json::to_writer_pretty(&mut out, &document).context("writing JSON")?;
        writeln!(out).context("writing JSON")?;
    } else {
        write!(out, "{}", as_text(located, results)).context("writing the result")?;
    }
    out.flush().context("writing the result")?;
    if results.iter().all(|(_, result)| result.end == End::Broken) {
        bail!("the connection broke before the time was over");
    }
    Ok(())
}

/// What no server of this kind can tell.
const CANNOT_TELL: &str = "round trips are those of the loading connection, smoothed by TCP: no \
99th percentile, nothing of one way alone, of markings, or of how others' packets fare beside it";

/// Median and largest of the readings, ms.
fn loaded_ms(result: &Ndt7Result) -> Option<(f64, f64)> {
    let mut sorted = result.loaded_rtt_us.clone();
    sorted.sort_by(f64::total_cmp);
    let largest = sorted.last()?;
    Some((sorted[(sorted.len() - 1) / 2] / 1e3, largest / 1e3))
}

/// The smallest round trip of the connection, the TCP handshake among them, ms.
fn smallest_ms(result: &Ndt7Result) -> f64 {
    let handshake = result.handshake.as_secs_f64() * 1e3;
    result.rtt_min_us.map_or(handshake, |us| handshake.min(us / 1e3))
}

fn as_json((direction, result): &(LoadDirection, Ndt7Result)) -> Value {
    let loaded = loaded_ms(result);
    json!({
        "direction": name(*direction),
        "congestion_control": result.congestion_control,
        "elapsed_s": result.elapsed.as_secs_f64(),
        "goodput_bit_per_s": result.goodput_bit_per_s,
        "settled_bit_per_s": result.settled_bit_per_s,
        "round_trip_smallest_ms": smallest_ms(result),
        "round_trip_loaded_p50_ms": loaded.map(|it| it.0),
        "round_trip_loaded_max_ms": loaded.map(|it| it.1),
        "round_trip_readings": result.loaded_rtt_us.len(),
        "tcp_handshake_ms": result.handshake.as_secs_f64() * 1e3,
        "sent_again_percent": result.sent_again_percent,
        "server_goodput_bit_per_s": result.server.map(|it| it.goodput_bit_per_s),
        "server_elapsed_s": result.server.map(|it| it.elapsed_s),
        "messages_read": result.messages.0,
        "messages_passed_over": result.messages.1,
        "ended_by": match result.end {
            End::Time => "time",
            End::Server => "server",
            End::Broken => "connection",
            End::Cancelled => "user",
        },
    })
}

fn as_text(located: &Located, results: &[(LoadDirection, Ndt7Result)]) -> String {
    let mut text = String::new();
    let place =
        if located.place.is_empty() { String::new() } else { format!(" in {}", located.place) };
    // A String takes everything.
    let _ = writeln!(text, "ndt7 to {}{}", located.target.name, plain_text(&place));
    for (direction, result) in results {
        let name = name(*direction);
        let settled = result
            .settled_bit_per_s
            .map_or(String::new(), |rate| format!(", {:.1} after the first 2 s", rate / 1e6));
        let _ = writeln!(
            text,
            "{name}: {:.1} Mbit/s over {:.1} s{settled}",
            result.goodput_bit_per_s / 1e6,
            result.elapsed.as_secs_f64()
        );
        let smallest = smallest_ms(result);
        let _ = match loaded_ms(result) {
            Some((median, largest)) => writeln!(
                text,
                "{name}: round trip {median:.0} ms under load (median of {} smoothed readings, \
                 largest {largest:.0} ms), {smallest:.0} ms without: the load adds {:.0} ms",
                result.loaded_rtt_us.len(),
                (median - smallest).max(0.0)
            ),
            None => writeln!(
                text,
                "{name}: round trip {smallest:.0} ms without load; under load the server does not \
                 tell it"
            ),
        };
        if let Some(congestion_control) = &result.congestion_control {
            let _ = writeln!(text, "{name}: sent with {congestion_control}");
        }
        if let Some(percent) = result.sent_again_percent {
            let _ = writeln!(text, "{name}: {percent:.1} % of the bytes were sent again");
        }
        if result.end == End::Broken {
            let _ = writeln!(text, "{name}: the connection broke before the time was over");
        }
    }
    let _ = writeln!(text, "{CANNOT_TELL}");
    if results.iter().any(|(direction, _)| *direction == LoadDirection::Down) {
        let _ = writeln!(
            text,
            "down, the server chooses how it sends: M-Lab's use BBR, which fills a buffer less \
             than the downloads of most people do"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn result(loaded_rtt_us: Vec<f64>) -> Ndt7Result {
        Ndt7Result {
            address: "127.0.0.1:1".parse().unwrap(),
            handshake: Duration::from_millis(21),
            elapsed: Duration::from_secs(10),
            goodput_bit_per_s: 9.4e6,
            settled_bit_per_s: Some(9.6e6),
            rtt_min_us: Some(20_400.0),
            congestion_control: Some("cubic".to_owned()),
            loaded_rtt_us,
            sent_again_percent: Some(1.25),
            server: None,
            messages: (40, 0),
            end: End::Time,
        }
    }

    #[test]
    fn a_result_says_what_the_load_adds_and_what_cannot_be_told() {
        let target = Ndt7Target::of_host("ndt7://a.example").unwrap();
        let located = Located { target, place: "Hamburg, DE".to_owned() };
        let text = as_text(
            &located,
            &[
                (LoadDirection::Down, result(vec![90_000.0, 230_000.0, 110_000.0])),
                (LoadDirection::Up, result(Vec::new())),
            ],
        );
        assert!(text.contains("ndt7 to a.example:443 in Hamburg, DE"), "{text}");
        assert!(text.contains("down: 9.4 Mbit/s over 10.0 s, 9.6 after the first 2 s"), "{text}");
        assert!(text.contains("110 ms under load (median of 3 smoothed readings, largest 230 ms)"));
        assert!(text.contains("20 ms without: the load adds 90 ms"), "{text}");
        assert!(
            text.contains("up: round trip 20 ms without load; under load the server"),
            "{text}"
        );
        assert!(text.contains("sent with cubic"), "{text}");
        assert!(text.contains("no 99th percentile") && text.contains("BBR"), "{text}");
    }

    #[test]
    fn the_nearest_and_named_servers_are_wanted() {
        assert!(is_wanted("ndt7") && is_wanted("ndt7://a") && !is_wanted("ndt7.example"));
    }
}
