//! A client and a server with a wire between them, on one machine.
//!
//! ```text
//!   client namespace            this process              server namespace
//!   10.203.0.1, fd75:6c::1                                10.203.0.2, fd75:6c::2
//!   programs, kernel TCP  ── ul0 ── Gateway ── ul0 ──  kernel TCP, programs
//! ```
//!
//! The gateway is this process, so that the bottleneck is never in a sender's own egress queue,
//! where TCP small queues would hold the sender back before the queue fills.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::namespace::{Namespace, NamespaceError, Network};
use super::tun::{Tun, TunError};

pub const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 203, 0, 1);
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 203, 0, 2);
pub const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd75, 0x6c, 0, 0, 0, 0, 0, 1);
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd75, 0x6c, 0, 0, 0, 0, 0, 2);

/// The device of the client and of the server.
pub(crate) const DEVICE: &str = "ul0";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabConfig {
    /// Largest IP packet, bytes: 1280 to 9000.
    pub mtu: u16,
    /// Congestion control of every TCP connection that does not choose its own; `None` for the
    /// machine's default.
    pub congestion_control: Option<String>,
    /// Whether TCP requests ECN.
    pub ecn: bool,
    /// Frames that the kernel queues for the gateway; more are dropped and counted.
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

/// Why a lab could not be created.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("lab: {key} is {value}: accepted is {accepted}")]
    Config { key: &'static str, value: String, accepted: String },
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Tun(#[from] TunError),
}

/// A client and a server, without the path between them.
#[derive(Debug)]
pub struct Ends {
    client: Namespace,
    server: Namespace,
}

impl Ends {
    /// Creates both namespaces, without devices.
    pub(crate) fn create() -> Result<Self, NamespaceError> {
        Ok(Self { client: Namespace::create("client")?, server: Namespace::create("server")? })
    }

    /// The namespace where load and probes start.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// Sets up the devices, which exist, and their addresses.
    pub(crate) fn apply(&self, config: &LabConfig) -> Result<(), LabError> {
        config.apply(&self.client, CLIENT_V4, CLIENT_V6)?;
        config.apply(&self.server, SERVER_V4, SERVER_V6)
    }

    /// Counts frames that the kernel dropped at the devices because the gateway did not read them
    /// in time or was not running, and frames from the gateway that it refused.
    pub fn kernel_drops(&self) -> Result<u64, NamespaceError> {
        let client = self.client.kernel_drops(DEVICE)?.unwrap_or(0);
        let server = self.server.kernel_drops(DEVICE)?.unwrap_or(0);
        Ok(client + server)
    }
}

/// A client and a server that reach each other only through a running
/// [`Gateway`](crate::gateway::Gateway). All of it ends when it is dropped or this process ends.
#[derive(Debug)]
pub struct Lab {
    ends: Arc<Ends>,
    client_device: Tun,
    server_device: Tun,
}

impl Lab {
    /// Creates both namespaces and their devices. Needs [`super::privilege::enter`].
    pub fn create(config: &LabConfig) -> Result<Self, LabError> {
        config.check()?;
        let ends = Ends::create()?;
        let client_device = Tun::create(ends.client(), DEVICE)?;
        let server_device = Tun::create(ends.server(), DEVICE)?;
        ends.apply(config)?;
        Ok(Self { ends: Arc::new(ends), client_device, server_device })
    }

    /// The client and the server, which exist at least as long as the value that is returned.
    pub fn ends(&self) -> Arc<Ends> {
        Arc::clone(&self.ends)
    }

    /// The namespace where load and probes start.
    pub fn client(&self) -> &Namespace {
        self.ends.client()
    }

    pub fn server(&self) -> &Namespace {
        self.ends.server()
    }

    /// As [`Ends::kernel_drops`].
    pub fn kernel_drops(&self) -> Result<u64, NamespaceError> {
        self.ends.kernel_drops()
    }

    /// The client's and the server's end of the wire.
    pub fn devices(&self) -> (&Tun, &Tun) {
        (&self.client_device, &self.server_device)
    }
}

impl LabConfig {
    pub(crate) fn check(&self) -> Result<(), LabError> {
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
        // A trial must not profit from the path metrics of an earlier one.
        network.set_parameter("net/ipv4/tcp_no_metrics_save", "1")?;
        // No packets besides the trial's: no router solicitations, no link-local address.
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
