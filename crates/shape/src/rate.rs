//! The rate of a queue: as arguments of `tc`, as the message that changes it in the kernel, and as
//! `tc` prints it.
//!
//! A line that varies changes its rates up to ten times a second, and a process for each change
//! would cost 2 ms of processor time. The message has the layout of rtnetlink(7) and
//! `linux/pkt_sched.h`.

use std::fmt::Write as _;

use underload_aqm::rate::Rate;
use underload_tc::printed::{Device, Qdisc};

use crate::judge::{CHILD_HANDLE, HANDLE};
use crate::request::{Framing, Overhead, Request};

/// Bytes of the header of a device whose packets begin with one.
pub(crate) const ETHERNET_BYTES: u32 = 14;
/// Bursts that the rate limit lets pass at once last 1 ms, which spares the processor.
const BURSTS_PER_SECOND: u64 = 1_000;
/// The least burst: two packets of 1514 bytes.
const BURST_MIN_BYTES: u64 = 3_028;
/// How long packets may wait in the fifo that `tbf` has until another queue is below it.
const LATENCY_MS: u64 = 100;

/// The limit of the rate at the root of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// CAKE by its kind, which keeps its other options.
    Cake(&'static str, Rate),
    /// A token bucket (`tbf`).
    Bucket(Bucket),
    /// A fifo below a token bucket: its kind, and its limit in the kind's unit.
    Fifo(&'static str, u32),
}

/// A token bucket above a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    bit_per_s: u64,
    burst_bytes: u64,
    /// Bytes of the link layer that the kernel does not count.
    overhead: Overhead,
}

impl Bucket {
    pub fn new(request: &Request, rate: Rate, device: &Device) -> Self {
        let mut overhead = request.overhead;
        // `tbf` has no option for 64/65 encoding, so the rate is reduced instead.
        let bit_per_s = overhead.rate_of_data(rate).bits_per_second();
        // `tbf` counts the header of the device, the line's overhead begins at the IP packet.
        let counted = if device.link_type == "ether" { ETHERNET_BYTES } else { 0 };
        overhead.bytes = overhead.bytes.saturating_sub(counted);
        let burst_bytes = (bit_per_s / 8 / BURSTS_PER_SECOND).max(BURST_MIN_BYTES);
        Self { bit_per_s, burst_bytes, overhead }
    }

    /// Returns the arguments of `tc`.
    pub fn words(&self) -> Vec<String> {
        let Self { bit_per_s, burst_bytes, overhead } = self;
        let mut text =
            format!("tbf rate {bit_per_s}bit burst {burst_bytes}b latency {LATENCY_MS}ms");
        if overhead.is_some() {
            let _ = write!(text, " overhead {}", overhead.bytes);
            if overhead.minimum_bytes > 0 {
                let _ = write!(text, " mpu {}", overhead.minimum_bytes);
            }
            if overhead.framing == Framing::Atm {
                text += " linklayer atm";
            }
        }
        text.split(' ').map(str::to_owned).collect()
    }

    /// Returns the kernel's options of the bucket.
    fn options(&self) -> Vec<u8> {
        const PARAMETERS: u16 = 1;
        const RATE: u16 = 4;
        const BURST: u16 = 6;
        const ETHERNET: u8 = 1;
        const ATM: u8 = 2;
        let bytes_per_s = self.bit_per_s / 8;
        let is_atm = self.overhead.framing == Framing::Atm;
        let limit_bytes = bytes_per_s.saturating_mul(LATENCY_MS) / 1_000 + self.burst_bytes;
        // struct tc_ratespec: cells, link layer, overhead, alignment, least size, rate.
        let mut parameters = vec![0, if is_atm { ATM } else { ETHERNET }];
        parameters.extend(low_16(self.overhead.bytes));
        parameters.extend((-1_i16).to_ne_bytes());
        parameters.extend(low_16(self.overhead.minimum_bytes));
        parameters.extend(low_32(bytes_per_s));
        // struct tc_tbf_qopt continues: peak rate, limit, buffer, largest packet.
        parameters.extend([0; 12]);
        parameters.extend(low_32(limit_bytes));
        parameters.extend([0; 8]);
        [
            attribute(PARAMETERS, &parameters),
            attribute(RATE, &bytes_per_s.to_ne_bytes()),
            attribute(BURST, &low_32(self.burst_bytes)),
        ]
        .concat()
    }
}

impl Limit {
    /// Parses the limit of `pfifo` and `bfifo` from the words of `tc`; `None` for other queues.
    pub fn fifo(words: &[String]) -> Option<Self> {
        let first = words.first()?;
        let kind = ["pfifo", "bfifo"].into_iter().find(|kind| first == kind)?;
        let limit = words.iter().skip_while(|word| *word != "limit").nth(1)?;
        Some(Self::Fifo(kind, limit.trim_end_matches('b').parse().ok()?))
    }

    /// Returns the message that changes our queue of the device with number `index`. The kernel
    /// refuses it if another queue is there.
    pub fn message(&self, index: u32) -> Vec<u8> {
        const NEW_QDISC: u16 = 36;
        const KIND: u16 = 1;
        const OPTIONS: u16 = 2;
        const REQUEST_AND_ACKNOWLEDGE: u16 = 5;
        const CAKE_RATE: u16 = 2;
        let (kind, options) = match self {
            Self::Cake(kind, rate) => {
                let bytes_per_s = rate.bits_per_second() / 8;
                (*kind, attribute(CAKE_RATE, &bytes_per_s.to_ne_bytes()))
            }
            Self::Bucket(bucket) => ("tbf", bucket.options()),
            Self::Fifo(kind, limit) => (*kind, limit.to_ne_bytes().to_vec()),
        };
        let (handle, parent) = match self {
            Self::Fifo(..) => (number(CHILD_HANDLE), number(HANDLE) + 1),
            Self::Cake(..) | Self::Bucket(_) => (number(HANDLE), u32::MAX),
        };
        // struct tcmsg: family, device, handle, parent, information.
        let mut body = vec![0; 4];
        for word in [index, handle, parent, 0] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(attribute(KIND, &[kind.as_bytes(), &[0]].concat()));
        body.extend(attribute(OPTIONS, &options));
        // struct nlmsghdr: length, type, flags, sequence, sender.
        let mut message = low_32(16 + body.len() as u64).to_vec();
        message.extend(NEW_QDISC.to_ne_bytes());
        message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        message
    }
}

/// Returns the error number of the kernel's answer, 0 for success; `None` for other messages.
pub fn error_number(answer: &[u8]) -> Option<i32> {
    const ERROR: u16 = 2;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let number = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == ERROR).then(|| number.saturating_neg())
}

/// Returns the rate that was requested for a queue that `tc` printed; `None` if it limits none.
pub fn requested(root: &Qdisc, overhead: Overhead) -> Option<Rate> {
    let bits = root.limit()?.bits_per_second();
    let is_less = root.kind == "tbf" && overhead.framing == Framing::Ptm;
    let bits = if is_less { bits.saturating_mul(65) / 64 } else { bits };
    Some(Rate::from_bits_per_second(bits))
}

/// Returns the number of a queue that `tc` names `756c:`.
fn number(handle: &str) -> u32 {
    u32::from_str_radix(handle.trim_end_matches(':'), 16).unwrap_or(0) << 16
}

/// Returns an attribute, padded to four bytes.
fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = low_16(4 + payload.len() as u32).to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn low_16(value: u32) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes()
}

fn low_32(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_ne_bytes()
}
