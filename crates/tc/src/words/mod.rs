//! Linux's own queues: the arguments of `tc qdisc` that mean what a SPEC means.
//!
//! [`arguments`] follows one table (`words/table.rs`) with a row for each parameter. A parameter that
//! Linux has not, or a value between two that `tc` can name, is refused; nothing is rounded. Every
//! argument is written out, so that defaults which differ between kernels do not matter.
//!
//! # Divergences that no argument removes
//! * Linux takes the largest packet (`mtu`) from the device: 1514 bytes on Ethernet.
//! * Linux rounds the interval of PIE's and FQ-PIE's updates to ticks: 15 ms are 16 ms at 250 Hz.
//! * `red` is the original RED of 1993 (`gentle=off`), with a weight that is a power of two. Linux
//!   drops packets of all sizes alike, ours in proportion to their size over `mean-packet`.

mod red;
mod table;

use table::{Form, QUEUES, Queue, Row};
use underload_aqm::config::{ConfigError, LinkFacts, Spec, Value, Values};
use underload_aqm::registry::{QueueConfig, QueueEntry, QueueSetup};

/// The values of `tc` are of 32 bits.
const LARGEST: u64 = u32::MAX as u64;

/// Returns the kind of queue and its arguments, as they follow `tc qdisc add dev DEVICE root`.
///
/// `overhead_bytes` is what the link adds to an IP packet; with `None` it is what the device adds.
/// Only CAKE depends on it.
///
/// # Errors
/// Returns the queue, profile, parameter or value that Linux has not, and what is accepted.
pub fn arguments(
    spec: &Spec,
    link: &LinkFacts,
    overhead_bytes: Option<u32>,
) -> Result<Vec<String>, ConfigError> {
    let unknown = || ConfigError::UnknownName {
        what: "Linux queue",
        name: spec.name.clone(),
        known: QUEUES.iter().map(|queue| queue.name).collect::<Vec<_>>().join(", "),
        suggestion: None,
    };
    // A name like no other gets the list of Linux's queues instead of all queues.
    let setup = QueueSetup::from_spec(spec, link).map_err(|error| match error {
        ConfigError::UnknownName { suggestion: None, .. } => unknown(),
        other => other,
    })?;
    let queue = QUEUES.iter().find(|queue| queue.name == setup.label.name).ok_or_else(unknown)?;
    let entry = QueueEntry::find(queue.name).ok_or_else(unknown)?;
    let values = entry.definition.resolve(&setup.label)?;
    let writer = Writer { queue, values: &values };
    writer.check_profile()?;
    let mut words = Vec::from([queue.kind.to_string()]);
    for row in queue.rows {
        writer.write(row, &mut words)?;
    }
    match queue.name {
        // `tc` has two names for the two units.
        "fifo" if matches!(values.value("limit"), Some(Value::Bytes(_))) => {
            words[0] = "bfifo".to_string();
        }
        "buffer-control" => {
            if let QueueConfig::Fifo(fifo) = &setup.config {
                words.extend(["limit".to_string(), fifo.limit.bytes.to_string()]);
            }
        }
        "red" => red::write(&writer, link, &mut words)?,
        "cake" => writer.write_cake(overhead_bytes, &mut words),
        _ => {}
    }
    Ok(words)
}

/// Writes the values of one queue as arguments.
struct Writer<'a> {
    queue: &'static Queue,
    values: &'a Values,
}

