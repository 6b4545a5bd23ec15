//! The commands that bring back recorded queues, with the options that they had.
//!
//! Each kind has a table of the options that `tc -j -d` prints (iproute2 6.1 to 7.1, kernels 6.1 to
//! 7.3). A queue with any other option, or of any other kind, cannot be restored, and is therefore
//! never replaced: nothing is guessed. Kinds with classes and filters (htb, hfsc, prio) are among
//! them, and `tbf` and `sfq`, of which `tc` prints other values than it takes.

use serde_json::Value;

use crate::Command;
use crate::tree::Qdisc;

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
    let known = KINDS.iter().find(|known| known.names.contains(&kind.as_str()));
    let Some(known) = known else { return Err(Unrestorable::Kind { kind }) };
    let is_known = |option: &str| known.options.iter().any(|known| known.key == option);
    if let Some(option) = qdisc.options.keys().find(|option| !is_known(option)) {
        return Err(Unrestorable::Option { kind, option: option.clone() });
    }
    let mut words = vec![kind.clone()];
    for option in known.options {
        let value = qdisc.options.get(option.key);
        option.form.write(value, &mut words).ok_or_else(|| Unrestorable::Option {
            kind: kind.clone(),
            option: option.key.to_owned(),
        })?;
    }
    // CAKE: an overhead, also of zero, means that it is not raw.
    if let Some(raw) = words.iter().position(|word| word == "raw") {
        let overhead = words.iter().position(|word| word == "overhead");
        if let Some(overhead) = overhead.filter(|overhead| *overhead > raw) {
            words.drain(overhead..overhead + 2);
        }
    }
    Ok(words)
}

struct KnownKind {
    names: &'static [&'static str],
    options: &'static [KnownOption],
}

/// An option of a kind: its name in JSON, and how to write it as arguments.
struct KnownOption {
    key: &'static str,
    form: Form,
}

