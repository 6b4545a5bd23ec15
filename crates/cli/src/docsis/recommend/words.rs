//! The answer in words and a table.

use std::fmt::Write as _;

use underload_docsis::recommend::{CUBIC_FULL_FROM, Choice, Upstream, reno_utilisation};

use super::choose::{Outcome, Rule};
use super::sweep::rate_name;
use super::{Aqm, Recommendation};

pub fn text(recommendation: &Recommendation, upstream: &Upstream, position: usize) -> String {
    let chosen = &recommendation.outcomes[position];
    let mut text = String::new();
    heading(&mut text, recommendation, upstream);
    let _ = writeln!(text, "\n  set {}", setting(chosen.choice, upstream));
    reason(&mut text, recommendation);
    prediction(&mut text, "predicted", chosen, recommendation);
    drain(&mut text, chosen.choice, upstream);
    if let Choice::Buffer(bytes) = chosen.choice {
        closed_form(&mut text, bytes, chosen, recommendation);
    }
    table_2(&mut text, recommendation, chosen);
    all(&mut text, recommendation, position);
    text
}

fn heading(text: &mut String, recommendation: &Recommendation, upstream: &Upstream) {
    let peak = if upstream.peak_bit_per_s > upstream.sustained_bit_per_s {
        format!(" (peak {} for {} bytes)", rate_name(upstream.peak_bit_per_s), upstream.burst_bytes)
    } else {
        String::new()
    };
    let aqm = match recommendation.aqm {
        Aqm::None => "no AQM",
        Aqm::DocsisPie => "DOCSIS-PIE",
        Aqm::LowLatency => "Low Latency DOCSIS",
    };
    let rtts = &recommendation.rtts_ms;
    let rtts: Vec<String> = rtts.iter().map(|rtt| format!("{rtt:.0}")).collect();
    let _ = writeln!(
        text,
        "Upstream of {}{peak}, {aqm}, base round trips of {} ms",
        rate_name(upstream.sustained_bit_per_s),
        rtts.join(", ")
    );
}

fn setting(choice: Choice, upstream: &Upstream) -> String {
    match choice {
        Choice::Buffer(bytes) => format!(
            "TargetBuffer (24.35.2) to {bytes} bytes ({:.0} KiB); no MinimumBuffer or \
             MaximumBuffer",
            f64::from(bytes) / 1024.0
        ),
        Choice::DocsisPie(ms) => format!(
            "SfAqmLatencyTarget (24.40.2) to {ms} ms with AQM on; no Buffer Control, so 100 ms \
             of buffer"
        ),
        Choice::LowLatency(ms) => format!(
            "an aggregate (70) of a classic flow, SfAqmLatencyTarget (40.2) {ms} ms and \
             TargetBuffer (35.2) {} bytes, and a low latency flow; the buffer is three targets, \
             at least 24 KiB, because inactive DOCSIS-PIE drops nothing until a third of it is \
             full, but marks the low latency flow",
            upstream.classic_buffer_bytes(ms)
        ),
    }
}

fn reason(text: &mut String, recommendation: &Recommendation) {
    let wanted = recommendation.utilisation_percent;
    let _ = match recommendation.rule {
        Rule::LeastLatency => writeln!(
            text,
            "  least latency among candidates that use {wanted:.0} % of the link at every round \
             trip and whose call is within 0.1 MOS of the best"
        ),
        Rule::BestScore => writeln!(
            text,
            "  no candidate both uses {wanted:.0} % of the link and has a call within 0.1 MOS of \
             the best: among those with such a call, this one uses most of the link"
        ),
    };
}

fn prediction(text: &mut String, what: &str, outcome: &Outcome, recommendation: &Recommendation) {
    let used: Vec<String> = outcome
        .utilisation_percent
        .iter()
        .zip(&recommendation.rtts_ms)
        .map(|(used, rtt)| format!("{used:.0} % at {rtt:.0} ms"))
        .collect();
    let _ = writeln!(
        text,
        "  {what}: latency under load +{:.0} ms (p50), +{:.0} ms (p99); link used {}; call {:.2} \
         MOS; page {}",
        outcome.added_p50_ms,
        outcome.added_p99_ms,
        used.join(", "),
        outcome.mos,
        page(outcome),
    );
    if let Some(own) = outcome.low_latency_added_p99_ms {
        let _ = writeln!(text, "  in the low latency queue: +{own:.1} ms (p99); the call uses it");
    }
}

