//! The command line of `underload measure`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use underload_line::series::{Courtesy, Hours, Limits, SHORTEST_AGE, covers_day};
use underload_line::target::Family;
use underload_line::{Locate, Request, RouterTest, UDP_PACKET_BYTES, class, label, preset};
use underload_measure::Tier;
use underload_probe::load::check_congestion_control;
use underload_probe::preset::{Knobs, LoadDirections, Preset, UdpLoad};
use underload_record::judgement::Limit;
use underload_record::schema::{Direction, Marking};

use super::{show_notice, worded};
use crate::present::Show;
use underload_terminal::quantity::{down_and_up, duration, rate, size};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "command-line switches")]
#[command(after_help = "\
Presets:
  quick         5 s of load down, then up: four flows, best effort and DSCP 45 probes
  npms-lul      the Comcast study: one flow, 11 s down, 7 s up, after the ramp
  ull           idle DSCP 8, idle DSCP 45, then the upstream full and all classes at once
  rrul          four flows each way at once in four classes, probes in three, 60 s
  buffer-sweep  size of the modem's upstream buffer: one flow, then ten

Examples:
  underload measure example.net
  underload measure [2001:db8::1]:4862 --preset npms-lul --tier 40mbit/10mbit
  underload measure example.net --up --flows 1 --congestion-control bbr --duration 10s
  underload measure example.net --class 0 --class 45 --class 45/ect1 --json
  underload measure example.net --where --peer nas.local
  underload measure example.net --every 4h --jitter --keep 90d --out runs/line
  underload measure example.net --every 2h --not 18:00-23:00 --per-day 2GB --when-quiet
  underload measure ndt7 --accept-terms
  underload measure apple --fail-if 'goodput-down < 20mbit'")]
