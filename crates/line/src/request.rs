//! The request for a measurement: its settings and its server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use underload_measure::Tier;
use underload_probe::control::FLOWS_PER_SESSION_MAX;
use underload_probe::load::{Token, check_congestion_control};
use underload_probe::network::Line;
use underload_probe::preset::{Knobs, LoadDirections, Preset};
use underload_record::schema::{Direction, Ecn, Marking};
use underload_record::text::one_line;

use crate::error::{BadSetting, Problem, Setting};
use crate::target::Family;

/// The settings and the server of a measurement.
#[derive(Clone, Debug)]
pub struct Request {
    /// The server: a name or an address, with its port unless that is 4862; or the URL of another
    /// project's server.
    pub host: String,
    pub preset: Preset,
    /// Settings that override the preset's.
    pub knobs: Knobs,
    /// The rates that the line is sold with.
    pub tier: Option<Tier>,
    /// `first-use`, a fingerprint (`sha256:...`), or the path of a certificate in PEM.
    pub trust: String,
    /// A file whose first line is the token to show.
    pub token_file: Option<PathBuf>,
    /// How long to wait for a busy server; `None` does not wait.
    pub wait: Option<Duration>,
    pub family: Family,
    /// Stores the server's whole address in the record instead of its /24 or /48.
    pub keep_address: bool,
    /// The only network interface that the measurement uses; `None` for the interfaces of the
    /// routes.
    pub interface: Option<String>,
    /// Also finds where on the path the load adds delay.
    pub locate: Option<Locate>,
    /// Bytes of IP packets that the measurement may move: its load ends when they are spent.
    pub bytes_max: Option<u64>,
    /// The user's label of the measurement, accepted by [`label`]; may be empty.
    pub label: String,
}

/// The settings of the search for the place where the load adds delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locate {
    /// Name or address of another machine on the local network that answers echoes.
    pub peer: Option<String>,
}

/// Size of the IP packets of UDP load.
pub const UDP_PACKET_BYTES: u16 = 1200;

const LONGEST: Duration = Duration::from_hours(1);
const SHORTEST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(1);
const CLASSES_MAX: usize = 16;

impl Request {
    /// Rejects settings with which no server could measure.
    ///
    /// # Errors
    /// Returns the first setting that is not accepted.
    pub fn check(&self) -> Result<(), BadSetting> {
        let bad = |setting, source| Err(BadSetting { setting, source });
        let Knobs { duration, idle, interval, ref classes, .. } = self.knobs;
        for (setting, length) in [(Setting::Duration, duration), (Setting::Idle, idle)] {
            if length.is_some_and(|length| length > LONGEST || length < SHORTEST) {
                return bad(setting, Problem::Length);
            }
        }
        if interval.is_some_and(|it| it < Duration::from_micros(100) || it > SLOWEST) {
            return bad(Setting::Interval, Problem::Interval);
        }
        if classes.len() > CLASSES_MAX {
            return bad(Setting::Classes, Problem::TooManyClasses { most: CLASSES_MAX });
        }
        for (index, class) in classes.iter().enumerate() {
            if classes[..index].contains(class) {
                return bad(Setting::Classes, Problem::ClassTwice { class: *class });
            }
        }
        if let Some(name) = &self.interface
            && Line::Named(vec![name.clone()]).bytes().is_none()
        {
            return bad(Setting::Interface, Problem::NoInterface { name: name.clone() });
        }
        self.check_flows().map_err(|source| BadSetting { setting: Setting::Flows, source })?;
        if self.knobs.udp.is_none() {
            check_congestion_control(&self.knobs.congestion_control)
                .or_else(|error| bad(Setting::CongestionControl, error.into()))?;
        }
        Ok(())
    }

    /// Rejects a number of flows that the preset would ignore, or that servers do not grant.
    fn check_flows(&self) -> Result<(), Problem> {
        if self.knobs.flows.is_some() && self.preset.has_fixed_flows() {
            return Err(Problem::FixedFlows { preset: self.preset });
        }
        for step in self.preset.steps(&self.knobs, Token([0; 16])) {
            let (flows, most) = (step.config.loads.len(), FLOWS_PER_SESSION_MAX);
            if flows > most {
                return Err(Problem::TooManyFlows { step: step.name, flows, most });
            }
        }
        Ok(())
    }

    /// Returns the host as a record names it: an address is cut to its network.
    pub fn shown_host(&self) -> String {
        if self.keep_address { self.host.clone() } else { shortened(&self.host) }
    }

