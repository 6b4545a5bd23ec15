//! The engine that is this program: a gateway with any queue of underload.
//!
//! The watcher's process shapes ([`crate::request::Engine::Own`]). Other processes know it by the
//! names of its TUN devices, and read its counts from a file.

use serde::{Deserialize, Serialize};

use crate::rate::ETHERNET_BYTES;
use crate::request::RequestError;
use crate::tree::{Class, Counts, Device, Qdisc, Reading};

/// Returns the names of the TUN devices for packets that the device sends, and that it receives.
/// They exist exactly as long as the process that shapes.
pub fn tun_names(index: u64) -> [String; 2] {
    [format!("ul-up{index}"), format!("ul-dn{index}")]
}

/// Returns the bytes of the link layer before each IP packet of a device.
///
/// # Errors
/// Returns [`RequestError::LinkType`] if the program does not know them.
pub fn header_bytes(device: &Device) -> Result<u32, RequestError> {
    match device.link_type.as_str() {
        "ether" => Ok(ETHERNET_BYTES),
        "none" | "ppp" | "rawip" => Ok(0),
        other => {
            Err(RequestError::LinkType { device: device.name.clone(), link_type: other.to_owned() })
        }
    }
}

/// Counts of the process that shapes, which it writes beside its record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCounts {
    pub up: OwnWay,
    pub down: OwnWay,
}

/// Counts of a direction since it is shaped, and its present backlog.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnWay {
    pub counts: Counts,
    /// Packets that came as L4S (ECT(1) or CE), and the others; empty without L4S.
    pub classes: Vec<Class>,
}

impl OwnWay {
    /// Returns the counts as those of a queue of the kernel.
    pub(crate) fn into_reading(self, queue: &str) -> Reading {
        let qdisc = Qdisc {
            kind: queue.to_owned(),
            handle: String::new(),
            parent: None,
            options: serde_json::Map::new(),
            is_unknown: false,
        };
        Reading { qdisc, counts: self.counts, classes: self.classes }
    }
}
