//! The present state of a device and its queues.

use nix::errno::Errno;
use nix::net::if_::{if_nameindex, if_nametoindex};
use underload_aqm::config::closest;
use underload_aqm::rate::Rate;
use underload_tc::Command;
use underload_tc::printed::{
    Device, Filter, PrintedError, Reading, parse_devices, parse_filters, parse_readings,
};
use underload_tc::run::ToolError;

use crate::plan::{Remains, ifb_name};

/// Why the state of a device is unknown.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("--dev: no device `{name}`; this machine has {known}{suggestion}")]
    NoDevice { name: String, known: String, suggestion: String },
    #[error("looking up the network devices")]
    Devices(#[source] Errno),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    Printed(#[from] PrintedError),
}

impl SnapshotError {
    /// Whether the machine has no device of the name.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NoDevice { .. })
    }
}

/// A device, its queues and its filters of received packets.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub device: Device,
    /// Names of all devices.
    pub devices: Vec<String>,
    /// The queues, root first.
    pub queues: Vec<Reading>,
    /// The kind of the ingress queue, if the device has one.
    pub ingress: Option<String>,
    pub filters: Vec<Filter>,
}

impl Snapshot {
    /// Looks at a device.
    ///
    /// # Errors
    /// Returns [`SnapshotError::NoDevice`] if it does not exist.
    pub fn take(name: &str) -> Result<Self, SnapshotError> {
        let devices = names()?;
        if if_nametoindex(name).is_err() {
            return Err(no_device(name, &devices));
        }
        // Of this device alone: undoing must not depend on what `ip` prints of others.
        let shown = Command::ip("-j -d link show dev").with([name]).run()?;
        let Some(device) = parse_devices(&shown)?.into_iter().next() else {
            return Err(no_device(name, &devices));
        };
        let device = Device { name: name.to_owned(), ..device };
        let text = Command::tc("-j -s -d qdisc show dev").with([name]).run()?;
        let (ingress, queues): (Vec<_>, Vec<_>) =
            parse_readings(&text)?.into_iter().partition(|reading| reading.qdisc.is_ingress());
        let ingress = ingress.into_iter().next().map(|reading| reading.qdisc.kind);
        let filters = match ingress {
            Some(_) => {
                let show = Command::tc("-j filter show dev").with([name, "ingress"]);
                parse_filters(&show.run()?)?
            }
            None => Vec::new(),
        };
        Ok(Self { device, devices, queues, ingress, filters })
    }

    /// Returns the parts of our shaping that exist.
    pub fn remains(&self) -> Remains {
        let root = self.queues.first().map(|root| root.qdisc.handle.as_str());
        let ifb = ifb_name(self.device.index);
        Remains::new(root, self.ingress.as_deref(), &self.filters, &ifb, &self.devices)
    }

    /// Returns the rate of the device itself, if the kernel knows it.
    pub fn port_rate(&self) -> Option<Rate> {
        let folder = format!("/sys/class/net/{}", self.device.name);
        let number = |file: &str| -> Option<u64> {
            std::fs::read_to_string(format!("{folder}/{file}")).ok()?.trim().parse().ok()
        };
        // The directory may show the devices of another network.
        let is_same = number("ifindex") == Some(self.device.index);
        let megabits = number("speed").filter(|speed| is_same && *speed > 0)?;
        Some(Rate::from_bits_per_second(megabits.saturating_mul(1_000_000)))
    }
}

/// Returns the names of all devices of this network.
fn names() -> Result<Vec<String>, SnapshotError> {
    let all = if_nameindex().map_err(SnapshotError::Devices)?;
    Ok(all.iter().map(|device| device.name().to_string_lossy().into_owned()).collect())
}

/// Returns the present name of the device with this number; `None` if it is gone.
///
/// # Errors
/// Returns [`SnapshotError::Devices`] if the kernel does not answer.
pub fn name_of(index: u64) -> Result<Option<String>, SnapshotError> {
    let all = if_nameindex().map_err(SnapshotError::Devices)?;
    let found = all.iter().find(|device| u64::from(device.index()) == index);
    Ok(found.map(|device| device.name().to_string_lossy().into_owned()))
}

fn no_device(name: &str, devices: &[String]) -> SnapshotError {
    let others = devices.iter().filter(|device| *device != "lo").map(String::as_str);
    let others: Vec<&str> = others.collect();
    let suggestion = closest(name, others.iter().copied());
    let suggestion = suggestion.map(|meant| format!("; did you mean {meant}?"));
    let known = if others.is_empty() { "only lo".to_owned() } else { others.join(", ") };
    let suggestion = suggestion.unwrap_or_default();
    SnapshotError::NoDevice { name: name.to_owned(), known, suggestion }
}