pub struct Arguments {
    /// The server: a name or an address, with :PORT if not 4862. Other servers: `router` (the Wi-Fi
    /// alone), `ndt7` (of M-Lab), `apple`, `cloudflare`, `ndt7://HOST[:PORT]` and the
    /// responsiveness server `https://HOST[:PORT][/PATH]`, for which --up, --down, --duration and
    /// --congestion-control (of uploads) are the only options for load and probes.
    #[arg(value_parser = host)]
    pub host: String,
    /// What to measure; --help-all describes the presets [default: quick].
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<Preset>,
    /// Loads only the upstream.
    #[arg(long, conflicts_with_all = ["down", "both"])]
    pub up: bool,
    /// Loads only the downstream.
    #[arg(long, conflicts_with = "both")]
    pub down: bool,
    /// Loads both directions at once.
    #[arg(long)]
    pub both: bool,
    /// Flows per direction; at most 64 in a session, both directions together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    #[arg(hide_short_help = true)]
    pub flows: Option<u32>,
    /// Congestion control of the TCP flows, at both ends.
    #[arg(long, value_name = "NAME", default_value = "cubic", hide_short_help = true)]
    pub congestion_control: String,
    /// Loads with UDP at this rate per direction instead of TCP.
    #[arg(long, value_name = "RATE", value_parser = rate, hide_short_help = true)]
    pub udp: Option<u64>,
    /// Packets of the UDP load that are sent back to back.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "udp", hide_short_help = true)]
    pub burst: u16,
    /// A class of probes, DSCP or DSCP/ECN such as 45/ect1; may be given several times. The first
    /// is the headline.
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    pub classes: Vec<Marking>,
    /// Length of the load [default: that of the preset].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Length of the idle phase before the load [default: that of the preset].
    #[arg(long, value_name = "TIME", value_parser = duration, hide_short_help = true)]
    pub idle: Option<Duration>,
    /// Time between two probes of a class [default: that of the preset].
    #[arg(long, value_name = "TIME", value_parser = duration, hide_short_help = true)]
    pub interval: Option<Duration>,
    /// Advertised rates of the access line, DOWN/UP such as 40mbit/10mbit; throughput is also
    /// reported in percent of them.
    #[arg(long, value_name = "DOWN/UP", value_parser = tier, hide_short_help = true)]
    pub tier: Option<Tier>,
    #[command(flatten)]
    pub server: ServerOptions,
    /// How long to wait while the server is busy [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = duration, hide_short_help = true)]
    wait: Option<Duration>,
    /// Repeats the measurement, with this time between two starts; --out is the directory of all
    /// runs [default: runs/history]. To M-Lab's servers, TIME is the mean of random pauses, as
    /// M-Lab requires, and at least 6h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Writes the page of `underload history` after each measurement; in a browser (--open) it loads
    /// itself again every minute.
    #[arg(long, requires = "every", hide_short_help = true)]
    pub watch: bool,
    /// Shortens or lengthens each --every by up to a quarter, at random.
    #[arg(long, requires = "every", hide_short_help = true)]
    pub jitter: bool,
    /// Number of measurements with --every [default: until interrupted].
    #[arg(long, value_name = "N", requires = "every", hide_short_help = true)]
    pub times: Option<u64>,
    #[command(flatten)]
    pub courtesy: CourtesyOptions,
    /// With --every, removes runs of the series that are older than this number of days, such as
    /// 90d. The newest run always stays, and `underload history` still has the numbers of all.
    #[arg(long, value_name = "DAYS", requires = "every", value_parser = keep)]
    #[arg(hide_short_help = true)]
    pub keep: Option<Duration>,
    /// Words such as "wifi, kitchen", which record, report and `history` show.
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub label: Option<String>,
    /// Records the full address of the server instead of its /24 or /48, if HOST is an address.
    #[arg(long, hide_short_help = true)]
    pub keep_address: bool,
    /// Measures through this network interface alone, such as a second line; --when-quiet then
    /// watches this interface. Several lines are measured one after another and compared in one
    /// table, each in a directory of its name below --out.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub dev: Vec<String>,
    /// Also finds where the load adds delay: in the local network, on the access line, or beyond.
    /// Sends ICMP echoes to the hops.
    #[arg(long = "where")]
    pub where_delayed: bool,
    /// Another machine on the local network that answers echoes. It distinguishes the Wi-Fi from
    /// the router. If it runs `underload serve`, the local network is first loaded alone.
    #[arg(long, value_name = "HOST", requires = "where_delayed", hide_short_help = true)]
    pub peer: Option<String>,
    /// The run directory, which must not contain a run [default: runs/measure-PRESET-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Measures through a metered connection, such as a phone's hotspot, without asking.
    #[arg(long, hide_short_help = true)]
    pub yes: bool,
    /// Accepts M-Lab's terms, once: they publish results and your address.
    #[arg(long)]
    pub accept_terms: bool,
    /// With ndt7: URL of the service that names the nearest server [default: M-Lab's].
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub locate: Option<String>,
    /// Exits with status 3 if this is true: 'grade < B', 'added > 50' (ms), 'loss > 1' (%) or
    /// 'goodput-down < 20' (Mbit/s).
    #[arg(long, value_name = "CONDITION", value_parser = Limit::parse, conflicts_with = "every")]
    pub fail_if: Vec<Limit>,
    #[command(flatten)]
    pub show: Show,
}

/// When measurements may start; the commands that measure again and again share these options.
#[derive(Debug, Clone, Args)]
pub struct CourtesyOptions {
    /// Starts no measurement in these hours of the local day, such as 18:00-23:00 or 22:00-06:00;
    /// may be given several times.
    #[arg(long = "not", value_name = "FROM-TO", hide_short_help = true)]
    not: Vec<Hours>,
    /// Moves at most this number of bytes per day, such as 2GB: a measurement starts if one as
    /// large as the last fits, and its load ends when the bytes are spent. account.json in --out
    /// has the bytes moved.
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    per_day: Option<u64>,
    /// Starts only while the interfaces of the default routes, or that of --dev, carry less than
    /// RATE in each direction; looks again every minute [default: off; without RATE 250kbit].
    #[arg(long, value_name = "RATE", num_args = 0..=1)]
    #[arg(default_missing_value = "250kbit", require_equals = true, value_parser = rate)]
    #[arg(hide_short_help = true)]
    when_quiet: Option<u64>,
}

impl CourtesyOptions {
    /// Returns the name of the first option that was given.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--not", !self.not.is_empty()),
            ("--per-day", self.per_day.is_some()),
            ("--when-quiet", self.when_quiet.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// Refuses hours that leave no minute of the day.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(!covers_day(&self.not), "--not: the hours cover the whole day");
        Ok(())
    }

