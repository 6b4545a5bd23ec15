//! `underload replay`: replays recorded packets through queues and a link.
//!
//! The memory grows with the backlog of the queues and not with the input; the buffer for sorting
//! is bounded ([`order`]).

mod arrival;
mod capture;
mod fates;
mod filter;
mod input;
mod order;
pub mod output;
mod picture;
mod script;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_report::Replayed;
use underload_run::modem_file;
use underload_run::replay::{self, Replay, Settled};
use underload_run::source::load_file;

use crate::present::open_in_desktop;
use arrival::Arrival;
use fates::Numbers;
use filter::Filter;
use output::OutputFile;
use picture::Steps;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput, refuse};

#[derive(Debug, Args)]
#[command(after_help = "\
Input: CSV with the header `time_ns,len,flow,dscp,ecn` (ecn is not-ect, ect0, ect1 or ce), or a pcap
or pcapng capture; both may be compressed with gzip. The length of a captured packet is that of its
IP packet; `overhead=14B` on the link adds an Ethernet header. Packets may be up to 1 s (and 524,288
packets) out of order. A capture of an interface has both directions: --filter selects one.

Output: CSV `id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn`, one row per input packet in
order of time, on stdout or in --out; with several queues only in --out, a file per queue. `id` is
the packet's position in the input, from 0. A summary goes to stderr; with several queues, a table
goes to stdout. If the input is damaged, the packets before are replayed, the summary says
INCOMPLETE, and the exit status is 2. The senders do not react: packets arrive as recorded.

Examples:
  underload replay capture.pcap --link 10mbit --queue codel:profile=linux,ecn=on --out fates.csv
  underload replay all.pcap --filter 'from 192.0.2.7 port 443' --link 10mbit --queue pie > fates.csv
  underload replay all.pcap --link 10mbit --queue fifo:limit=64KiB --queue codel --queue pie
  underload replay all.pcap --link 10mbit --queue fifo --queue codel --html page.html --open")]
pub struct Arguments {
    /// Packets: CSV, pcap or pcapng, optionally gzipped; `-` is the standard input.
    pub input: PathBuf,
    /// The queue, such as docsis-pie:target=10ms (see `underload queues`); may be given several
    /// times, for queues to compare.
    #[arg(long = "queue", value_name = "SPEC", required = true)]
    pub queues: Vec<String>,
    /// The link behind each queue, such as 20mbit or trace:FILE.
    #[arg(long, value_name = "SPEC")]
    pub link: String,
    /// Replays only these packets of a capture: from, to or host ADDRESS or NETWORK, port, sport or
    /// dport NUMBER, tcp, udp, icmp; all conditions must hold.
    #[arg(long, value_name = "CONDITIONS", default_value = "", hide_default_value = true)]
    #[arg(value_parser = filter)]
    pub filter: Filter,
    /// Seed of the queue's and the link's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Writes the rows to this file instead of stdout; with several queues, a directory.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Writes an HTML page: sojourn times in each queue, drops and marks over time.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Opens the page in a browser.
    #[arg(long, requires = "html")]
    pub open: bool,
    /// Prints the summary as one JSON document, a list with an entry for each queue, instead of the
    /// rows.
    #[arg(long)]
    pub json: bool,
}

/// A queue with its link, and its output.
struct Bench {
    queue: QueueSetup,
    rules: Vec<String>,
    replay: Replay,
    output: Box<dyn Write>,
    file: Option<OutputFile>,
    /// Name of the output, for messages.
    name: String,
    /// Data for the page, if one is wanted.
    steps: Option<Steps>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(page) = &arguments.html {
        picture::check(page, &arguments.input)?;
    }
    let mut benches = arguments.benches()?;
    let arrivals = input::open(&arguments.input, &arguments.filter).or_bad_input()?;
    for Bench { output, name, .. } in &mut benches {
        writeln!(output, "{}", fates::HEADER).with_context(|| name.clone())?;
    }
    let outcome = drive(&mut benches, arrivals);
    for bench in &mut benches {
        // Even after a bad packet, the rows of the packets before it are written.
        bench.output.flush().with_context(|| bench.name.clone())?;
        if let Some(file) = &bench.file {
            file.complete().with_context(|| bench.name.clone())?;
        }
    }
    if outcome.is_err() {
        warning!("INCOMPLETE: the input could not be read to its end; until the error:");
    }
    arguments.print(&benches)?;
    arguments.draw(&benches, outcome.is_ok())?;
    outcome.with_context(|| format!("{}", arguments.input.display()))
}

impl Arguments {
    fn benches(&self) -> anyhow::Result<Vec<Bench>> {
        let link = Spec::parse(&self.link)
            .and_then(|link| modem_file::link(&link, &mut named_file))
            .context("--link")
            .or_bad_input()?;
        let setup = |queue: &String| {
            Spec::parse(queue)
                .and_then(|queue| modem_file::queue(&queue, &link.facts(), &mut named_file))
                .context("--queue")
                .or_bad_input()
        };
        // Parses all queues before it creates any file.
        let queues: Vec<QueueSetup> = self.queues.iter().map(setup).collect::<Result<_, _>>()?;
        if queues.len() > QUEUES_MAX {
            refuse!("--queue: expected at most {QUEUES_MAX} queues");
        }
        let is_alone = queues.len() == 1;
        let bench = |(number, queue): (usize, QueueSetup)| {
            let rng = Rng::new(self.seed);
            let built = link.build(queue.build(&rng), &rng);
            let (file, output, name) = self.output(is_alone, number, &queue)?;
            let replay = Replay::new(built);
            let steps = self.html.is_some().then(Steps::default);
            Ok(Bench { rules: link.rule_names(), replay, queue, output, file, name, steps })
        };
        queues.into_iter().enumerate().map(bench).collect()
    }