impl Writer<'_> {
    fn check_profile(&self) -> Result<(), ConfigError> {
        match self.queue.profile {
            Some(profile) if self.values.profile() != profile => {
                let expected = format!("{profile}, the only one that Linux has");
                let own = self.values.profile();
                Err(ConfigError::value(self.queue.name, "profile", own, expected))
            }
            _ => Ok(()),
        }
    }

    /// Appends the arguments of a row, none if the parameter has no value.
    fn write(&self, row: &Row, words: &mut Vec<String>) -> Result<(), ConfigError> {
        let is_overridden = row.unless.iter().any(|key| self.values.value(key).is_some());
        let value = self.values.value(row.key).filter(|_| !is_overridden);
        let Some(value) = value else { return Ok(()) };
        match &row.form {
            Form::Fixed(fixed) if value.to_string() != *fixed => {
                let expected = format!("{fixed}, which Linux does not let change");
                return Err(self.refuse(row.key, &value, &expected));
            }
            Form::Set | Form::Fixed(_) => {}
            Form::Word { others } => {
                let text = value.to_string();
                let word =
                    others.iter().find(|(own, _)| *own == text).map_or(&*text, |pair| pair.1);
                words.extend(word.split_whitespace().map(str::to_owned));
            }
            Form::Flag { on, off } => {
                let word = if value.to_string() == "on" { on } else { off };
                words.extend((!word.is_empty()).then(|| (*word).to_owned()));
            }
            form => {
                let text = text(form, &value);
                let text = text.map_err(|expected| self.refuse(row.key, &value, &expected))?;
                words.extend([row.word.to_string(), text]);
            }
        }
        Ok(())
    }

    /// Appends `unlimited` if CAKE has no rate, and the bytes that it charges on top of an IP
    /// packet.
    fn write_cake(&self, of_link: Option<u32>, words: &mut Vec<String>) {
        if self.values.value("rate").is_none() {
            words.push("unlimited".to_string());
        }
        let own = match self.values.value("overhead") {
            Some(Value::Bytes(bytes)) => bytes,
            _ => 0,
        };
        if own > 0 || of_link.is_some() {
            let sum = own + u64::from(of_link.unwrap_or(0));
            words.extend(["overhead".to_string(), sum.to_string()]);
        }
    }

    fn refuse(&self, key: &str, value: &Value, expected: &str) -> ConfigError {
        ConfigError::value(self.queue.name, key, &value.to_string(), expected)
    }
}

/// Returns a value as `tc` reads it, or what is accepted.
fn text(form: &Form, value: &Value) -> Result<String, String> {
    match (form, value) {
        (Form::Time, Value::Span(span)) => {
            let (micros, is_whole) =
                (span.as_nanos() / 1_000, span.as_nanos().is_multiple_of(1_000));
            let is_possible = is_whole && micros <= LARGEST;
            is_possible.then(|| span.to_string()).ok_or("whole microseconds, at most 4294s".into())
        }
        (Form::Milliseconds, Value::Span(span)) => {
            let is_whole = span.as_nanos().is_multiple_of(1_000_000);
            let millis = span.as_millis().to_string();
            is_whole.then_some(millis).ok_or("whole milliseconds".into())
        }
        (Form::Plain | Form::Fraction, value) => Ok(value.to_string()),
        (Form::Packets, Value::Bytes(_)) => Err("packets, such as 1000p".into()),
        (Form::Bytes, Value::Packets(_)) => Err("bytes, such as 64KiB".into()),
        (Form::Packets | Form::Number, Value::Packets(packets)) => Ok(packets.to_string()),
        (Form::Bytes | Form::Number, Value::Bytes(number) | Value::Count(number)) => {
            let is_possible = *number <= LARGEST;
            is_possible.then(|| number.to_string()).ok_or("at most 4294967295".into())
        }
        (Form::Percent { unit, largest }, Value::Probability(q32)) => {
            let percent = (q32 * 100 + (1 << 31)) >> 32;
            // Within what rounding to 2^-32 changes.
            let is_whole = (q32 * 100).abs_diff(percent << 32) <= 100 && percent <= *largest;
            let expected = || format!("whole percent, at most {largest}%");
            is_whole.then(|| format!("{percent}{unit}")).ok_or_else(expected)
        }
        (Form::Parts { unit, largest }, Value::Decimal(millionths)) => {
            let (parts, rest) = (millionths * unit / 1_000_000, millionths * unit % 1_000_000);
            let expected = || format!("a multiple of 1/{unit}, at most {largest}/{unit}");
            (rest == 0 && parts <= *largest).then(|| parts.to_string()).ok_or_else(expected)
        }
        (Form::Parts256, Value::Decimal(millionths)) => Ok(of_256ths(*millionths)),
        (form, value) => unreachable!("{form:?} cannot be {value:?}"),
    }
}

/// The decimal number of the next 256th, without an error of rounding: `tc` cuts off what is below.
fn of_256ths(millionths: u64) -> String {
    const DIGITS: u64 = 100_000_000;
    let parts = (millionths * 256 + 500_000) / 1_000_000;
    let exact = format!("{}.{:08}", parts / 256, parts % 256 * (DIGITS / 256));
    exact.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests;
