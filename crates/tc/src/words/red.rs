//! The weight of RED's average, which the option `burst` of `tc` states as a number of packets.

use underload_aqm::config::{ConfigError, LinkFacts, Value};

use super::Writer;

/// The rate that `tc` assumes where none is known.
const BANDWIDTH: &str = "10mbit";
/// The smallest weight, as a negative power of two.
const LOG_MAX: u32 = 16;
const HALF_MILLIONTH_Q32: u64 = (1 << 32) / 2_000_000 + 1;

/// Appends the burst that `tc` derives the weight from, and the rate of the link, by which the
/// average decays while the queue is empty.
pub(super) fn write(
    writer: &Writer<'_>,
    link: &LinkFacts,
    words: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let bytes = |key: &str, expected: &str| match writer.values.value(key) {
        Some(Value::Bytes(bytes)) => Ok(bytes),
        _ => Err(writer.values.missing(key, expected)),
    };
    let min = bytes("min", "bytes, such as 30000B: Linux has no default")?;
    bytes("max", "bytes, such as 90000B: Linux has no default")?;
    let packet = bytes("mean-packet", "bytes")?;
    let expected = "a power of two such as 3.125%, 1/2 to 1/65536, that `tc` can derive from `min`";
    let Some(weight) = writer.values.value("weight") else {
        return Err(writer.values.missing("weight", expected));
    };
    let burst = match &weight {
        Value::Probability(q32) => log_of(*q32).and_then(|log| burst(log, min, packet)),
        _ => None,
    };
    let burst = burst.ok_or_else(|| writer.refuse("weight", &weight, expected))?;
    let rate = link.rate.map_or_else(|| BANDWIDTH.to_string(), |rate| format!("{rate}"));
    words.extend(["burst".to_string(), burst.to_string(), "bandwidth".to_string(), rate]);
    Ok(())
}

/// The weight as a negative power of two, to the millionth that a SPEC is printed with.
fn log_of(q32: u64) -> Option<u32> {
    (1..=LOG_MAX).find(|log| (1_u64 << (32 - log)).abs_diff(q32) <= HALF_MILLIONTH_Q32)
}

/// Returns a burst that `tc` converts to this weight, in the middle of the bursts that give it.
fn burst(log: u32, min: u64, packet: u64) -> Option<u64> {
    let least = min.div_ceil(packet).max(1);
    let most = min / packet + (1 << log) + 2;
    // The weight falls as the burst grows.
    let (mut low, mut high) = (None, None);
    for burst in least..=most {
        if weight_log(burst, min, packet) == Some(log) {
            low = low.or(Some(burst));
            high = Some(burst);
        }
    }
    Some(low?.midpoint(high?))
}

/// The weight that `tc` derives: `tc_red_eval_ewma` of iproute2.
fn weight_log(burst: u64, min: u64, packet: u64) -> Option<u32> {
    let room = burst as f64 + 1.0 - min as f64 / packet as f64;
    if room < 1.0 {
        return None;
    }
    (1..32).find(|log| {
        let weight = 1.0 / f64::from(1_u32 << log);
        room <= (1.0 - power(1.0 - weight, burst)) / weight
    })
}

fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_found_from_its_printed_form() {
        for (millionths, log) in [(31_250, 5), (7_813, 7), (15, 16)] {
            assert_eq!(log_of((millionths << 32) / 1_000_000), Some(log), "{millionths}");
        }
        assert_eq!(log_of((30_000 << 32) / 1_000_000), None);
    }

    #[test]
    fn the_weight_is_the_one_that_tc_derives() {
        // The result of iproute2: min 30000, avpkt 1000, burst 55 is 2^-5.
        assert_eq!(weight_log(55, 30_000, 1_000), Some(5));
        assert_eq!(weight_log(30, 30_000, 1_000), Some(1));
        assert_eq!(weight_log(29, 30_000, 1_000), None);
        for log in 1..=LOG_MAX {
            let found = burst(log, 30_000, 1_000).expect("a burst");
            assert_eq!(weight_log(found, 30_000, 1_000), Some(log), "burst {found}");
        }
    }
}
