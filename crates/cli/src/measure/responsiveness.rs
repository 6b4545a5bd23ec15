//! `underload measure https://HOST`: a responsiveness test against a server of Apple's kind.

use std::io::Write as _;

use anyhow::Context;
use serde_json::{Value, json};
use underload_compat::nq::{LoadDirection, NqClient, NqOptions, NqResult, NqTrust};

use underload_probe::service::Trust;

use super::{Arguments, session};
use crate::exit::OrBadInput;

/// True if HOST names a responsiveness server.
pub fn is_wanted(host: &str) -> bool {
    host.starts_with("https://")
}

/// Tests down, then up (or only one of them), and prints the result.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.check_foreign().or_bad_input()?;
    let client = NqClient::open(&arguments.host, trust(&arguments.trust)?)?;
    let directions = match (arguments.up, arguments.down) {
        (true, _) => vec![LoadDirection::Up],
        (_, true) => vec![LoadDirection::Down],
        _ => vec![LoadDirection::Down, LoadDirection::Up],
    };
    let mut results = Vec::new();
    for direction in directions {
        let mut options = NqOptions::new(direction);
        options.duration_max = arguments.duration.unwrap_or(options.duration_max);
        options.congestion_control = Some(arguments.congestion_control.clone());
        crate::console::note!("loading {} ...", name(direction));
        results.push((direction, client.measure(&options)?));
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let document: Vec<Value> = results
            .iter()
            .map(|(direction, result)| {
                let mut value = as_json(*direction, result);
                if *direction == LoadDirection::Up {
                    value["congestion_control"] = json!(arguments.congestion_control);
                }
                value
            })
            .collect();
        serde_json::to_writer_pretty(&mut out, &document).context("writing JSON")?;
        writeln!(out).context("writing JSON")?;
    } else {
        for (direction, result) in &results {
            write!(out, "{}", as_text(*direction, result)).context("writing the result")?;
            if *direction == LoadDirection::Up {
                writeln!(out, "up: sent with {}", arguments.congestion_control)
                    .context("writing the result")?;
            }
        }
    }
    out.flush().context("writing the result")
}

/// Public servers prove themselves to authorities: there is no first use to remember.
pub fn trust(text: &str) -> anyhow::Result<NqTrust> {
    Ok(match session::trust(text)? {
        Trust::Pinned(fingerprint) => NqTrust::Pinned(fingerprint),
        Trust::FirstUse { .. } => NqTrust::System,
    })
}

/// The direction's name.
pub fn name(direction: LoadDirection) -> &'static str {
    match direction {
        LoadDirection::Up => "up",
        LoadDirection::Down => "down",
    }
}

fn as_json(direction: LoadDirection, result: &NqResult) -> Value {
    let rpm = result.responsiveness;
    let probes = &result.round_trips;
    json!({
        "direction": name(direction),
        "rpm_draft_09": rpm.map(|rpm| rpm.draft_09),
        "rpm_goresponsiveness_p90": rpm.map(|rpm| rpm.goresponsiveness_p90),
        "rpm_goresponsiveness_trimmed_mean": rpm.map(|rpm| rpm.goresponsiveness_trimmed_mean),
        "confidence": result.confidence(),
        "goodput_bit_per_s": result.goodput_bit_per_s,
        "goodput_is_stable": result.goodput_is_stable,
        "responsiveness_is_stable": result.responsiveness_is_stable,
        "connections": result.connections,
        "intervals": result.intervals,
        "failed_probes": result.failed,
        "loaded_http_ns": probes.loaded_http_ns,
        "foreign_tcp_ns": probes.foreign_tcp_ns,
        "foreign_tls_ns": probes.foreign_tls_ns,
        "foreign_http_ns": probes.foreign_http_ns,
    })
}

fn as_text(direction: LoadDirection, result: &NqResult) -> String {
    let name = name(direction);
    let rpm = result.responsiveness.map_or_else(
        || "no RPM: one kind of probes is missing".to_owned(),
        |rpm| {
            format!(
                "{:.0} RPM (draft-09), {:.0} (goresponsiveness P90), {:.0} (goresponsiveness \
                 trimmed mean)",
                rpm.draft_09, rpm.goresponsiveness_p90, rpm.goresponsiveness_trimmed_mean,
            )
        },
    );
    format!(
        "{name}: {rpm}, confidence {}\n\
         {name}: {:.1} Mbit/s over {} connections in {} intervals; {} probes on loaded \
         connections, {} on fresh ones, {} failed\n",
        result.confidence(),
        result.goodput_bit_per_s / 1e6,
        result.connections,
        result.intervals,
        result.round_trips.loaded_http_ns.len(),
        result.round_trips.foreign_http_ns.len(),
        result.failed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_probe::rpm::Responsiveness;

    #[test]
    fn every_value_names_its_formula() {
        let responsiveness = Some(Responsiveness {
            draft_09: 2_000.4,
            goresponsiveness_p90: 1_500.0,
            goresponsiveness_trimmed_mean: 1_400.0,
        });
        let result = NqResult { responsiveness, intervals: 5, ..NqResult::default() };
        let text = as_text(LoadDirection::Up, &result);
        assert!(text.contains("up: 2000 RPM (draft-09), 1500 (goresponsiveness P90)"), "{text}");
        assert!(text.contains("confidence medium"), "{text}");
        assert!(is_wanted("https://a/.well-known/nq") && !is_wanted("a.example"));
    }
}