    /// Returns the limits, which watch the traffic of `device`, else that of the default routes.
    pub fn courtesy(&self, device: Option<&str>) -> Courtesy {
        let limits =
            Limits { not: self.not.clone(), per_day: self.per_day, quiet_below: self.when_quiet };
        Courtesy::new(limits, device, show_notice)
    }
}

/// How to reach a host with `underload serve`; all commands that measure share these options.
#[derive(Debug, Clone, Args)]
pub struct ServerOptions {
    /// How to verify the server: first-use (as SSH does), its fingerprint (sha256:...), or a PEM
    /// file with its certificate.
    #[arg(long, value_name = "TRUST", default_value = "first-use", hide_short_help = true)]
    pub trust: String,
    /// A file whose first line is a token for the server.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub family: FamilyOptions,
}

impl ServerOptions {
    /// Returns a request to measure against `host`, without label, budget, interface or patience.
    pub fn request(&self, host: &str, preset: Preset, knobs: Knobs) -> Request {
        Request {
            host: host.to_owned(),
            preset,
            knobs,
            tier: None,
            trust: self.trust.clone(),
            token_file: self.token_file.clone(),
            wait: None,
            family: self.family.family(),
            keep_address: false,
            interface: None,
            locate: None,
            bytes_max: None,
            label: String::new(),
        }
    }
}

/// The address families that may be used.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct FamilyOptions {
    /// Uses addresses of IPv4 only.
    #[arg(short = '4', long, conflicts_with = "ipv6", hide_short_help = true)]
    pub ipv4: bool,
    /// Uses addresses of IPv6 only.
    #[arg(short = '6', long, hide_short_help = true)]
    pub ipv6: bool,
}

