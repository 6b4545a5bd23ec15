//! Shapes a device of this network by a gateway: its packets go through TUN devices, and back.
//!
//! Two TCX programs for each direction (`machine::program`) lead packets out of the device's own
//! path and back into it, with the Ethernet addresses that they had: routes, firewall, translation
//! of addresses and the device's own queue see what they saw before. When this process ends,
//! however it does, the kernel removes programs and TUN devices, and the device works unshaped.

use std::fs::File;
use std::io::{self, Read as _};

use nix::net::if_::if_nametoindex;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::time::Span;
use underload_record::schema::Direction;

use crate::gateway::{Gateway, GatewayConfig, GatewayError, LaneConfig, Offload, Reading};
use crate::machine::{Clock, Detour, Hook, NamespaceError, Network, Route, Tun, TunError};

/// The device to shape, its queues, and the TUN devices to create.
#[derive(Debug, Clone)]
pub struct ShaperConfig {
    /// The kernel's number of the device.
    pub device: u32,
    /// Whether the device's packets begin with an Ethernet header; if not, with that of IP.
    pub has_ethernet: bool,
    /// Names of the TUN devices: for packets that the device sends, and that it receives.
    pub names: [String; 2],
    /// Queue and link of what the device sends; `None` leaves that direction alone.
    pub up: Option<LaneConfig>,
    /// Queue and link of what the device receives; `None` leaves that direction alone.
    pub down: Option<LaneConfig>,
}

/// Why a device is not shaped.
#[derive(Debug, thiserror::Error)]
pub enum ShaperError {
    #[error(transparent)]
    Tun(#[from] TunError),
    #[error(transparent)]
    Network(#[from] NamespaceError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error(
        "this kernel ({release}) has no TCX links, which lead packets to this process: expected \
         Linux 6.6 or newer with CONFIG_BPF_SYSCALL and CONFIG_NET_XGRESS, such as Debian 13's; \
         `--engine kernel` works without them"
    )]
    NoLinks { release: String, source: io::Error },
    #[error("not allowed to load BPF programs: run as root, outside of a container")]
    Forbidden(#[source] io::Error),
    #[error("random numbers cannot be read from /dev/urandom")]
    Random(#[source] io::Error),
    #[error("the programs that lead packets to this process cannot be attached")]
    Programs(#[source] io::Error),
}

/// A device that is shaped until this value is dropped.
#[derive(Debug)]
pub struct Shaper {
    // The first field is dropped first: packets no longer come before the gateway ends.
    _detours: Vec<Detour>,
    gateway: Gateway,
}

impl Shaper {
    /// Shapes a device of the network that this process is in.
    ///
    /// # Errors
    /// Returns [`ShaperError`]; the device is as before.
    pub fn start(config: &ShaperConfig) -> Result<Self, ShaperError> {
        let network = Network::current("present")?;
        let [up, down] = config.names.each_ref().map(|name| tun(&network, name));
        let (up, down) = (up?, down?);
        let [high, low] = random().map_err(ShaperError::Random)?;
        let lane = |lane: &Option<LaneConfig>| lane.clone().map_or_else(unused_lane, Ok);
        let gateway = GatewayConfig {
            seed: u64::from(high) << 32 | u64::from(low),
            offload: Offload::On,
            // As the kernel's queues, which run before every process.
            realtime: true,
            spin: Span::ZERO,
            keeps_series: false,
            sample_interval: Span::from_millis(100),
            buffer_limit_bytes: BUFFERS_MAX_BYTES,
            ..GatewayConfig::new(lane(&config.up)?, lane(&config.down)?)
        };
        let gateway = Gateway::start(gateway, (&up, &down), Clock::start())?;
        let number =
            |tun: &Tun| if_nametoindex(tun.name()).map_err(|e| ShaperError::Programs(e.into()));
        let (up, down) = (number(&up)?, number(&down)?);
        let mut detours = Vec::new();
        for (is_shaped, hook, [away, back]) in [
            (config.up.is_some(), Hook::Egress, [up, down]),
            (config.down.is_some(), Hook::Ingress, [down, up]),
        ] {
            // Comparisons of BPF extend a number's sign.
            let mark = high & i32::MAX as u32 | 1;
            let ShaperConfig { device, has_ethernet, .. } = *config;
            let route = Route { device, hook, has_ethernet, away, back, mark };
            if is_shaped {
                detours.push(Detour::start(&route).map_err(refused)?);
            }
        }
        Ok(Self { _detours: detours, gateway })
    }

    /// Returns the present counters of a direction.
    pub fn read(&self, direction: Direction) -> Reading {
        self.gateway.read(direction)
    }

    /// Whether packets are carried. If not, drop this value, so that they pass unshaped.
    pub fn is_running(&self) -> bool {
        self.gateway.is_running()
    }
}

/// Memory for the packets of a direction: at 100 Mbit/s, five seconds.
const BUFFERS_MAX_BYTES: usize = 64 << 20;

/// Creates a TUN device without an address, which sends nothing of its own.
fn tun(network: &Network, name: &str) -> Result<Tun, ShaperError> {
    let tun = Tun::create(network, name)?;
    // Fails in a kernel without IPv6.
    let _ = network.set_parameter(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1");
    network.configure(&format!("link set dev {name} up\n"))?;
    Ok(tun)
}

/// Returns the lane of a direction that is not shaped, which no packet reaches.
fn unused_lane() -> Result<LaneConfig, ShaperError> {
    let bug = |error| ShaperError::Programs(io::Error::other(error));
    let link = LinkSetup::parse("unlimited").map_err(bug)?;
    let queue = QueueSetup::parse("fifo", &link.facts()).map_err(bug)?;
    Ok(LaneConfig { link, queue })
}

fn random() -> io::Result<[u32; 2]> {
    let mut bytes = [[0; 4]; 2];
    File::open("/dev/urandom")?.read_exact(bytes.as_flattened_mut())?;
    Ok(bytes.map(u32::from_ne_bytes))
}

/// Returns what a refusal of the kernel means.
fn refused(source: io::Error) -> ShaperError {
    match source.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            ShaperError::NoLinks { release: release.trim().to_owned(), source }
        }
        io::ErrorKind::PermissionDenied => ShaperError::Forbidden(source),
        _ => ShaperError::Programs(source),
    }
}
