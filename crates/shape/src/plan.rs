//! The commands that shape a device, and those that undo it.
//!
//! After each command the device works: the kernel replaces a queue in one step, packets are
//! redirected to the device behind which they are shaped only when it is ready, and undoing ends
//! the redirection first.

use std::fmt::Write as _;

use underload_aqm::rate::Rate;

use crate::Command;
use crate::judge::{CHILD_HANDLE, HANDLE};
use crate::record::Record;
use crate::request::{Framing, Request, RequestError};
use crate::restore::{self, Unrestorable};
use crate::tree::{Device, Filter};

/// Preference of our filter: after those of everybody else.
const PREFERENCE: u64 = 49_152;
/// Bytes of the header of a device whose packets begin with one.
const ETHERNET_BYTES: u32 = 14;
/// Bursts that the rate limit lets pass at once last 1 ms, which spares the processor.
const BURSTS_PER_SECOND: u64 = 1_000;
/// The least burst: two packets of 1514 bytes.
const BURST_MIN_BYTES: u64 = 3_028;

/// Returns the name of the device behind which `index` receives, such as `ifb-u2`.
pub fn ifb_name(index: u64) -> String {
    format!("ifb-u{index}")
}

/// Returns the commands that shape `device` as requested, in their order.
///
/// # Errors
/// Returns the value of the request that Linux does not have.
pub fn shape(
    request: &Request,
    device: &Device,
    has_ingress: bool,
) -> Result<Vec<Command>, RequestError> {
    let mut commands = Vec::new();
    if let Some(rate) = request.down {
        let (name, ifb) = (&device.name, ifb_name(device.index));
        commands.push(Command::ip(&format!("link add name {ifb} type ifb")));
        commands.extend(root("replace", request, "down", rate, &ifb, device)?);
        commands.push(Command::ip(&format!("link set dev {ifb} up")));
        if !has_ingress {
            commands.push(Command::tc(&format!("qdisc add dev {name} clsact")));
        }
        commands.push(Command::tc(&format!(
            "filter add dev {name} ingress protocol all pref {PREFERENCE} u32 match u32 0 0 action \
             mirred egress redirect dev {ifb}"
        )));
    }
    if let Some(rate) = request.up {
        commands.extend(root("replace", request, "up", rate, &device.name, device)?);
    }
    Ok(commands)
}

/// Returns the commands that change the rates of a shaped device from `before` to those of
/// `request`. Packets that wait stay, and no moment is unshaped.
///
/// # Errors
/// Returns the value of the request that Linux does not have.
pub fn change(
    before: &Request,
    request: &Request,
    device: &Device,
) -> Result<Vec<Command>, RequestError> {
    let ifb = ifb_name(device.index);
    let ways =
        [("up", before.up, request.up, &device.name), ("down", before.down, request.down, &ifb)];
    let mut commands = Vec::new();
    for (way, old, new, place) in ways {
        let Some(rate) = new.filter(|_| new != old) else { continue };
        let mut changes = root("change", request, way, rate, place, device)?;
        // `tbf` hands its own limit to a fifo below it, and leaves other queues alone.
        if request.queue.name != "fifo" {
            changes.truncate(1);
        }
        commands.extend(changes);
    }
    Ok(commands)
}

/// Returns the commands that put or change the queue of a direction at the root of `place`.
fn root(
    verb: &str,
    request: &Request,
    way: &str,
    rate: Rate,
    place: &str,
    device: &Device,
) -> Result<Vec<Command>, RequestError> {
    let queue = request.queue_words(way, rate)?;
    let at_root = Command::tc(&format!("qdisc {verb} dev {place} root handle {HANDLE}"));
    if request.shapes_itself() {
        return Ok(vec![at_root.with(queue)]);
    }
    let below = format!("qdisc {verb} dev {place} parent {HANDLE}1 handle {CHILD_HANDLE}");
    Ok(vec![at_root.with(limiter(request, rate, device)), Command::tc(&below).with(queue)])
}

/// Returns the arguments of the token bucket that limits the rate above a queue.
fn limiter(request: &Request, rate: Rate, device: &Device) -> Vec<String> {
    let overhead = request.overhead;
    // 64 of 65 bytes are left, which `tbf` cannot say otherwise.
    let bits = match overhead.framing {
        Framing::Ptm => rate.bits_per_second() / 65 * 64,
        Framing::None | Framing::Atm => rate.bits_per_second(),
    };
    let burst = (bits / 8 / BURSTS_PER_SECOND).max(BURST_MIN_BYTES);
    let mut text = format!("tbf rate {bits}bit burst {burst}b latency 100ms");
    if overhead.is_some() {
        // `tbf` counts the header of the device, the line's overhead begins at the IP packet.
        let counted = if device.link_type == "ether" { ETHERNET_BYTES } else { 0 };
        let _ = write!(text, " overhead {}", overhead.bytes.saturating_sub(counted));
        if overhead.minimum_bytes > 0 {
            let _ = write!(text, " mpu {}", overhead.minimum_bytes);
        }
        if overhead.framing == Framing::Atm {
            text += " linklayer atm";
        }
    }
    text.split(' ').map(str::to_owned).collect()
}

/// The parts of a change that a device has now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Remains {
    /// Our queue is at the root of the device.
    pub root: bool,
    /// A filter redirects received packets to our device.
    pub redirect: bool,
    /// The ingress queue is there, and no filter of others uses it.
    pub idle_ingress: bool,
    /// The intermediate device that shapes received packets exists.
    pub ifb: bool,
}

impl Remains {
    /// Looks for the traces of our shaping.
    pub fn new(
        root_handle: Option<&str>,
        ingress: Option<&str>,
        filters: &[Filter],
        ifb: &str,
        devices: &[String],
    ) -> Self {
        let is_ours = |filter: &Filter| is_our_filter(filter, ifb);
        Self {
            root: root_handle == Some(HANDLE),
            redirect: filters.iter().any(is_ours),
            idle_ingress: ingress.is_some() && filters.iter().all(is_ours),
            ifb: devices.iter().any(|device| device == ifb),
        }
    }

    /// Whether packets pass through anything of ours.
    pub fn is_any(&self) -> bool {
        self.root || self.redirect || self.ifb
    }
}

fn is_our_filter(filter: &Filter, ifb: &str) -> bool {
    // A removed device is shown as `*`.
    let is_gone = filter.redirects_to.as_deref() == Some("*");
    filter.redirects_to.as_deref() == Some(ifb) || (is_gone && filter.preference == PREFERENCE)
}

/// Returns the commands that undo what remains of a change of `device`. The queue before is that of
/// the record; without a record the kernel's default takes its place.
///
/// # Errors
/// Returns the recorded queue that cannot be restored, which [`crate::judge`] would have refused.
pub fn undo(
    device: &str,
    ifb: &str,
    record: Option<&Record>,
    remains: &Remains,
) -> Result<Vec<Command>, Unrestorable> {
    let mut commands = Vec::new();
    if remains.redirect {
        commands.push(Command::tc(&format!(
            "filter del dev {device} ingress protocol all pref {PREFERENCE}"
        )));
    }
    if record.is_some_and(|record| record.adds_ingress) && remains.idle_ingress {
        commands.push(Command::tc(&format!("qdisc del dev {device} clsact")));
    }
    if remains.ifb {
        commands.push(Command::ip(&format!("link del dev {ifb}")));
    }
    if remains.root {
        let before = record.and_then(|record| record.before.as_deref());
        commands.extend(restore::commands(device, before.unwrap_or_default())?);
    }
    Ok(commands)
}
