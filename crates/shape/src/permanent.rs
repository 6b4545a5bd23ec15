//! Files that shape a device after each start of the machine.

use underload_aqm::rate::Rate;
use underload_tc::Command;
use underload_tc::printed::Device;

use crate::plan::{self, ifb_name};
use crate::request::{Framing, Request, RequestError};

/// The form of the configuration that shapes the device at each boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A shell script of `tc` and `ip`, without underload.
    Tc,
    /// A systemd service that runs these commands, without underload.
    Systemd,
    /// A `[CAKE]` section of systemd-networkd.
    Networkd,
    /// A queue of OpenWrt's sqm-scripts.
    OpenWrt,
}

/// Why a format cannot express a request.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{format} cannot express {what}; use `systemd` or `tc`")]
    Lacks { format: &'static str, what: String },
}

impl Format {
    /// The formats with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("systemd", Self::Systemd),
        ("networkd", Self::Networkd),
        ("openwrt", Self::OpenWrt),
        ("tc", Self::Tc),
    ];

    /// Parses the name of a format.
    ///
    /// # Errors
    /// Returns what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, format)| *format)
            .ok_or_else(|| format!("expected {}", Self::ALL.map(|(name, _)| name).join(", ")))
    }

    /// Returns the file that shapes a device as requested. Its first lines say where it belongs.
    ///
    /// # Errors
    /// Returns what the format cannot express.
    pub fn write(self, request: &Request, device: &Device) -> Result<String, FormatError> {
        match self {
            Self::Tc => Ok(script(request, device)?),
            Self::Systemd => Ok(unit(request, device)?),
            Self::Networkd => networkd(request),
            Self::OpenWrt => openwrt(request),
        }
    }
}

/// Returns the commands that shape the device, whatever it has now, and those that undo them.
fn commands(request: &Request, device: &Device) -> Result<[Vec<Command>; 2], RequestError> {
    let (name, ifb) = (&device.name, ifb_name(device.index));
    let start = plan::shape(request, device, false)?;
    let mut stop = Vec::new();
    if request.rates.down.is_some() {
        stop.push(Command::tc(&format!("qdisc del dev {name} clsact")));
        stop.push(Command::ip(&format!("link del dev {ifb}")));
    }
    if request.rates.up.is_some() {
        stop.push(Command::tc(&format!("qdisc del dev {name} root")));
    }
    Ok([start, stop])
}

fn script(request: &Request, device: &Device) -> Result<String, RequestError> {
    let [start, stop] = commands(request, device)?;
    let lines = |commands: &[Command], end: &str| {
        commands.iter().map(|command| format!("  {command}{end}\n")).collect::<Vec<_>>().concat()
    };
    let (start, stop) = (lines(&start, ""), lines(&stop, " 2>/dev/null"));
    Ok(format!(
        "#!/bin/sh\n# Shapes {}: run it as root at each start; `stop` undoes it.\n\
         stop() {{\n{stop}  true\n}}\nstart() {{\n  stop\n  set -e\n{start}}}\n\"${{1:-start}}\"\n",
        device.name
    ))
}

fn unit(request: &Request, device: &Device) -> Result<String, RequestError> {
    let [start, stop] = commands(request, device)?;
    let lines = |key: &str, commands: &[Command]| {
        commands
            .iter()
            .map(|command| format!("{key}/usr/bin/env {command}\n"))
            .collect::<Vec<_>>()
            .concat()
    };
    // A leading `-` lets a command fail.
    let (clean, start, stop) = (
        lines("ExecStartPre=-", &stop),
        lines("ExecStart=", &start),
        lines("ExecStopPost=-", &stop),
    );
    let name = &device.name;
    let escaped = unit_name(name);
    Ok(format!(
        "# /etc/systemd/system/shape-{name}.service\n\
         # then: systemctl daemon-reload && systemctl enable --now shape-{name}.service\n\
         [Unit]\nDescription=Shaping of {name}\n\
         BindsTo=sys-subsystem-net-devices-{escaped}.device\n\
         After=sys-subsystem-net-devices-{escaped}.device\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n{clean}{start}{stop}\n\
         [Install]\nWantedBy=sys-subsystem-net-devices-{escaped}.device\n"
    ))
}

/// Escapes a name as `systemd-escape` does.
fn unit_name(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => (byte as char).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    name.bytes().map(escape).collect()
}

fn lacks(format: &'static str, what: impl Into<String>) -> FormatError {
    FormatError::Lacks { format, what: what.into() }
}