fn page(outcome: &Outcome) -> String {
    outcome.page_load_s.map_or("unfinished".to_owned(), |seconds| format!("{seconds:.1} s"))
}

fn drain(text: &mut String, choice: Choice, upstream: &Upstream) {
    let Choice::Buffer(bytes) = choice else { return };
    let (fast, slow) = upstream.drain_seconds(u64::from(bytes));
    let _ = if fast < slow {
        writeln!(
            text,
            "  a full buffer takes {:.0} ms while the burst lasts, {:.0} ms after it",
            fast * 1e3,
            slow * 1e3
        )
    } else {
        writeln!(text, "  a full buffer takes {:.0} ms", slow * 1e3)
    };
}

/// Compares the simulated utilisation with theory, as a check of both.
fn closed_form(text: &mut String, bytes: u32, chosen: &Outcome, recommendation: &Recommendation) {
    let _ = writeln!(text, "  closed form for one upload, as a check:");
    for (rtt, simulated) in recommendation.rtts_ms.iter().zip(&chosen.utilisation_percent) {
        let products = f64::from(bytes) * 8.0 / (recommendation.rate_bit_per_s as f64 * rtt / 1e3);
        let reno = reno_utilisation(products) * 100.0;
        let cubic = if products >= CUBIC_FULL_FROM { "full" } else { "not full" };
        let _ = writeln!(
            text,
            "    {rtt:>4.0} ms: buffer of {products:.2} bandwidth-delay products: Reno {reno:.0} \
             %, CUBIC {cubic}; simulated mean of both {simulated:.0} %"
        );
    }
}

/// Compares the guideline's size with the choice.
fn table_2(text: &mut String, recommendation: &Recommendation, chosen: &Outcome) {
    let find = |outcome: &&Outcome| outcome.name == recommendation.table_2;
    let Some(guideline) = recommendation.outcomes.iter().find(find) else { return };
    let row = rate_name(recommendation.table_2_rate_bit_per_s);
    let name = &guideline.name;
    let _ = if recommendation.table_2_rate_bit_per_s == recommendation.rate_bit_per_s {
        writeln!(text, "\n  CM-GL-Buffer-V01, Table 2, says {name} without AQM")
    } else {
        writeln!(
            text,
            "\n  CM-GL-Buffer-V01, Table 2, has no row for this rate; its nearest, {row}, says \
             {name} without AQM"
        )
    };
    prediction(text, "predicted", guideline, recommendation);
    let _ = writeln!(
        text,
        "  against the recommendation: {} ms latency (p99), {} points of lowest \
         utilisation, {} MOS",
        signed(guideline.added_p99_ms - chosen.added_p99_ms, 0),
        signed(guideline.lowest_utilisation() - chosen.lowest_utilisation(), 0),
        signed(guideline.mos - chosen.mos, 2),
    );
}

/// Formats a value with its sign, or without if it rounds to zero.
fn signed(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    let is_zero = text.bytes().all(|byte| matches!(byte, b'+' | b'-' | b'.' | b'0'));
    if is_zero { text[1..].to_owned() } else { text }
}

fn all(text: &mut String, recommendation: &Recommendation, position: usize) {
    let _ = writeln!(
        text,
        "\n  {:<14} {:>8} {:>8} {:>10} {:>6} {:>11}   (* Pareto front, > recommended)",
        "candidate", "p50, ms", "p99, ms", "link used", "MOS", "page"
    );
    for (at, (outcome, on)) in
        recommendation.outcomes.iter().zip(&recommendation.pareto).enumerate()
    {
        let sign = if at == position { '>' } else { ' ' };
        let star = if *on { '*' } else { ' ' };
        let _ = writeln!(
            text,
            "{sign}{star}{:<14} {:>8.1} {:>8.1} {:>8.0} % {:>6.2} {:>11}",
            outcome.name,
            outcome.added_p50_ms,
            outcome.added_p99_ms,
            outcome.lowest_utilisation(),
            outcome.mos,
            page(outcome),
        );
    }
    text.push_str(
        "  Latency: under load minus idle, largest over all round trips; link used: lowest; MOS: \
         mean; page: median.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        let values = [(-0.004, 2), (0.004, 2), (-0.0, 0), (-0.006, 2), (12.4, 0)];
        let texts = values.map(|(value, decimals)| signed(value, decimals));
        assert_eq!(texts, ["0.00", "0.00", "0", "-0.01", "+12"]);
    }
}
