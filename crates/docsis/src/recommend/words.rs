//! A recommendation in words and a table.

use std::fmt;

use crate::modem::{GRANT_US, MAP_INTERVAL_US};
use crate::qos::Direction;

use super::{CUBIC_FULL_FROM, Choice, Outcome, Recommendation, Rule, Service, reno_utilisation};

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, wanted) = (self.chosen(), self.wish.utilisation_percent);
        self.heading(f)?;
        writeln!(f, "\n  set {}", self.service.instruction(chosen.choice))?;
        match self.rule {
            Rule::LeastLatency => writeln!(
                f,
                "  least latency among candidates that use {wanted:.0} % of the link at every \
                 round trip and whose call is within 0.1 MOS of the best"
            )?,
            Rule::BestScore => writeln!(
                f,
                "  no candidate both uses {wanted:.0} % of the link and has a call within 0.1 MOS \
                 of the best: among those with such a call, this one uses most of the link"
            )?,
            Rule::WithinLatency => writeln!(
                f,
                "  most of the link among candidates that add at most the wanted latency (p99) and \
                 whose call is within 0.1 MOS of the best"
            )?,
        }
        if let Some(ms) = self.wish.latency_ms.filter(|_| self.rule != Rule::WithinLatency) {
            writeln!(f, "  no candidate with such a call adds at most {ms} ms")?;
        }
        self.prediction(f, chosen)?;
        if self.service.direction == Direction::Upstream {
            writeln!(
                f,
                "  below {} bytes a buffer cannot carry the rate: packets wait there {} ms for \
                 their grants",
                self.service.least_buffer_bytes(),
                (MAP_INTERVAL_US + GRANT_US) / 1_000,
            )?;
        }
        if let Choice::Buffer(bytes) = chosen.choice {
            self.theory(f, bytes)?;
        }
        self.guideline(f)?;
        self.table(f)
    }
}

impl Recommendation {
    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Service { direction, sustained_bit_per_s, peak_bit_per_s, burst_bytes } = self.service;
        write!(f, "{direction:?} of {}", rate_name(sustained_bit_per_s))?;
        if peak_bit_per_s > sustained_bit_per_s {
            write!(f, " (peak {} for {burst_bytes} bytes)", rate_name(peak_bit_per_s))?;
        }
        let rtts: Vec<String> = self.rtts_ms.iter().map(|rtt| format!("{rtt:.0}")).collect();
        writeln!(f, ", {}, base round trips of {} ms", self.aqm.title(), rtts.join(", "))
    }

    fn prediction(&self, f: &mut fmt::Formatter<'_>, outcome: &Outcome) -> fmt::Result {
        let used = outcome.utilisation_percent.iter().zip(&self.rtts_ms);
        let used: Vec<String> =
            used.map(|(used, rtt)| format!("{used:.0} % at {rtt:.0} ms")).collect();
        writeln!(
            f,
            "  predicted: latency under load +{:.0} ms (p50), +{:.0} ms (p99); link used {}; call \
             {:.2} MOS; page {}",
            outcome.added_p50_ms,
            outcome.added_p99_ms,
            used.join(", "),
            outcome.mos,
            page(outcome),
        )?;
        match outcome.low_latency_added_p99_ms {
            Some(own) => {
                writeln!(f, "  in the low latency queue: +{own:.1} ms (p99); the call uses it")
            }
            None => Ok(()),
        }
    }

    /// Compares the simulated utilisation with theory, as a check of both.
    fn theory(&self, f: &mut fmt::Formatter<'_>, bytes: u32) -> fmt::Result {
        let (fast, slow) = self.service.drain_seconds(u64::from(bytes));
        let (fast_ms, slow_ms) = (fast * 1e3, slow * 1e3);
        if fast < slow {
            let after = "ms while the burst lasts,";
            writeln!(f, "  a full buffer takes {fast_ms:.0} {after} {slow_ms:.0} ms after it")?;
            self.boost(f, bytes)?;
        } else {
            writeln!(f, "  a full buffer takes {slow_ms:.0} ms")?;
        }
        writeln!(f, "  closed form for one upload, as a check:")?;
        for (rtt, simulated) in self.rtts_ms.iter().zip(&self.chosen().utilisation_percent) {
            let product_bits = self.service.sustained_bit_per_s as f64 * rtt / 1e3;
            let products = f64::from(bytes) * 8.0 / product_bits;
            let reno = reno_utilisation(products) * 100.0;
            let cubic = if products >= CUBIC_FULL_FROM { "full" } else { "not full" };
            writeln!(
                f,
                "    {rtt:>4.0} ms: buffer of {products:.2} bandwidth-delay products: Reno \
                 {reno:.0} %, CUBIC {cubic}; simulated mean of both {simulated:.0} %"
            )?;
        }
        Ok(())
    }

    /// Says why the sustained rate and not the peak decides the size.
    fn boost(&self, f: &mut fmt::Formatter<'_>, bytes: u32) -> fmt::Result {
        let Service { sustained_bit_per_s, peak_bit_per_s, .. } = self.service;
        let longest_ms = self.rtts_ms.last().copied().unwrap_or_default();
        let product_bits = peak_bit_per_s as f64 * longest_ms / 1e3;
        let used = reno_utilisation(f64::from(bytes) * 8.0 / product_bits) * 100.0;
        let full_ms = CUBIC_FULL_FROM * product_bits / sustained_bit_per_s as f64 * 1e3;
        writeln!(
            f,
            "  while the burst lasts, one Reno upload over {longest_ms:.0} ms uses {used:.0} % of \
             the peak rate; a buffer that lets CUBIC fill the peak would take {full_ms:.0} ms \
             after the burst, so the sustained rate decides"
        )
    }

    /// Compares the guideline's size with the choice.
    fn guideline(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let find = |outcome: &&Outcome| Some(&outcome.name) == self.table_2.as_ref();
        let Some(guideline) = self.outcomes.iter().find(find) else { return Ok(()) };
        let (name, chosen) = (&guideline.name, self.chosen());
        let rate = self.table_2_rate_bit_per_s.unwrap_or_default();
        let row = rate_name(rate);
        write!(f, "\n  CM-GL-Buffer-V01, Table 2, ")?;
        if rate != self.service.sustained_bit_per_s {
            write!(f, "has no row for this rate; its nearest, {row}, ")?;
        }
        writeln!(f, "says {name} without AQM")?;
        self.prediction(f, guideline)?;
        writeln!(
            f,
            "  against the recommendation: {} ms latency (p99), {} points of lowest utilisation, \
             {} MOS",
            signed(guideline.added_p99_ms - chosen.added_p99_ms, 0),
            signed(guideline.lowest_utilisation() - chosen.lowest_utilisation(), 0),
            signed(guideline.mos - chosen.mos, 2),
        )
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n  {:<14} {:>8} {:>8} {:>10} {:>6} {:>11}   (* Pareto front, > recommended)",
            "candidate", "p50, ms", "p99, ms", "link used", "MOS", "page"
        )?;
        for (at, (outcome, on_front)) in self.outcomes.iter().zip(&self.pareto).enumerate() {
            let sign = if at == self.position { '>' } else { ' ' };
            let star = if *on_front { '*' } else { ' ' };
            writeln!(
                f,
                "{sign}{star}{:<14} {:>8.1} {:>8.1} {:>8.0} % {:>6.2} {:>11}",
                outcome.name,
                outcome.added_p50_ms,
                outcome.added_p99_ms,
                outcome.lowest_utilisation(),
                outcome.mos,
                page(outcome),
            )?;
        }
        writeln!(
            f,
            "  Latency: under load minus idle, largest over all round trips; link used: lowest; \
             MOS: mean; page: median."
        )
    }
}