fn networkd(request: &Request) -> Result<String, FormatError> {
    const FORMAT: &str = "networkd";
    let Some(rate) = request.rates.up else {
        return Err(lacks(FORMAT, "a rate down without one up"));
    };
    if request.rates.down.is_some() {
        return Err(lacks(FORMAT, "--down, because its filters cannot redirect"));
    }
    let queue = plain_cake(FORMAT, request)?;
    let name = &request.device;
    let mut text = format!(
        "# /etc/systemd/network/50-{name}.network.d/shape.conf, beside the file of {name};\n\
         # then: networkctl reload\n[{queue}]\nParent=root\nBandwidth={}\n",
        networkd_rate(rate)
    );
    let overhead = request.overhead;
    if overhead.is_some() {
        let (bytes, minimum) = (overhead.bytes, overhead.minimum_bytes);
        let framing = match overhead.framing {
            Framing::None => "none",
            Framing::Atm => "atm",
            Framing::Ptm => "ptm",
        };
        text = format!(
            "{text}OverheadBytes={bytes}\nMPUBytes={minimum}\nCompensationMode={framing}\n"
        );
    }
    Ok(text)
}

/// Returns a rate as networkd parses it: its suffixes are multiples of 1000.
fn networkd_rate(rate: Rate) -> String {
    match rate.bits_per_second() {
        bits if bits.is_multiple_of(1_000_000) => format!("{}M", bits / 1_000_000),
        bits if bits.is_multiple_of(1_000) => format!("{}K", bits / 1_000),
        bits => bits.to_string(),
    }
}

/// Returns `CAKE` if the request's queue is that with its defaults.
fn plain_cake(format: &'static str, request: &Request) -> Result<&'static str, FormatError> {
    if request.queue.name != "cake" || !request.queue.items.is_empty() {
        return Err(lacks(format, format!("the queue `{}` (only `cake`)", request.queue)));
    }
    Ok("CAKE")
}

fn openwrt(request: &Request) -> Result<String, FormatError> {
    const FORMAT: &str = "openwrt";
    let queue = request.queue.to_string();
    // sqm-scripts uses the kernel's names of queues, except for `cake_mq`.
    let (qdisc, script, parts) = match (request.cake(), queue.as_str()) {
        (Some("cake_mq"), _) if request.queue.items.is_empty() => {
            ("cake", "piece_of_cake.qos", "\toption use_mq '1'\n")
        }
        (_, "cake") => ("cake", "piece_of_cake.qos", ""),
        (_, "fq-codel") => ("fq_codel", "simplest_tbf.qos", ""),
        _ => {
            let what = format!("the queue `{queue}` (only cake, cake_mq and fq-codel)");
            return Err(lacks(FORMAT, what));
        }
    };
    let kilobits = |rate: Option<Rate>| rate.map_or(0, |rate| rate.bits_per_second() / 1_000);
    let overhead = request.overhead;
    let layer = match overhead.framing {
        Framing::Atm => "atm",
        Framing::None | Framing::Ptm if overhead.is_some() => "ethernet",
        _ => "none",
    };
    let name = &request.device;
    let section: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let ptm = match overhead.framing {
        Framing::Ptm => {
            "\toption eqdisc_opts 'ptm'\n\toption iqdisc_opts 'ptm'\n\toption \
                         qdisc_really_really_advanced '1'\n"
        }
        _ => "",
    };
    if overhead.framing == Framing::Ptm && qdisc != "cake" {
        return Err(lacks(FORMAT, "the framing of VDSL2 without CAKE"));
    }
    let (down, up) = (kilobits(request.rates.down), kilobits(request.rates.up));
    let version = if parts.is_empty() { "" } else { ", 1.7.2 or newer" };
    Ok(format!(
        "# /etc/config/sqm (opkg install sqm-scripts{version}); a rate of 0 is unshaped;\n\
         # then: /etc/init.d/sqm enable && /etc/init.d/sqm restart\n\
         config queue 'shape_{section}'\n\toption enabled '1'\n\toption interface '{name}'\n\
         \toption download '{down}'\n\toption upload '{up}'\n\toption qdisc '{qdisc}'\n\
         \toption script '{script}'\n\toption qdisc_advanced '1'\n{parts}{ptm}\
         \toption linklayer '{layer}'\n\toption overhead '{}'\n\
         \toption linklayer_advanced '1'\n\toption tcMPU '{}'\n",
        overhead.bytes, overhead.minimum_bytes
    ))
}
