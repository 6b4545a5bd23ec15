//! The queues that Linux and `aqm` share, and how each parameter is called by `tc`.
//!
//! Names and units are those of iproute2's `tc/q_*.c`, versions 6.1 to 7.1.

/// A queue that Linux has.
pub(super) struct Queue {
    pub name: &'static str,
    /// The name that `tc` and the kernel have for it.
    pub kind: &'static str,
    /// The profile that behaves as Linux does; `None` if any does, or there is only one.
    pub profile: Option<&'static str>,
    pub rows: &'static [Row],
}

/// How one parameter of a queue is written.
pub(super) struct Row {
    pub key: &'static str,
    /// The argument before the value.
    pub word: &'static str,
    pub form: Form,
    /// Parameters that decide instead of this one, where they are given.
    pub unless: &'static [&'static str],
}

/// How `tc` writes a value.
#[derive(Debug)]
pub(super) enum Form {
    /// A time in whole microseconds.
    Time,
    /// A number of milliseconds without a unit.
    Milliseconds,
    /// A limit in packets.
    Packets,
    /// A limit in bytes.
    Bytes,
    /// The value in the same words as in a SPEC.
    Plain,
    /// A number without a unit: a count, or a limit of a queue that knows packets alone or bytes
    /// alone.
    Number,
    /// A probability from 0 to 1.
    Fraction,
    /// A whole number of percent.
    Percent { unit: &'static str, largest: u64 },
    /// A whole number of parts, `unit` of them to one.
    Parts { unit: u64, largest: u64 },
    /// A decimal number that `tc` cuts to 256ths.
    Parts256,
    /// The value itself as a word, or the words that `others` has for it.
    Word { others: &'static [(&'static str, &'static str)] },
    /// A word for `on` and one for `off`, empty for none.
    Flag { on: &'static str, off: &'static str },
    /// The only value that `tc` supports. It is not written as an argument.
    Fixed(&'static str),
    /// `arguments`, `write_cake` or `red::write` writes the value, because no row of a table can.
    Set,
}

const fn queue(
    name: &'static str,
    kind: &'static str,
    profile: Option<&'static str>,
    rows: &'static [Row],
) -> Queue {
    Queue { name, kind, profile, rows }
}

const fn row(key: &'static str, word: &'static str, form: Form) -> Row {
    Row { key, word, form, unless: &[] }
}

const fn row_unless(
    unless: &'static [&'static str],
    key: &'static str,
    word: &'static str,
    form: Form,
) -> Row {
    Row { key, word, form, unless }
}

const LINUX: Option<&str> = Some("linux");
const LIMIT: Row = row("limit", "limit", Form::Packets);
const FLOWS: Row = row("flows", "flows", Form::Number);
const TARGET: Row = row("target", "target", Form::Time);
const INTERVAL: Row = row("interval", "interval", Form::Time);
const TUPDATE: Row = row("tupdate", "tupdate", Form::Time);
const QUANTUM: Row = row("quantum", "quantum", Form::Number);
const MEMORY: Row = row("memory", "memory_limit", Form::Number);
const CE_THRESHOLD: Row = row("ce-threshold", "ce_threshold", Form::Time);
const ECN: Row = row("ecn", "", Form::Flag { on: "ecn", off: "noecn" });
/// The largest packet of an Ethernet device.
const MTU: Row = row("mtu", "", Form::Fixed("1514B"));
/// Weights of PIE, which `tc` counts in 1/16 Hz.
const ALPHA: Row = row("alpha", "alpha", Form::Parts { unit: 16, largest: 32 });
const BETA: Row = row("beta", "beta", Form::Parts { unit: 16, largest: 32 });
const ITSELF: Form = Form::Word { others: &[] };

pub(super) const QUEUES: &[Queue] = &[
    // `bfifo` for a limit in bytes.
    queue("fifo", "pfifo", None, &[row("limit", "limit", Form::Number)]),
    // The size that the modem selects.
    queue("buffer-control", "bfifo", None, BUFFER_CONTROL),
    queue("head-drop", "pfifo_head_drop", None, &[LIMIT]),
    queue("codel", "codel", LINUX, &[LIMIT, TARGET, INTERVAL, CE_THRESHOLD, MTU, ECN]),
    queue("fq-codel", "fq_codel", LINUX, FQ_CODEL),
    queue("cake", "cake", LINUX, CAKE),
    queue("pie", "pie", LINUX, PIE),
    queue("fq-pie", "fq_pie", LINUX, FQ_PIE),
    queue("dualpi2", "dualpi2", LINUX, DUALPI2),
    queue("red", "red", None, RED),
    queue("sfb", "sfb", LINUX, SFB),
];

const BUFFER_CONTROL: &[Row] = &[
    row("target", "", Form::Set),
    row("min", "", Form::Set),
    row("max", "", Form::Set),
    row("block", "", Form::Set),
    row("largest", "", Form::Set),
    row("packets", "", Form::Fixed("no limit")),
];

const FQ_CODEL: &[Row] = &[
    LIMIT,
    FLOWS,
    TARGET,
    INTERVAL,
    QUANTUM,
    MEMORY,
    row("drop-batch", "drop_batch", Form::Number),
    CE_THRESHOLD,
    MTU,
    ECN,
];

const CAKE: &[Row] = &[
    row("rate", "bandwidth", Form::Plain),
    row("tins", "", ITSELF),
    row("isolation", "", ITSELF),
    row_unless(&["rtt"], "path", "", PATH),
    row("rtt", "rtt", Form::Time),
    row("overhead", "", Form::Set),
    row("mpu", "mpu", Form::Number),
    row("framing", "", Form::Word { others: &[("none", "noatm")] }),
    row("memory", "memlimit", Form::Number),
    row("ingress", "", Form::Flag { on: "ingress", off: "" }),
    MTU,
];

/// `interplanetary` is 3600 s in SPECs, but 1000 s in `tc`.
const PATH: Form = Form::Word { others: &[("interplanetary", "rtt 3600s")] };

const PIE: &[Row] = &[
    LIMIT,
    TARGET,
    TUPDATE,
    ALPHA,
    BETA,
    row("burst", "", Form::Fixed("150ms")),
    row("ecn-threshold", "", Form::Fixed("0.1")),
    row("derandomize", "", Form::Fixed("on")),
    MTU,
    ECN,
];

const FQ_PIE: &[Row] = &[
    LIMIT,
    FLOWS,
    TARGET,
    TUPDATE,
    ALPHA,
    BETA,
    QUANTUM,
    MEMORY,
    row("ecn-prob", "ecn_prob", Form::Percent { unit: "", largest: 99 }),
    MTU,
    ECN,
];

const RED: &[Row] = &[
    row("limit", "limit", Form::Bytes),
    row("min", "min", Form::Bytes),
    row("max", "max", Form::Bytes),
    row("mean-packet", "avpkt", Form::Number),
    row("weight", "", Form::Set),
    row("max-p", "probability", Form::Fraction),
    row("gentle", "", Form::Fixed("off")),
    row("adaptive", "", Form::Fixed("off")),
    row("target", "", Form::Set),
    row("ecn", "", Form::Flag { on: "ecn", off: "" }),
    row("harddrop", "", Form::Flag { on: "harddrop", off: "" }),
];

const SFB: &[Row] = &[
    LIMIT,
    row("max", "max", Form::Number),
    row("target", "target", Form::Number),
    row("increment", "increment", Form::Fraction),
    row("decrement", "decrement", Form::Fraction),
    row("penalty-rate", "penalty_rate", Form::Number),
    row("penalty-burst", "penalty_burst", Form::Number),
    row("rehash", "rehash", Form::Milliseconds),
    row("warmup", "db", Form::Milliseconds),
];

const DUALPI2: &[Row] = &[
    LIMIT,
    row("memory", "memlimit", Form::Number),
    row("typical-rtt", "typical_rtt", Form::Time),
    row("max-rtt", "max_rtt", Form::Time),
    row_unless(ROUND_TRIPS, "target", "target", Form::Time),
    row_unless(ROUND_TRIPS, "tupdate", "tupdate", Form::Time),
    row_unless(ROUND_TRIPS, "alpha", "alpha", Form::Parts256),
    row_unless(ROUND_TRIPS, "beta", "beta", Form::Parts256),
    row("coupling", "coupling_factor", Form::Parts { unit: 1, largest: 255 }),
    row_unless(&["step-packets"], "l4s-threshold", "step_thresh", Form::Time),
    row("step-packets", "step_thresh", Form::Plain),
    row("l4s-range", "", Form::Fixed("0s")),
    row("min-queue", "min_qlen_step", Form::Number),
    row("classic-share", "classic_protection", Form::Percent { unit: "%", largest: 100 }),
    row("drop", "", DROP),
    row("overload", "", Form::Word { others: &[("drop", "drop_on_overload")] }),
    row("ecn", "", Form::Word { others: &[("l4s", "l4s_ect"), ("any", "any_ect")] }),
    MTU,
];

/// `tc` computes the controller from these.
const ROUND_TRIPS: &[&str] = &["typical-rtt", "max-rtt"];

const DROP: Form =
    Form::Word { others: &[("dequeue", "drop_dequeue"), ("enqueue", "drop_enqueue")] };
