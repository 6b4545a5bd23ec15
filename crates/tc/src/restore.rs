//! The commands that bring back recorded queues, with the options that they had.
//!
//! Each kind has a table of the options that `tc -j -d` prints (iproute2 6.1 to 7.1, kernels 6.1 to
//! 7.3). A queue with any other option, or of any other kind, cannot be restored, and is therefore
//! never replaced: nothing is guessed. Kinds with classes and filters (htb, hfsc, prio) are among
//! them, and `tbf` and `sfq`, of which `tc` prints other values than it takes.

use serde_json::Value;

use crate::Command;
use crate::printed::Qdisc;

/// Why a queue could not be restored once it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrestorable {
    #[error("underload could not restore a `{kind}` afterwards, exactly as it is")]
    Kind { kind: String },
    #[error("underload could not restore a `{kind}` afterwards: this tc cannot print its options")]
    Unprinted { kind: String },
    #[error("underload could not restore a `{kind}` with the option `{option}` afterwards")]
    Option { kind: String, option: String },
    #[error("underload could not restore a `{kind}` below `{parent}` afterwards")]
    Child { kind: String, parent: String },
}

/// Returns the commands that set the queues of `device` to `tree`, whose first entry is the root.
///
/// # Errors
/// Returns the first queue that cannot be restored.
pub fn commands(device: &str, tree: &[Qdisc]) -> Result<Vec<Command>, Unrestorable> {
    let Some(root) = tree.first() else {
        return Ok(vec![remove_root(device)]);
    };
    if root.is_default() {
        let child = tree.iter().find(|child| !child.is_default());
        return child.map_or(Ok(vec![remove_root(device)]), |child| Err(misplaced(child)));
    }
    let place = format!("qdisc replace dev {device} root handle {}", root.handle);
    let mut commands = vec![Command::tc(&place).with(words(root)?)];
    for child in tree[1..].iter().filter(|child| !child.is_default()) {
        let parent = child.parent.as_deref().unwrap_or_default();
        // The classes of other kinds are not recorded.
        if root.kind != "mq" || !parent.starts_with(&root.handle) {
            return Err(misplaced(child));
        }
        let place = format!("qdisc replace dev {device} parent {parent} handle {}", child.handle);
        commands.push(Command::tc(&place).with(words(child)?));
    }
    Ok(commands)
}

/// Returns the command after which the kernel's default is the root.
fn remove_root(device: &str) -> Command {
    Command::tc(&format!("qdisc del dev {device} root"))
}

fn misplaced(child: &Qdisc) -> Unrestorable {
    let parent = child.parent.clone().unwrap_or_default();
    Unrestorable::Child { kind: child.kind.clone(), parent }
}

/// Returns the kind and its options as arguments of `tc`.
///
/// # Errors
/// Returns the option or kind that cannot be restored.
pub fn words(qdisc: &Qdisc) -> Result<Vec<String>, Unrestorable> {
    let kind = qdisc.kind.clone();
    if qdisc.is_unknown {
        return Err(Unrestorable::Unprinted { kind });
    }
    let known = KINDS.iter().find(|(names, _)| names.contains(&kind.as_str()));
    let Some((_, known)) = known else { return Err(Unrestorable::Kind { kind }) };
    let is_known = |option: &str| known.iter().any(|(key, _)| *key == option);
    if let Some(option) = qdisc.options.keys().find(|option| !is_known(option)) {
        return Err(Unrestorable::Option { kind, option: option.clone() });
    }
    let mut words = vec![kind.clone()];
    for (key, form) in *known {
        form.write(key, qdisc.options.get(*key), &mut words).ok_or_else(|| {
            Unrestorable::Option { kind: kind.clone(), option: (*key).to_owned() }
        })?;
    }
    // For CAKE an `overhead` behind `raw`, even of zero, cancels `raw`.
    if let Some(raw) = words.iter().position(|word| word == "raw") {
        let overhead = words.iter().position(|word| word == "overhead");
        if let Some(overhead) = overhead.filter(|overhead| *overhead > raw) {
            words.drain(overhead..overhead + 2);
        }
    }
    Ok(words)
}

