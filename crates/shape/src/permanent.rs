//! Files that shape a device after each start of the machine.

use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_aqm::registry::QueueEntry;
use underload_record::schema::PerDirection;
use underload_tc::Command;
use underload_tc::printed::Device;

use crate::plan::{self, ifb_name};
use crate::rate::ETHERNET_BYTES;
use crate::request::{Framing, Request, RequestError};

/// The form of the configuration that shapes the device at each boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A systemd service that runs `tc` and `ip`, without underload.
    Systemd,
    /// A queue of OpenWrt's sqm-scripts.
    OpenWrt,
}

/// Why a format cannot express a request.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("systemd needs the device on this machine")]
    NoDevice,
    #[error(
        "--dev: `{name}` has `{odd}`, which scripts and configuration files interpret; expected \
         letters, digits and - _ . : @ (rename the device: `ip link set dev NAME name NEW`)"
    )]
    Name { name: String, odd: char },
    #[error("openwrt cannot express {what}; use `systemd`")]
    Lacks { what: String },
}

impl Format {
    /// The formats with their names.
    pub const ALL: [(&'static str, Self); 2] =
        [("systemd", Self::Systemd), ("openwrt", Self::OpenWrt)];

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

    /// Whether the file has facts of the device, which must exist here.
    pub fn needs_device(self) -> bool {
        matches!(self, Self::Systemd)
    }

    /// Returns the file that shapes a device as requested. Its first lines say where it belongs.
    ///
    /// # Errors
    /// Returns what the format cannot express, or that it lacks the device.
    pub fn write(self, request: &Request, device: Option<&Device>) -> Result<String, FormatError> {
        // Letters that these languages would interpret.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        if let Some(odd) = request.device.chars().find(|c| !is_plain(*c)) {
            return Err(FormatError::Name { name: request.device.clone(), odd });
        }
        match (self, device) {
            (Self::OpenWrt, _) => openwrt(request),
            (Self::Systemd, Some(device)) => Ok(unit(request, device)?),
            (Self::Systemd, None) => Err(FormatError::NoDevice),
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

/// Returns a section of sqm-scripts that sets up what `apply` sets up.
///
/// The script of sqm-scripts for CAKE passes the rate and its defaults to `tc`, and then our words,
/// which override them. Other queues are below `tbf` with a size table (`stab`), whose overhead is
/// added to the bytes that the kernel counts.
fn openwrt(request: &Request) -> Result<String, FormatError> {
    let qdisc = kind_for_sqm(request)?;
    let is_cake = qdisc != "fq_codel";
    let overhead = request.overhead;
    let (script, layer) = match overhead.framing {
        _ if is_cake => ("layer_cake.qos", "none"),
        Framing::Atm => ("simplest_tbf.qos", "atm"),
        Framing::None | Framing::Ptm if overhead.is_some() => ("simplest_tbf.qos", "ethernet"),
        _ => ("simplest_tbf.qos", "none"),
    };
    let name = &request.device;
    let counted = if name.starts_with("ppp") { 0 } else { ETHERNET_BYTES };
    let bytes = if layer == "none" { 0 } else { i64::from(overhead.bytes) - i64::from(counted) };
    let minimum_bytes = if layer == "none" { 0 } else { overhead.minimum_bytes };
    let kilobits = |rate: Rate| {
        let rate = if is_cake { rate } else { overhead.rate_of_data(rate) };
        rate.bits_per_second() / 1_000
    };
    let (mut rates, mut options) = (PerDirection::new(0, 0), PerDirection::<String>::default());
    for (direction, rate) in request.shaped() {
        let words = request.queue_words(direction, rate)?;
        rates[direction] = kilobits(rate);
        // Omits the kind; the section has CAKE's rate.
        options[direction] = words[if is_cake { 3 } else { 1 }..].join(" ");
        options[direction] += if is_without_nat(request.queue(direction)) { " nonat" } else { "" };
    }
    let (parts, version) = match qdisc {
        "cake_mq" => ("\toption use_mq '1'\n", ", 1.7.2 or newer"),
        _ => ("", ""),
    };
    let qdisc = if is_cake { "cake" } else { qdisc };
    let section: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    Ok(format!(
        "# /etc/config/sqm (apk add sqm-scripts, before OpenWrt 25.12: opkg install \
         sqm-scripts{version}); a rate of 0 is unshaped;\n\
         # sqm-scripts adds `nat` to CAKE, for the hosts behind a router, unless nat=off is given;\n\
         # then: /etc/init.d/sqm enable && /etc/init.d/sqm restart\n\
         config queue 'shape_{section}'\n\toption enabled '1'\n\toption interface '{name}'\n\
         \toption download '{}'\n\toption upload '{}'\n\toption qdisc '{qdisc}'\n\
         \toption script '{script}'\n\toption qdisc_advanced '1'\n{parts}\
         \toption squash_dscp '0'\n\toption squash_ingress '0'\n\
         \toption qdisc_really_really_advanced '1'\n\
         \toption iqdisc_opts '{}'\n\toption eqdisc_opts '{}'\n\
         \toption linklayer '{layer}'\n\toption overhead '{bytes}'\n\
         \toption linklayer_advanced '1'\n\toption tcMPU '{minimum_bytes}'\n",
        rates.down, rates.up, options.down, options.up
    ))
}

/// Returns the name of the qdisc that both directions have.
fn kind_for_sqm(request: &Request) -> Result<&'static str, FormatError> {
    let kind = |(direction, _)| {
        let fair = is_fq_codel(request.queue(direction)).then_some("fq_codel");
        request.cake(direction).or(fair)
    };
    let kinds: Vec<_> = request.shaped().map(kind).collect();
    match kinds.as_slice() {
        [Some(first), rest @ ..] if rest.iter().all(|kind| *kind == Some(*first)) => Ok(*first),
        _ => {
            let queues = request.queues();
            let what =
                format!("the queue `{queues}` (only cake, cake_mq and fq-codel, of one kind)");
            Err(FormatError::Lacks { what })
        }
    }
}

fn is_without_nat(queue: &Spec) -> bool {
    let mut items = queue.items.iter();
    items.any(|item| (item.key.as_deref(), item.value.as_str()) == (Some("nat"), "off"))
}

fn is_fq_codel(queue: &Spec) -> bool {
    QueueEntry::find(&queue.name).is_some_and(|entry| entry.definition.name == "fq-codel")
}