impl FamilyOptions {
    pub fn family(self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

impl Arguments {
    /// Refuses arguments that no server accepts.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_every()?;
        self.request().check().map_err(|error| worded(error.into()))
    }

    /// Refuses options that a test to a server of another kind would ignore.
    #[cfg_attr(not(sockets), expect(dead_code, reason = "no such test is there"))]
    pub fn check_foreign(&self) -> anyhow::Result<()> {
        let given = [
            ("--preset", self.preset.is_some()),
            ("--both", self.both),
            ("--flows", self.flows.is_some()),
            ("--udp", self.udp.is_some()),
            ("--class", !self.classes.is_empty()),
            ("--idle", self.idle.is_some()),
            ("--interval", self.interval.is_some()),
            ("--tier", self.tier.is_some()),
            ("--token-file", self.server.token_file.is_some()),
            ("--wait", self.wait.is_some()),
            ("--dev", !self.dev.is_empty() && !RouterTest::is_wanted(&self.host)),
            ("--where", self.where_delayed),
            ("--ipv4", self.server.family.ipv4),
            ("--ipv6", self.server.family.ipv6),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            bail!("{name}: only accepted for `underload serve`, which {} is not", self.host);
        }
        self.check_every()?;
        check_congestion_control(&self.congestion_control).context("--congestion-control")
    }

    fn check_every(&self) -> anyhow::Result<()> {
        if let Some(name) = self.courtesy.first_given().filter(|_| self.every.is_none()) {
            bail!("{name}: only accepted with --every");
        }
        if self.every.is_some_and(|every| every < SHORTEST_PAUSE) {
            bail!("--every: expected at least 1min");
        }
        if self.every.is_some() && self.show.open && !self.watch {
            bail!("--open: expected --watch with --every");
        }
        if self.every.is_some() && self.dev.len() > 1 {
            bail!("--every: expected one --dev; each line has a series of its own");
        }
        if let Some(twice) = self.dev.iter().enumerate().find(|it| self.dev[..it.0].contains(it.1))
        {
            bail!("--dev: {} is given twice; expected different interfaces", twice.1);
        }
        self.courtesy.check()
    }

    /// Returns what to measure, and against which server.
    pub fn request(&self) -> Request {
        let directions = match (self.up, self.down, self.both) {
            (true, ..) => LoadDirections::Only(Direction::Up),
            (_, true, _) => LoadDirections::Only(Direction::Down),
            (.., true) => LoadDirections::Both,
            _ => LoadDirections::AsPreset,
        };
        let udp = self.udp.map(|rate_bit_per_s| UdpLoad {
            rate_bit_per_s,
            packet_bytes: UDP_PACKET_BYTES,
            burst_packets: self.burst,
        });
        let knobs = Knobs {
            congestion_control: self.congestion_control.clone(),
            directions,
            flows: self.flows,
            udp,
            duration: self.duration,
            idle: self.idle,
            interval: self.interval,
            classes: self.classes.clone(),
        };
        Request {
            tier: self.tier,
            keep_address: self.keep_address,
            interface: self.dev.first().cloned(),
            wait: self.wait,
            locate: self.where_delayed.then(|| Locate { peer: self.peer.clone() }),
            label: self.label.clone().unwrap_or_default(),
            ..self.server.request(&self.host, self.preset.unwrap_or(Preset::Quick), knobs)
        }
    }

    /// Returns a request for each interface; several are labelled with their names, by which reports
    /// and `compare` tell lines apart.
    pub fn requests(&self) -> Vec<Request> {
        let request = self.request();
        let line = |name: &String| {
            let label = format!("{} {name}", request.label).trim().to_owned();
            Request { interface: Some(name.clone()), label, ..request.clone() }
        };
        match self.dev.as_slice() {
            [] | [_] => vec![request],
            several => several.iter().map(line).collect(),
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_mins(1);

/// Public responsiveness servers by name, with the configuration that their own clients request.
const PUBLIC: &[(&str, &str)] = &[
    ("apple", "https://mensura.cdn-apple.com/api/v1/gm/config"),
    ("cloudflare", "https://aim.cloudflare.com/responsiveness/api/v1/config"),
];

/// Returns the URL of a public server, and any other host as it is.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap")]
fn host(text: &str) -> Result<String, String> {
    let named = PUBLIC.iter().find(|(name, _)| *name == text);
    Ok(named.map_or(text, |(_, url)| *url).to_owned())
}

/// Parses `DOWN/UP`, such as `40mbit/10mbit`.
fn tier(text: &str) -> Result<Tier, String> {
    let (down_bit_per_s, up_bit_per_s) = down_and_up(text)?;
    Ok(Tier { down_bit_per_s, up_bit_per_s })
}

/// Parses `90d`.
fn keep(text: &str) -> Result<Duration, String> {
    let age = duration(text).ok().filter(|age| *age >= SHORTEST_AGE);
    age.ok_or_else(|| "expected an age of at least a day, such as 90d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_for_a_day_or_longer() {
        assert_eq!(keep("90d"), Ok(Duration::from_hours(24 * 90)));
        for wrong in ["0", "", "-1", "1.5", "12h", "200", "500MiB", "90 dogs"] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_public_server_is_known_by_its_name() {
        for (name, url) in PUBLIC {
            assert_eq!(host(name).as_deref(), Ok(*url));
            underload_compat::nq::NqTarget::parse(url).expect("a URL of a responsiveness server");
        }
        assert_eq!(host("apple:4862").as_deref(), Ok("apple:4862"), "a machine of this name");
    }

    /// Before anything is measured.
    #[test]
    fn invalid_measurements_are_refused_before_they_start() {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            measure: Arguments,
        }
        let checked = |words: &str| {
            let words = ["measure", "a.example"].into_iter().chain(words.split_whitespace());
            let parsed = <CommandLine as clap::Parser>::try_parse_from(words);
            parsed.map_err(anyhow::Error::from).and_then(|it| it.measure.check())
        };
        for (words, said) in [
            ("--class 0 --class 0", "--class: 0/not-ect is given twice"),
            ("--class ef --class 0 --class 46/not-ect", "--class: 46/not-ect is given twice"),
            ("--flows 65", "65 is not in 1..=64"),
            ("--not 18:00-23:00", "--not: only accepted with --every"),
            ("--when-quiet", "--when-quiet: only accepted with --every"),
            ("--flows 33 --both", "step both would have 66 in all, and a session has 64 at most"),
            ("--flows 33 --preset rrul", "step rrul would have 66 in all"),
            ("--peer nas.local", "--where"),
            ("--flows 4 --preset buffer-sweep", "--flows: the numbers of flows are what"),
        ] {
            let error = format!("{:#}", checked(words).expect_err(words));
            assert!(error.contains(said), "{words}: {error}");
        }
        for words in ["--flows 64", "--flows 32 --both", "--class 46 --class 46/ect1"] {
            assert!(checked(words).is_ok(), "{words}");
        }
    }
}