/// An option: its key in JSON, which is also its word for `tc`, and how its value is written.
type Known = (&'static str, Form);

enum Form {
    /// A number after the word.
    Number,
    /// Microseconds after the word.
    Micros,
    /// Microseconds that the kernel stores in units of 1024 ns, rounded down at each conversion.
    CodelMicros,
    /// Microseconds that the kernel stores in units of 64 ns, rounded down at each conversion.
    TickMicros,
    /// Nanoseconds after the word.
    Nanos,
    /// Bytes per second after the word, or the word `unlimited` alone.
    Rate,
    /// The word `on` if the option is set; `off` if it is false or missing.
    Flag { on: &'static str, off: &'static str },
    /// The value is the word itself.
    Word,
    /// A value that is a text after the word.
    Text,
    /// The value is one of these, which have words.
    Words(&'static [(&'static str, &'static str)]),
    /// Follows from other options or cannot be changed.
    Fixed,
}

impl Form {
    /// Appends the arguments of a value; `None` if the value is not of this form.
    fn write(&self, word: &str, value: Option<&Value>, words: &mut Vec<String>) -> Option<()> {
        if let Self::Flag { on, off } = self {
            let is_set = value.is_some_and(|value| *value != Value::Bool(false));
            let word = if is_set { on } else { off };
            words.extend((!word.is_empty()).then(|| (*word).to_owned()));
            return Some(());
        }
        let Some(value) = value else { return Some(()) };
        let after_word = match self {
            Self::Number => value.as_u64()?.to_string(),
            Self::Micros => format!("{}us", value.as_u64()?),
            Self::CodelMicros => format!("{}us", undo_rounding(value, 128)?),
            Self::TickMicros => format!("{}us", undo_rounding(value, 8)?),
            Self::Nanos => format!("{}ns", value.as_u64()?),
            Self::Rate if *value == "unlimited" => {
                words.push("unlimited".to_owned());
                return Some(());
            }
            Self::Rate => format!("{}bit", value.as_u64()?.checked_mul(8)?),
            Self::Text => value.as_str()?.to_owned(),
            Self::Word => {
                words.push(value.as_str()?.to_owned());
                return Some(());
            }
            Self::Words(pairs) => {
                let (_, word) = pairs.iter().find(|(known, _)| *value == *known)?;
                words.push((*word).to_owned());
                return Some(());
            }
            Self::Flag { .. } | Self::Fixed => return Some(()),
        };
        words.extend([word.to_owned(), after_word]);
        Some(())
    }
}

/// Returns the microseconds from which the kernel makes the printed ones. It rounds down twice, to
/// its unit and to microseconds, so the next microsecond becomes the printed one again, except for
/// multiples of `exact`, which its unit divides.
fn undo_rounding(printed: &Value, exact: u64) -> Option<u64> {
    let printed = printed.as_u64()?;
    Some(printed + u64::from(!printed.is_multiple_of(exact)))
}

const LIMIT: Known = ("limit", Form::Number);
const FLOWS: Known = ("flows", Form::Number);
const QUANTUM: Known = ("quantum", Form::Number);
const MEMORY: Known = ("memory_limit", Form::Number);
const ECN: Known = ("ecn", Form::Flag { on: "ecn", off: "noecn" });
const TARGET: Known = ("target", Form::CodelMicros);
const INTERVAL: Known = ("interval", Form::CodelMicros);
const CE_THRESHOLD: Known = ("ce_threshold", Form::CodelMicros);
const PIE_TARGET: Known = ("target", Form::TickMicros);
const UPDATE: Known = ("tupdate", Form::Micros);
const ALPHA: Known = ("alpha", Form::Number);
const BETA: Known = ("beta", Form::Number);
const BYTE_MODE: Known = ("bytemode", Form::Flag { on: "bytemode", off: "nobytemode" });

/// Kinds of queues with all their options, in the order in which they are written.
const KINDS: &[(&[&str], &[Known])] = &[
    (&["pfifo", "bfifo", "pfifo_head_drop"], &[LIMIT]),
    (&["pfifo_fast"], PFIFO_FAST),
    (&["noqueue", "mq"], &[]),
    (&["codel"], &[LIMIT, TARGET, INTERVAL, CE_THRESHOLD, ECN]),
    (&["fq_codel"], FQ_CODEL),
    (&["pie"], &[LIMIT, PIE_TARGET, UPDATE, ALPHA, BETA, ECN, BYTE_MODE]),
    (&["fq_pie"], FQ_PIE),
    (&["fq"], FQ),
    (&["cake", "cake_mq"], CAKE),
];

const PFIFO_FAST: &[Known] =
    &[("bands", Form::Fixed), ("priomap", Form::Fixed), ("multiqueue", Form::Fixed)];

const FQ_CODEL: &[Known] = &[
    LIMIT,
    FLOWS,
    QUANTUM,
    TARGET,
    INTERVAL,
    CE_THRESHOLD,
    MEMORY,
    ECN,
    ("drop_batch", Form::Number),
];

const FQ_PIE: &[Known] = &[
    LIMIT,
    FLOWS,
    PIE_TARGET,
    UPDATE,
    ALPHA,
    BETA,
    QUANTUM,
    MEMORY,
    ("ecn_prob", Form::Number),
    ECN,
    BYTE_MODE,
];

const FQ: &[Known] = &[
    LIMIT,
    ("flow_limit", Form::Number),
    ("buckets", Form::Number),
    ("orphan_mask", Form::Number),
    QUANTUM,
    ("initial_quantum", Form::Number),
    ("low_rate_threshold", Form::Rate),
    ("refill_delay", Form::Micros),
    ("timer_slack", Form::Nanos),
    ("horizon", Form::Micros),
    ("horizon_drop", Form::Flag { on: "horizon_drop", off: "" }),
    ("horizon_cap", Form::Flag { on: "horizon_cap", off: "" }),
];

const CAKE: &[Known] = &[
    ("bandwidth", Form::Rate),
    ("autorate", Form::Word),
    ("diffserv", Form::Word),
    ("flowmode", Form::Word),
    // A kernel without connection tracking refuses even `nonat`.
    ("nat", Form::Flag { on: "nat", off: "" }),
    ("wash", Form::Flag { on: "wash", off: "nowash" }),
    ("ingress", Form::Flag { on: "ingress", off: "egress" }),
    ("ack-filter", ACK_FILTER),
    ("split_gso", Form::Flag { on: "split-gso", off: "no-split-gso" }),
    ("rtt", Form::Micros),
    ("raw", Form::Flag { on: "raw", off: "" }),
    ("overhead", Form::Number),
    ("atm", Form::Word),
    ("mpu", Form::Number),
    ("memlimit", Form::Number),
    ("fwmark", Form::Text),
];

const ACK_FILTER: Form = Form::Words(&[
    ("disabled", "no-ack-filter"),
    ("enabled", "ack-filter"),
    ("aggressive", "ack-filter-aggressive"),
]);