    /// Returns the command that repeats the measurement, for the record.
    pub fn command_line(&self) -> String {
        let Knobs { congestion_control, directions, duration, idle, interval, .. } = &self.knobs;
        let mut words = vec!["underload".to_owned(), "measure".to_owned(), self.shown_host()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if !self.host.contains("://") && self.host != "ndt7" {
            option("--preset", self.preset.name().to_owned());
        }
        option("--congestion-control", congestion_control.clone());
        for (name, length) in [("--duration", duration), ("--idle", idle), ("--interval", interval)]
        {
            if let Some(length) = length {
                option(name, format!("{}us", length.as_micros()));
            }
        }
        if let Some(flows) = self.knobs.flows {
            option("--flows", flows.to_string());
        }
        if let Some(udp) = self.knobs.udp {
            option("--udp", format!("{}bit", udp.rate_bit_per_s));
            option("--burst", udp.burst_packets.to_string());
        }
        if let Some(name) = &self.interface {
            option("--dev", name.clone());
        }
        if let Some(peer) = self.locate.as_ref().and_then(|it| it.peer.as_ref()) {
            option("--peer", peer.clone());
        }
        for class in &self.knobs.classes {
            option("--class", format!("{}/{}", class.dscp, class.ecn.name()));
        }
        if let Some(tier) = self.tier {
            option("--tier", format!("{}bit/{}bit", tier.down_bit_per_s, tier.up_bit_per_s));
        }
        words.extend(self.locate.as_ref().map(|_| "--where".to_owned()));
        words.extend(match directions {
            LoadDirections::AsPreset => None,
            LoadDirections::Only(Direction::Up) => Some("--up".to_owned()),
            LoadDirections::Only(Direction::Down) => Some("--down".to_owned()),
            LoadDirections::Both => Some("--both".to_owned()),
        });
        words.join(" ")
    }
}

/// Shortens a literal address to its network; names are unchanged. Of a URL only scheme and host
/// remain: what follows may be a secret.
pub(crate) fn shortened(host: &str) -> String {
    if let Some((scheme, rest)) = host.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        return format!("{scheme}://{}", shortened(authority));
    }
    let literal = host.parse::<SocketAddr>().map(|it| it.ip());
    let bare = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal.or(bare) {
        Ok(address) if address.is_loopback() => host.to_owned(),
        Ok(IpAddr::V4(address)) => {
            format!("{}/24", Ipv4Addr::from_bits(address.to_bits() & !0xff))
        }
        Ok(IpAddr::V6(address)) => {
            format!("{}/48", Ipv6Addr::from_bits(address.to_bits() >> 80 << 80))
        }
        Err(_) => host.to_owned(),
    }
}

/// Parses the name of a preset.
///
/// # Errors
/// Returns the names of all presets if `text` is none of them.
pub fn preset(text: &str) -> Result<Preset, String> {
    let known = || Preset::ALL.map(Preset::name).join(", ");
    Preset::from_name(text).ok_or_else(|| format!("there are {}", known()))
}

/// Maximum number of characters of a label or a mark.
const LABEL_MAX: usize = 80;

/// Parses the user's words about a measurement or a day, such as `new router`.
///
/// # Errors
/// Returns what is accepted if the text is empty, too long, or would change how a terminal or a
/// page shows other text.
pub fn label(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LABEL_MAX || one_line(text) != text {
        return Err(format!(
            "expected a line of 1 to {LABEL_MAX} characters, without control characters"
        ));
    }
    Ok(text.to_owned())
}

/// Parses `DSCP` or `DSCP/ECN`, such as `45/ect1`.
///
/// # Errors
/// Returns what is accepted.
pub fn class(text: &str) -> Result<Marking, String> {
    let expected = || {
        "expected a DSCP from 0 to 63 (or ef), and after a slash not-ect, ect0, ect1 or ce, such \
         as 45/ect1"
            .to_owned()
    };
    let (dscp, ecn) = text.split_once('/').unwrap_or((text, "not-ect"));
    let dscp = match dscp {
        "ef" | "EF" => 46,
        number => number.parse().ok().filter(|dscp| *dscp < 64).ok_or_else(expected)?,
    };
    let ecn = Ecn::from_name(ecn).ok_or_else(expected)?;
    Ok(Marking { dscp, ecn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_parsed() {
        assert_eq!(class("45/ect1").unwrap(), Marking { dscp: 45, ecn: Ecn::Ect1 });
        assert_eq!(class("ef").unwrap(), Marking { dscp: 46, ecn: Ecn::NotEct });
        for wrong in ["64", "45/ect2", "", "/ect1", "af41"] {
            assert!(class(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_one_short_line_without_control_characters() {
        assert_eq!(label(" new router "), Ok("new router".to_owned()));
        assert_eq!(label("Küche, <5 GHz> \u{1f4f6}").as_deref(), Ok("Küche, <5 GHz> \u{1f4f6}"));
        assert!(label(&"x".repeat(80)).is_ok());
        for wrong in
            ["", "  ", "a\nb", "\x1b[31mred", "a\tb", "\u{9b}31m", "\u{202e}abc", &"x".repeat(81)]
        {
            assert!(label(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn records_name_networks_not_addresses() {
        for (host, shown) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("192.0.2.77:99", "192.0.2.0/24"),
            ("[2001:db8:1:2::3]:99", "2001:db8:1::/48"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
            ("a.example:99", "a.example:99"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("ndt7", "ndt7"),
            ("ndt7://192.0.2.77:4443", "ndt7://192.0.2.0/24"),
            ("https://me:pass@a.example:99/nq?key=1", "https://a.example:99"),
            ("https://[2001:db8:1:2::3]/nq", "https://2001:db8:1::/48"),
        ] {
            assert_eq!(shortened(host), shown);
        }
    }
}
