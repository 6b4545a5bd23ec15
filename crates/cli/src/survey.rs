//! `underload survey`: round trips to many hosts, as a table and a distribution.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use underload_disk::{self as disk, Access};
use underload_line::survey::Table;
use underload_line::target::{Family, resolve};
use underload_probe::survey::{Answers, Asking, HOSTS_MAX, Host, Survey};
use underload_terminal::console::{self, count, note};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::help::choices;
use underload_terminal::interrupt::Interrupt;

use crate::measure::FamilyOptions;
use underload_terminal::quantity::from_to;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload survey servers.txt --may-ask --out servers
  underload survey a.example b.example:8443 --may-ask --probes 10 --json
  underload survey 127.0.0.1 --probe icmp --probes 1")]
pub struct Arguments {
    /// Names or addresses, with :PORT unless it is 443; or a file with one per line and comments
    /// after `#`.
    #[arg(required = true, value_name = "HOST|FILE")]
    pub hosts: Vec<String>,
    /// Confirms that you may probe these hosts: they are yours, or their operators agreed.
    #[arg(long)]
    pub may_ask: bool,
    /// Kind of the probes.
    #[arg(long, value_name = "KIND", default_value = "tcp", value_parser = choices(KINDS))]
    pub probe: Asking,
    /// Probes of each host, for IPv4 and for IPv6.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub probes: u32,
    /// Time between two probes of a host, at least 30s.
    #[arg(long, value_name = "TIME", default_value = "30s",
        value_parser = from_to("30s", "1d"))]
    pub pause: Duration,
    #[command(flatten)]
    pub family: FamilyOptions,
    /// A new directory for survey.json and cdf.svg.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Prints the result as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// The kinds of probes, for the help.
const KINDS: [(Asking, &str, &str); 3] = [
    (Asking::Tcp, "tcp", "A TCP handshake; the connection is closed at once"),
    (Asking::Icmp, "icmp", "An ICMP echo, if this user may send one"),
    (Asking::Quic, "quic", "A QUIC version negotiation"),
];

/// Longest accepted list of hosts.
const LIST_BYTES_MAX: u64 = 64 << 10;
const PORT: u16 = 443;

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let survey = prepare(arguments).or_bad_input()?;
    if !survey.is_local() && !arguments.may_ask {
        refuse!("hosts of others are probed only with --may-ask, if their operators agreed");
    }
    if let Some(out) = arguments.out.as_deref()
        && !disk::create_directory(out, Access::Usual).with_context(|| shown(out))?
    {
        refuse!("{}: this directory exists already", out.display());
    }
    let interrupt = Interrupt::watch()?;
    let (hosts, least) = (survey.hosts.len(), survey.duration().as_secs());
    note!(
        "{}, at most one probe each {:.0} s: {} min",
        count(hosts, "host"),
        survey.pause.as_secs_f64(),
        least.div_ceil(60)
    );
    let mut tenths = 0;
    let watch = &mut |ended: usize, all: usize| {
        if ended * 10 / all > tenths {
            tenths = ended * 10 / all;
            note!("{ended} of {all} probes");
        }
    };
    let answers = survey.run(watch, interrupt.flag()).or_bad_input()?;
    if answers.iter().all(|answers| answers.sent == 0) {
        return interrupt.explain(Err(no_probe_sent(&answers, interrupt.is_requested())));
    }
    let table = Table::new(&survey, &answers);
    let out = arguments.out.as_deref();
    let written = out.map_or(Ok(()), |out| write(out, &table, &survey, &answers));
    // Printed even if the files could not be written.
    console::print_as(arguments.json, &table, || table.to_string())?;
    if interrupt.is_requested() {
        let interrupted = anyhow!("interrupted; the table has the probes until then");
        return interrupt.explain(written.and(Err(interrupted)));
    }
    written?;
    if answers.iter().all(|answers| answers.round_trips_ns.is_empty()) {
        bail!("no host answered");
    }
    Ok(())
}

fn no_probe_sent(answers: &[Answers], is_interrupted: bool) -> anyhow::Error {
    let trouble = answers.iter().find_map(|it| Some((it.address, it.trouble.as_ref()?)));
    match trouble {
        Some((address, reason)) if !is_interrupted => {
            anyhow!("no probe could be sent, for example to {}: {reason}", address.ip())
        }
        _ => anyhow!("interrupted before the first probe"),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn prepare(arguments: &Arguments) -> anyhow::Result<Survey> {
    let mut names = Vec::new();
    for text in &arguments.hosts {
        let path = Path::new(text);
        if path.is_file() {
            names.extend(listed(path)?);
        } else {
            names.push(text.clone());
        }
        if names.len() > HOSTS_MAX {
            bail!("more than {HOSTS_MAX} hosts");
        }
    }
    let family = arguments.family.family();
    let hosts: anyhow::Result<Vec<Host>> = names.iter().map(|name| host(name, family)).collect();
    let Arguments { probe: asking, probes, pause, .. } = *arguments;
    let survey = Survey { hosts: hosts?, asking, probes, pause };
    survey.check()?;
    Ok(survey)
}

fn listed(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = disk::read_file(path, LIST_BYTES_MAX).with_context(|| shown(path))?;
    let text = String::from_utf8(text).with_context(|| shown(path))?;
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.contains(char::is_whitespace) {
            bail!("{}:{}: expected one host per line", path.display(), number + 1);
        }
        if !name.is_empty() && seen.insert(name.to_owned()) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Resolves a name to the first address of each family.
fn host(name: &str, family: Family) -> anyhow::Result<Host> {
    let families = resolve(name, PORT, family)?.families();
    let addresses = families.iter().map(|family| family.addresses[0]).collect();
    Ok(Host { name: name.to_owned(), addresses })
}

fn write(out: &Path, table: &Table, survey: &Survey, answers: &[Answers]) -> anyhow::Result<()> {
    console::write_file(&out.join("survey.json"), &serde_json::to_vec_pretty(table)?)?;
    if let Some(picture) = table.picture(survey, answers) {
        let path = out.join("cdf.svg");
        console::write_file(&path, picture.as_bytes())?;
        note!("picture: {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_reason_for_unsent_probes_is_printed() {
        let answers = |trouble: Option<&str>| Answers {
            host: 0,
            address: ([127, 0, 0, 1], 0).into(),
            sent: 0,
            round_trips_ns: Vec::new(),
            trouble: trouble.map(str::to_owned),
        };
        let error = |trouble, is_interrupted| {
            no_probe_sent(&[answers(None), answers(trouble)], is_interrupted).to_string()
        };
        assert_eq!(
            error(Some("not permitted"), false),
            "no probe could be sent, for example to 127.0.0.1: not permitted"
        );
        assert_eq!(error(None, true), "interrupted before the first probe");
    }

    #[test]
    fn lists_are_read_and_networks_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.txt");
        fs::write(&file, "# ours\n127.0.0.1:80  # the first\n\n[::1]\n127.0.0.1:80\n").unwrap();
        assert_eq!(listed(&file).unwrap(), ["127.0.0.1:80", "[::1]"]);
        fs::write(&file, "a b\n").unwrap();
        assert!(listed(&file).unwrap_err().to_string().contains(":1: expected one host"));
        let found = host("[::1]", Family::Any).unwrap();
        assert_eq!(found.addresses, ["[::1]:443".parse().unwrap()]);
        assert!(host("192.0.2.0/24", Family::Any).is_err());
        assert!(host("127.0.0.1", Family::V6).is_err());
    }
}
