//! Two hosts and a wire between them, on one machine.
//!
//! ```text
//!   client namespace            this process              server namespace
//!   10.203.0.1, fd75:6c::1                                10.203.0.2, fd75:6c::2
//!   programs, kernel TCP  ── ul0 ── Gateway ── ul0 ──  kernel TCP, programs
//! ```
//!
//! The gateway is this process, so the bottleneck never sits in a sender's own egress queue, where
//! the kernel would hold the sender back before the queue fills (TCP small queues).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::namespace::{Namespace, NamespaceError, Network};
use super::tun::{Tun, TunError};

/// IPv4 address of the client.
pub const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 203, 0, 1);
/// IPv4 address of the server.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 203, 0, 2);
/// IPv6 address of the client.
pub const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd75, 0x6c, 0, 0, 0, 0, 0, 1);
/// IPv6 address of the server.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd75, 0x6c, 0, 0, 0, 0, 0, 2);

/// Name of the device in both namespaces.
const DEVICE: &str = "ul0";

/// What a lab may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabConfig {
    /// Largest IP packet, bytes: 1280 to 9000.
    pub mtu: u16,
    /// Congestion control of every TCP connection that does not choose its own. The machine's
    /// default may be anything, so name it.
    pub congestion_control: Option<String>,
    /// Whether TCP asks for ECN.
    pub ecn: bool,
    /// Frames that the kernel keeps for us before it drops some (and we count them).
    pub device_queue_frames: u32,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            congestion_control: Some("cubic".to_owned()),
            ecn: false,
            device_queue_frames: 10_000,
        }
    }
}

/// Why a lab could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A value of the configuration is out of range.
    #[error("lab: {key} is {value}: accepted is {accepted}")]
    Config {
        /// The field of [`LabConfig`].
        key: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        accepted: String,
    },
    /// A namespace could not be made or configured.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A device could not be made.
    #[error(transparent)]
    Tun(#[from] TunError),
}

/// A client and a server that can reach each other only through a running
/// [`Gateway`](crate::gateway::Gateway). Everything in it ends when it is dropped or when this
/// process ends.
#[derive(Debug)]
pub struct Lab {
    client: Namespace,
    server: Namespace,
    client_device: Tun,
    server_device: Tun,
}

impl Lab {
    /// Sets both namespaces up. Needs what [`super::privilege::enter`] gives.
    ///
    /// # Errors
    /// Where the configuration is out of range, or the machine refuses a step.
    pub fn create(config: &LabConfig) -> Result<Self, LabError> {
        config.check()?;
        let client = Namespace::create("client")?;
        let server = Namespace::create("server")?;
        let client_device = Tun::create(&client, DEVICE)?;
        let server_device = Tun::create(&server, DEVICE)?;
        config.apply(&client, CLIENT_V4, CLIENT_V6)?;
        config.apply(&server, SERVER_V4, SERVER_V6)?;
        Ok(Self { client, server, client_device, server_device })
    }

    /// Where load and probes start.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Where they end.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The two ends of the wire: of the client, of the server.
    pub fn devices(&self) -> (&Tun, &Tun) {
        (&self.client_device, &self.server_device)
    }

    /// Frames that the kernel dropped at the devices because the gateway did not fetch them in
    /// time (or was not running), and frames from the gateway that it refused.
    ///
    /// # Errors
    /// Where a namespace cannot be entered.
    pub fn kernel_drops(&self) -> Result<u64, NamespaceError> {
        let client = self.client.kernel_drops(DEVICE)?.unwrap_or(0);
        let server = self.server.kernel_drops(DEVICE)?.unwrap_or(0);
        Ok(client + server)
    }
}

impl LabConfig {
    fn check(&self) -> Result<(), LabError> {
        let refuse = |key, value, accepted: &str| {
            Err(LabError::Config { key, value, accepted: accepted.to_owned() })
        };
        if !(1280..=9000).contains(&self.mtu) {
            return refuse("mtu", self.mtu.to_string(), "1280 to 9000 bytes");
        }
        if !(10..=1_000_000).contains(&self.device_queue_frames) {
            let value = self.device_queue_frames.to_string();
            return refuse("device_queue_frames", value, "10 to 1000000");
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match &self.congestion_control {
            Some(name) if name.is_empty() || !name.chars().all(is_word) => {
                refuse("congestion_control", name.clone(), "a name such as cubic or bbr")
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, network: &Network, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<(), LabError> {
        let (mtu, frames) = (self.mtu, self.device_queue_frames);
        let control = match &self.congestion_control {
            Some(name) => format!("congctl {name}"),
            None => String::new(),
        };
        network.set_parameter("net/ipv4/tcp_ecn", if self.ecn { "1" } else { "2" })?;
        // What one trial learned of the path must not speed up the next.
        network.set_parameter("net/ipv4/tcp_no_metrics_save", "1")?;
        // No packets but those of the trial: no router solicitations, no link-local address.
        network.set_parameter("net/ipv6/conf/ul0/router_solicitations", "0")?;
        let outcome = network.configure(&format!(
            "link set {DEVICE} mtu {mtu} txqueuelen {frames} addrgenmode none\n\
             link set {DEVICE} up\n\
             addr add {v4}/24 dev {DEVICE} noprefixroute\n\
             addr add {v6}/64 dev {DEVICE} nodad noprefixroute\n\
             route add 10.203.0.0/24 dev {DEVICE} src {v4} {control}\n\
             route add fd75:6c::/64 dev {DEVICE} src {v6} {control}\n"
        ));
        match (outcome, &self.congestion_control) {
            (Err(NamespaceError::Command { message, .. }), Some(name))
                if message.contains("congestion") =>
            {
                Err(LabError::Config {
                    key: "congestion_control",
                    value: name.clone(),
                    accepted: available_congestion_controls(network)?,
                })
            }
            (outcome, _) => outcome.map_err(Into::into),
        }
    }
}

fn available_congestion_controls(network: &Network) -> Result<String, NamespaceError> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = network.enter(|| std::fs::read_to_string(path))?.unwrap_or_default();
    Ok(format!("one of this kernel's: {}", names.trim()))
}
