//! The commands that shape a device, and those that undo it.
//!
//! After each command the device works: the kernel replaces a queue in one step, packets are
//! redirected to the device behind which they are shaped only when it is ready, and undoing ends
//! the redirection first.

use underload_aqm::rate::Rate;
use underload_record::schema::{Direction, PerDirection};
use underload_tc::Command;
use underload_tc::printed::{Device, Filter};
use underload_tc::restore::{self, Unrestorable};

use crate::judge::{CHILD_HANDLE, HANDLE};
use crate::rate::{Bucket, Limit};
use crate::record::Record;
use crate::request::{Request, RequestError};

/// Preference of our filter: after the filters of all other programs.
const PREFERENCE: u64 = 49_152;

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
    if let Some(rate) = request.rates.down {
        let parts = request.parts(Direction::Down, device)?;
        let (name, ifb) = (&device.name, ifb_name(device.index));
        let queues = parts.map_or_else(String::new, |count| format!(" numtxqueues {count}"));
        commands.push(Command::ip(&format!("link add name {ifb}{queues} type ifb")));
        commands.extend(root(request, Direction::Down, rate, &ifb, device)?);
        commands.push(Command::ip(&format!("link set dev {ifb} up")));
        if !has_ingress {
            commands.push(Command::tc(&format!("qdisc add dev {name} clsact")));
        }
        commands.push(Command::tc(&format!(
            "filter add dev {name} ingress protocol all pref {PREFERENCE} u32 match u32 0 0 action \
             mirred egress redirect dev {ifb}"
        )));
    }
    if let Some(rate) = request.rates.up {
        request.parts(Direction::Up, device)?;
        commands.extend(root(request, Direction::Up, rate, &device.name, device)?);
    }
    Ok(commands)
}

/// Returns the new limits by device, to change the rates of a shaped device from `before` to
/// `request`. Stored packets are kept, and the device is shaped at every moment.
///
/// # Errors
/// Returns the value of the request that Linux does not have.
pub fn change(
    before: &Request,
    request: &Request,
    device: &Device,
) -> Result<Vec<(String, Limit)>, RequestError> {
    let places = PerDirection::new(device.name.clone(), ifb_name(device.index));
    let mut changes = Vec::new();
    for (direction, place) in places.iter() {
        let new = request.rates[direction].filter(|rate| Some(*rate) != before.rates[direction]);
        let Some(rate) = new else { continue };
        let Some(kind) = request.cake(direction) else {
            changes.push((place.clone(), Limit::Bucket(Bucket::new(request, rate, device))));
            // A change of `tbf` overwrites the limit of a fifo below it, which is set again; other
            // queues keep their limits.
            let fifo = Limit::fifo(&request.queue_words(direction, rate)?);
            changes.extend(fifo.map(|limit| (place.clone(), limit)));
            continue;
        };
        changes.push((place.clone(), Limit::Cake(kind, rate)));
    }
    Ok(changes)
}

/// Returns the commands that put the queue of a direction at the root of `place`.
fn root(
    request: &Request,
    direction: Direction,
    rate: Rate,
    place: &str,
    device: &Device,
) -> Result<Vec<Command>, RequestError> {
    let at_root = Command::tc(&format!("qdisc replace dev {place} root handle {HANDLE}"));
    if request.cake(direction).is_some() {
        return Ok(vec![at_root.with(request.queue_words(direction, rate)?)]);
    }
    let limiter = Bucket::new(request, rate, device).words();
    let below = format!("qdisc replace dev {place} parent {HANDLE}1 handle {CHILD_HANDLE}");
    let below = Command::tc(&below).with(request.queue_words(direction, rate)?);
    Ok(vec![at_root.with(limiter), below])
}

/// The parts of a change that a device has now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Remains {
    /// Our queue is at the root of the device.
    pub root: bool,
    /// A filter redirects received packets to our device.
    pub redirect: bool,
    /// The ingress queue exists, and no filter of another program uses it.
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

    /// Whether packets pass through a queue or filter of ours.
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
