//! The queues that Linux and this crate share, and how each parameter is called by `tc`.
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
    /// The value as SPECs have it.
    Plain,
    /// A count, or packets or bytes where there is only one unit.
    Number,
    /// A probability from 0 to 1.
    Fraction,
    /// A whole number of percent.
    Percent { unit: &'static str, largest: u64 },
    /// A whole number of parts, `unit` of them to one.
    Parts { unit: u64, largest: u64 },
    /// A decimal number that `tc` cuts to 256ths.
    Parts256,
    /// Words instead of a value; none for a value that is not listed.
    Words(&'static [(&'static str, &'static str)]),
    /// The only value that there is; it has no argument.
    Fixed(&'static str),
    /// No row writes it: `arguments`, `write_cake` and `red::write` do.
    Set,
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

const ECN: Row = row("ecn", "", Form::Words(&[("on", "ecn"), ("off", "noecn")]));
/// The largest packet of an Ethernet device.
const MTU: Row = row("mtu", "", Form::Fixed("1514B"));
/// 1/16 Hz, as `tc` counts the weights of PIE.
const SIXTEENTHS: Form = Form::Parts { unit: 16, largest: 32 };

pub(super) const QUEUES: &[Queue] = &[
    // `bfifo` for a limit in bytes.
    Queue {
        name: "fifo",
        kind: "pfifo",
        profile: None,
        rows: &[row("limit", "limit", Form::Number)],
    },
    // The size that the modem selects.
    Queue {
        name: "buffer-control",
        kind: "bfifo",
        profile: None,
        rows: &[
            row("target", "", Form::Set),
            row("min", "", Form::Set),
            row("max", "", Form::Set),
            row("block", "", Form::Set),
            row("largest", "", Form::Set),
        ],
    },
    Queue {
        name: "head-drop",
        kind: "pfifo_head_drop",
        profile: None,
        rows: &[row("limit", "limit", Form::Packets)],
    },
    Queue {
        name: "codel",
        kind: "codel",
        profile: Some("linux"),
        rows: &[
            row("limit", "limit", Form::Packets),
            row("target", "target", Form::Time),
            row("interval", "interval", Form::Time),
            row("ce-threshold", "ce_threshold", Form::Time),
            MTU,
            ECN,
        ],
    },
    Queue {
        name: "fq-codel",
        kind: "fq_codel",
        profile: Some("linux"),
        rows: &[
            row("limit", "limit", Form::Packets),
            row("flows", "flows", Form::Number),
            row("target", "target", Form::Time),
            row("interval", "interval", Form::Time),
            row("quantum", "quantum", Form::Number),
            row("memory", "memory_limit", Form::Number),
            row("drop-batch", "drop_batch", Form::Number),
            row("ce-threshold", "ce_threshold", Form::Time),
            MTU,
            ECN,
        ],
    },
    Queue {
        name: "cake",
        kind: "cake",
        profile: Some("linux"),
        rows: &[
            row("rate", "bandwidth", Form::Plain),
            row("tins", "", Form::Words(TINS)),
            row("isolation", "", Form::Words(ISOLATION)),
            row_unless(&["rtt"], "path", "", Form::Words(PATHS)),
            row("rtt", "rtt", Form::Time),
            row("overhead", "", Form::Set),
            row("mpu", "mpu", Form::Number),
            row("framing", "", Form::Words(&[("none", "noatm"), ("atm", "atm"), ("ptm", "ptm")])),
            row("memory", "memlimit", Form::Number),
            row("ingress", "", Form::Words(&[("on", "ingress")])),
            MTU,
        ],
    },
    Queue {
        name: "pie",
        kind: "pie",
        profile: Some("linux"),
        rows: &[
            row("limit", "limit", Form::Packets),
            row("target", "target", Form::Time),
            row("tupdate", "tupdate", Form::Time),
            row("alpha", "alpha", SIXTEENTHS),
            row("beta", "beta", SIXTEENTHS),
            row("burst", "", Form::Fixed("150ms")),
            row("ecn-threshold", "", Form::Fixed("0.1")),
            row("derandomize", "", Form::Fixed("on")),
            MTU,
            ECN,
        ],
    },
    Queue {
        name: "fq-pie",
        kind: "fq_pie",
        profile: Some("linux"),
        rows: &[
            row("limit", "limit", Form::Packets),
            row("flows", "flows", Form::Number),
            row("target", "target", Form::Time),
            row("tupdate", "tupdate", Form::Time),
            row("alpha", "alpha", SIXTEENTHS),
            row("beta", "beta", SIXTEENTHS),
            row("quantum", "quantum", Form::Number),
            row("memory", "memory_limit", Form::Number),
            row("ecn-prob", "ecn_prob", Form::Percent { unit: "", largest: 99 }),
            MTU,
            ECN,
        ],
    },
    Queue { name: "dualpi2", kind: "dualpi2", profile: Some("linux"), rows: DUALPI2 },
    Queue {
        name: "red",
        kind: "red",
        profile: None,
        rows: &[
            row("limit", "limit", Form::Bytes),
            row("min", "min", Form::Bytes),
            row("max", "max", Form::Bytes),
            row("mean-packet", "avpkt", Form::Number),
            row("weight", "", Form::Set),
            row("max-p", "probability", Form::Fraction),
            row("gentle", "", Form::Fixed("off")),
            row("adaptive", "", Form::Fixed("off")),
            row("target", "", Form::Set),
            row("ecn", "", Form::Words(&[("on", "ecn")])),
            row("harddrop", "", Form::Words(&[("on", "harddrop")])),
        ],
    },
    Queue {
        name: "sfb",
        kind: "sfb",
        profile: Some("linux"),
        rows: &[
            row("limit", "limit", Form::Packets),
            row("max", "max", Form::Number),
            row("target", "target", Form::Number),
            row("increment", "increment", Form::Fraction),
            row("decrement", "decrement", Form::Fraction),
            row("penalty-rate", "penalty_rate", Form::Number),
            row("penalty-burst", "penalty_burst", Form::Number),
            row("rehash", "rehash", Form::Milliseconds),
            row("warmup", "db", Form::Milliseconds),
        ],
    },
];

const DUALPI2: &[Row] = &[
    row("limit", "limit", Form::Packets),
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
    row("drop", "", Form::Words(&[("dequeue", "drop_dequeue"), ("enqueue", "drop_enqueue")])),
    row("overload", "", Form::Words(&[("drop", "drop_on_overload"), ("overflow", "overflow")])),
    row("ecn", "", Form::Words(&[("l4s", "l4s_ect"), ("any", "any_ect")])),
    MTU,
];

/// `tc` computes the controller from these.
const ROUND_TRIPS: &[&str] = &["typical-rtt", "max-rtt"];

const TINS: &[(&str, &str)] = &[
    ("diffserv3", "diffserv3"),
    ("diffserv4", "diffserv4"),
    ("diffserv8", "diffserv8"),
    ("precedence", "precedence"),
    ("besteffort", "besteffort"),
];

const ISOLATION: &[(&str, &str)] = &[
    ("triple-isolate", "triple-isolate"),
    ("dual-srchost", "dual-srchost"),
    ("dual-dsthost", "dual-dsthost"),
    ("flows", "flows"),
    ("hosts", "hosts"),
    ("srchost", "srchost"),
    ("dsthost", "dsthost"),
    ("flowblind", "flowblind"),
];

const PATHS: &[(&str, &str)] = &[
    ("datacentre", "datacentre"),
    ("lan", "lan"),
    ("metro", "metro"),
    ("regional", "regional"),
    ("internet", "internet"),
    ("oceanic", "oceanic"),
    ("satellite", "satellite"),
    // The word means 1000 s to `tc`.
    ("interplanetary", "rtt 3600s"),
];