    /// Opens the output of a queue.
    fn output(
        &self,
        is_alone: bool,
        number: usize,
        queue: &QueueSetup,
    ) -> anyhow::Result<(Option<OutputFile>, Box<dyn Write>, String)> {
        let path = match &self.out {
            Some(path) if is_alone => path.clone(),
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                folder.join(format!("{}-{}.csv", number + 1, queue.label.name))
            }
            None if is_alone && !self.json => {
                let output = Box::new(BufWriter::new(io::stdout().lock()));
                return Ok((None, output, "stdout".to_owned()));
            }
            None => return Ok((None, Box::new(io::sink()), String::new())),
        };
        let file = OutputFile::begin(&path, &self.input)?;
        let output = Box::new(BufWriter::new(file.clone()));
        Ok((Some(file), output, path.display().to_string()))
    }

    /// Writes the page, if one is wanted.
    fn draw(&self, benches: &[Bench], is_complete: bool) -> anyhow::Result<()> {
        let (Some(path), Some(first)) = (&self.html, benches.first()) else { return Ok(()) };
        let (offered, step_s) = first.steps.as_ref().map_or((Vec::new(), 0.0), picture::offered);
        let drawn = |bench: &Bench| {
            let steps = bench.steps.as_ref()?;
            Some(picture::queue(&bench.replay, &bench.queue, steps))
        };
        let span = |bench: &Bench| bench.replay.span().as_nanos() as f64 / 1e9;
        let replayed = Replayed {
            input: self.input.display().to_string(),
            filter: self.filter.to_string(),
            link: self.link.clone(),
            seed: self.seed,
            is_complete,
            span_s: benches.iter().map(span).fold(0.0, f64::max),
            offered,
            step_s,
            queues: benches.iter().filter_map(drawn).collect(),
        };
        picture::write(path, &replayed)?;
        note!("page: {}", path.display());
        if self.open {
            open_in_desktop(path);
        }
        Ok(())
    }

    /// Prints the summary of one queue, or the table of several.
    fn print(&self, benches: &[Bench]) -> anyhow::Result<()> {
        let numbers = |bench: &Bench| fates::numbers(&bench.replay, &bench.queue, &self.link);
        let numbers: Vec<Numbers> = benches.iter().map(numbers).collect();
        match benches {
            _ if self.json => console::print_json(&numbers),
            [only] => {
                let summary = fates::summary(&only.replay, &only.queue, &self.link, &only.rules);
                note!("{}", summary.trim_end());
                Ok(())
            }
            _ => console::print(&table(&numbers)),
        }
    }
}

const QUEUES_MAX: usize = 32;

fn table(numbers: &[Numbers]) -> String {
    let width = numbers.iter().map(|it| it.queue.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8}\n",
        "queue", "packets", "sent", "marked", "dropped", "p50 ms", "p99 ms", "Mbit/s"
    );
    for it in numbers {
        let rate = it.throughput_bit_per_s.map(|rate| format!("{:.3}", rate as f64 / 1e6));
        let _ = writeln!(
            text,
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9.3}  {:>9.3}  {:>8}",
            it.queue,
            it.packets,
            it.sent,
            it.marked,
            it.dropped,
            it.sojourn_p50_ms,
            it.sojourn_p99_ms,
            rate.as_deref().unwrap_or("-")
        );
    }
    text + "p50 and p99: sojourn in the queue. Senders do not react: packets arrive as recorded.\n"
}

/// Loads a file that a SPEC names: a built-in one, or else a file of the current directory.
fn named_file(name: &str) -> Result<Vec<u8>, String> {
    load_file("", name)
}

fn filter(text: &str) -> Result<Filter, String> {
    if text.is_empty() { Ok(Filter::default()) } else { text.parse() }
}

/// Sends every arrival through each link, also those before damage of the input.
fn drive(
    benches: &mut [Bench],
    arrivals: impl Iterator<Item = anyhow::Result<Arrival>>,
) -> anyhow::Result<()> {
    let input = feed(benches, arrivals);
    for Bench { replay, output, steps, .. } in benches {
        replay.finish(&mut |row: Settled| settled(output, steps.as_mut(), &row))?;
    }
    input
}

fn feed(
    benches: &mut [Bench],
    arrivals: impl Iterator<Item = anyhow::Result<Arrival>>,
) -> anyhow::Result<()> {
    for arrival in arrivals {
        let Arrival { id, time, meta, .. } = arrival.or_bad_input()?;
        let arrival = replay::Arrival { id, time, meta };
        for Bench { replay, output, steps, .. } in &mut *benches {
            if let Some(steps) = steps {
                steps.add_arrival(time, meta.len);
            }
            replay.arrive(&arrival, &mut |row: Settled| settled(output, steps.as_mut(), &row))?;
        }
    }
    Ok(())
}

fn settled(output: &mut impl Write, steps: Option<&mut Steps>, row: &Settled) -> io::Result<()> {
    if let Some(steps) = steps {
        steps.add_fate(row);
    }
    fates::write_row(output, row)
}