impl Service {
    fn instruction(&self, choice: Choice) -> String {
        let (flow, aggregate) = (self.direction.flow_code(), self.direction.aggregate_code());
        match choice {
            Choice::Buffer(bytes) => format!(
                "TargetBuffer ({flow}.35.2) to {bytes} bytes ({:.0} KiB); no MinimumBuffer or \
                 MaximumBuffer",
                f64::from(bytes) / 1024.0
            ),
            Choice::DocsisPie(ms) => format!(
                "SfAqmLatencyTarget ({flow}.40.2) to {ms} ms with AQM on; no Buffer Control, so 100 \
                 ms of buffer"
            ),
            Choice::LowLatency(ms) => format!(
                "an aggregate ({aggregate}) of a classic flow, SfAqmLatencyTarget (40.2) {ms} ms and \
                 TargetBuffer (35.2) {} bytes, and a low latency flow; the buffer is three \
                 targets, at least 24 KiB, because inactive DOCSIS-PIE drops nothing until a \
                 third of it is full, but marks the low latency flow",
                self.classic_buffer_bytes(ms)
            ),
        }
    }
}

fn page(outcome: &Outcome) -> String {
    outcome.page_load_s.map_or("unfinished".to_owned(), |seconds| format!("{seconds:.1} s"))
}

/// Formats a rate such as `10 Mbit/s`, with all its digits.
pub fn rate_name(bit_per_s: u64) -> String {
    format!("{} Mbit/s", bit_per_s as f64 / 1e6)
}

/// Formats a value with its sign, or without if it rounds to zero.
fn signed(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    let is_zero = text.bytes().all(|byte| matches!(byte, b'+' | b'-' | b'.' | b'0'));
    if is_zero { text[1..].to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_zero_has_no_sign() {
        let values = [(-0.004, 2), (0.004, 2), (-0.0, 0), (-0.006, 2), (12.4, 0)];
        let texts = values.map(|(value, decimals)| signed(value, decimals));
        assert_eq!(texts, ["0.00", "0.00", "0", "-0.01", "+12"]);
    }
}