enum Form {
    /// A number after this word.
    Number(&'static str),
    /// Microseconds after this word.
    Micros(&'static str),
    /// Microseconds that the kernel stores in units of 1024 ns, rounded down at each conversion.
    CodelMicros(&'static str),
    /// Microseconds that the kernel stores in units of 64 ns, rounded down at each conversion.
    TickMicros(&'static str),
    /// Nanoseconds after this word.
    Nanos(&'static str),
    /// Bytes per second after this word, or the word `unlimited` alone.
    Rate(&'static str),
    /// One word if the option is set, another if it is false or missing.
    Flag { on: &'static str, off: &'static str },
    /// The value is the word itself.
    Word,
    /// A word and a value that is a text.
    Text(&'static str),
    /// The value is one of these, which have words.
    Words(&'static [(&'static str, &'static str)]),
    /// Follows from other options or cannot be changed.
    Fixed,
}

impl Form {
    /// Appends the arguments of a value; `None` if the value is not of this form.
    fn write(&self, value: Option<&Value>, words: &mut Vec<String>) -> Option<()> {
        if let Self::Flag { on, off } = self {
            let is_set = value.is_some_and(|value| *value != Value::Bool(false));
            let word = if is_set { on } else { off };
            words.extend((!word.is_empty()).then(|| (*word).to_owned()));
            return Some(());
        }
        let Some(value) = value else { return Some(()) };
        let mut push = |word: &str, value: String| words.extend([word.to_owned(), value]);
        match self {
            Self::Number(word) => push(word, value.as_u64()?.to_string()),
            Self::Micros(word) => push(word, format!("{}us", value.as_u64()?)),
            Self::CodelMicros(word) => push(word, format!("{}us", undo_rounding(value, 128)?)),
            Self::TickMicros(word) => push(word, format!("{}us", undo_rounding(value, 8)?)),
            Self::Nanos(word) => push(word, format!("{}ns", value.as_u64()?)),
            Self::Rate(word) => match value.as_u64() {
                Some(bytes) => push(word, format!("{}bit", bytes.checked_mul(8)?)),
                None => words.push(value.as_str().filter(|text| *text == "unlimited")?.to_owned()),
            },
            Self::Word => words.push(value.as_str()?.to_owned()),
            Self::Text(word) => push(word, value.as_str()?.to_owned()),
            Self::Words(pairs) => {
                let text = value.as_str()?;
                let (_, word) = pairs.iter().find(|(known, _)| *known == text)?;
                words.push((*word).to_owned());
            }
            Self::Flag { .. } | Self::Fixed => {}
        }
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

const fn option(key: &'static str, form: Form) -> KnownOption {
    KnownOption { key, form }
}

const LIMIT: KnownOption = option("limit", Form::Number("limit"));
const QUANTUM: KnownOption = option("quantum", Form::Number("quantum"));
const FLOWS: KnownOption = option("flows", Form::Number("flows"));
const MEMORY: KnownOption = option("memory_limit", Form::Number("memory_limit"));
const ECN: KnownOption = option("ecn", Form::Flag { on: "ecn", off: "noecn" });
const BYTE_MODE: KnownOption = option("bytemode", Form::Flag { on: "bytemode", off: "nobytemode" });

const CODEL: [KnownOption; 3] = [
    option("target", Form::CodelMicros("target")),
    option("interval", Form::CodelMicros("interval")),
    option("ce_threshold", Form::CodelMicros("ce_threshold")),
];
const PIE: [KnownOption; 4] = [
    option("target", Form::TickMicros("target")),
    option("tupdate", Form::Micros("tupdate")),
    option("alpha", Form::Number("alpha")),
    option("beta", Form::Number("beta")),
];

const KINDS: &[KnownKind] = &[
    KnownKind { names: &["pfifo", "bfifo", "pfifo_head_drop"], options: &[LIMIT] },
    KnownKind {
        names: &["pfifo_fast"],
        options: &[
            option("bands", Form::Fixed),
            option("priomap", Form::Fixed),
            option("multiqueue", Form::Fixed),
        ],
    },
    KnownKind { names: &["noqueue", "mq"], options: &[] },
    KnownKind {
        names: &["codel"],
        options: &{
            let [target, interval, threshold] = CODEL;
            [LIMIT, target, interval, threshold, ECN]
        },
    },
    KnownKind {
        names: &["fq_codel"],
        options: &{
            let [target, interval, threshold] = CODEL;
            let batch = option("drop_batch", Form::Number("drop_batch"));
            [LIMIT, FLOWS, QUANTUM, target, interval, threshold, MEMORY, ECN, batch]
        },
    },
    KnownKind {
        names: &["pie"],
        options: &{
            let [target, update, alpha, beta] = PIE;
            [LIMIT, target, update, alpha, beta, ECN, BYTE_MODE]
        },
    },
    KnownKind {
        names: &["fq_pie"],
        options: &{
            let [target, update, alpha, beta] = PIE;
            let probability = option("ecn_prob", Form::Number("ecn_prob"));
            [
                LIMIT, FLOWS, target, update, alpha, beta, QUANTUM, MEMORY, probability, ECN,
                BYTE_MODE,
            ]
        },
    },
    KnownKind {
        names: &["fq"],
        options: &[
            LIMIT,
            option("flow_limit", Form::Number("flow_limit")),
            option("buckets", Form::Number("buckets")),
            option("orphan_mask", Form::Number("orphan_mask")),
            QUANTUM,
            option("initial_quantum", Form::Number("initial_quantum")),
            option("low_rate_threshold", Form::Rate("low_rate_threshold")),
            option("refill_delay", Form::Micros("refill_delay")),
            option("timer_slack", Form::Nanos("timer_slack")),
            option("horizon", Form::Micros("horizon")),
            option("horizon_drop", Form::Flag { on: "horizon_drop", off: "" }),
            option("horizon_cap", Form::Flag { on: "horizon_cap", off: "" }),
        ],
    },
    KnownKind { names: &["cake", "cake_mq"], options: CAKE },
];

const CAKE: &[KnownOption] = &[
    option("bandwidth", Form::Rate("bandwidth")),
    option("autorate", Form::Word),
    option("diffserv", Form::Word),
    option("flowmode", Form::Word),
    // A kernel without connection tracking refuses even `nonat`.
    option("nat", Form::Flag { on: "nat", off: "" }),
    option("wash", Form::Flag { on: "wash", off: "nowash" }),
    option("ingress", Form::Flag { on: "ingress", off: "egress" }),
    option(
        "ack-filter",
        Form::Words(&[
            ("disabled", "no-ack-filter"),
            ("enabled", "ack-filter"),
            ("aggressive", "ack-filter-aggressive"),
        ]),
    ),
    option("split_gso", Form::Flag { on: "split-gso", off: "no-split-gso" }),
    option("rtt", Form::Micros("rtt")),
    option("raw", Form::Flag { on: "raw", off: "" }),
    option("overhead", Form::Number("overhead")),
    option("atm", Form::Word),
    option("mpu", Form::Number("mpu")),
    option("memlimit", Form::Number("memlimit")),
    option("fwmark", Form::Text("fwmark")),
];
