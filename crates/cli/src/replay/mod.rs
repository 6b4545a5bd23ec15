//! `underload replay`: what would this queue have done to these packets?
//!
//! Streams: memory grows with the queue's backlog, never with the input; what waits to be sorted is
//! bounded ([`order`]).

mod arrival;
mod capture;
mod fates;
mod filter;
mod input;
mod order;
mod output;
mod picture;
mod script;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_report::Replayed;
use underload_run::modem_file;
use underload_run::replay::{self, Replay, Settled};
use underload_run::source::load_file;

use crate::present;
use arrival::Arrival;
use fates::Numbers;
use filter::Filter;
use output::OutputFile;
use picture::Steps;
use underload_terminal::console::{note, warning};
use underload_terminal::exit::OrBadInput;

/// The command line of `underload replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Input: CSV with the header `time_ns,len,flow,dscp,ecn` (ecn is not-ect, ect0, ect1 or ce), or a pcap
or pcapng capture; either may be compressed with gzip. Captured packets count with the length of
their IP packet; `overhead=14B` on the link adds an Ethernet header. Packets may stand up to 1 s
(and 524,288 packets) out of order. A capture of an interface holds both directions: --filter tells
them apart.

Output: CSV `id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn`, one row per input packet,
in order of time, on stdout or in --out; of several queues in --out alone, a file for each; `id` is
the packet's place in the input, from 0. A summary goes to stderr; of several queues a table goes to
stdout. Where the input breaks off, the packets before that are replayed, the summary says
INCOMPLETE, and the exit status is 2. The senders do not react: the packets are what they are.

Examples:
  underload replay capture.pcap --link 10mbit --queue codel:profile=linux,ecn=on --out fates.csv
  underload replay all.pcap --filter 'from 192.0.2.7 port 443' --link 10mbit --queue pie > fates.csv
  underload replay all.pcap --link 10mbit --queue fifo:limit=64KiB --queue codel --queue pie
  underload replay all.pcap --link 10mbit --queue fifo --queue codel --html page.html --open")]
pub struct Arguments {
    /// Packets: CSV, pcap or pcapng, optionally gzipped; `-` is the standard input.
    pub input: PathBuf,
    /// The queue, for example docsis-pie:target=10ms (see `underload queues`); given several times,
    /// all of them side by side.
    #[arg(long = "queue", value_name = "SPEC", required = true)]
    pub queues: Vec<String>,
    /// The link behind it, for example 20mbit or trace:FILE.
    #[arg(long, value_name = "SPEC")]
    pub link: String,
    /// Only these packets of a capture: from, to or host ADDRESS or NETWORK, port, sport or dport
    /// NUMBER, tcp, udp, icmp; all that is given holds.
    #[arg(long, value_name = "CONDITIONS", default_value = "", hide_default_value = true)]
    #[arg(value_parser = filter)]
    pub filter: Filter,
    /// Seed of the queue's and the link's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Writes the fates there instead of to stdout; of several queues, into this folder.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Writes a page there: how long packets waited in each queue, drops and marks over time, what
    /// it cannot tell.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Opens that page in a browser.
    #[arg(long, requires = "html")]
    pub open: bool,
    /// Prints the summary as one JSON document, a list with an entry for each queue, instead of the
    /// fates.
    #[arg(long)]
    pub json: bool,
}

/// One of the queues with its link, and what became of the packets there.
struct Bench {
    queue: QueueSetup,
    rules: Vec<String>,
    replay: Replay,
    output: Box<dyn Write>,
    file: Option<OutputFile>,
    /// What is written to, for messages.
    name: String,
    /// What the page is drawn from, if there is one.
    steps: Option<Steps>,
}

/// Replays the input.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(page) = &arguments.html {
        picture::check(page, &arguments.input)?;
    }
    let mut benches = arguments.benches()?;
    let arrivals = input::open(&arguments.input, &arguments.filter).or_bad_input()?;
    let outcome = drive(&mut benches, arrivals);
    for bench in &mut benches {
        // Even after a bad packet, the fates of the ones before it are kept.
        bench.output.flush().with_context(|| bench.name.clone())?;
        if let Some(file) = &bench.file {
            file.complete().with_context(|| bench.name.clone())?;
        }
    }
    if outcome.is_err() {
        warning!("INCOMPLETE: the input could not be read to its end; up to there:");
    }
    arguments.tell(&benches)?;
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
        // All are understood before anything is written.
        let queues: Vec<QueueSetup> = self.queues.iter().map(setup).collect::<Result<_, _>>()?;
        if queues.len() > QUEUES_MAX {
            let problem = format!("--queue: at most {QUEUES_MAX} side by side");
            return Err(anyhow!(problem)).or_bad_input();
        }
        let is_alone = queues.len() == 1;
        let bench = |(number, queue): (usize, QueueSetup)| {
            let rng = Rng::new(self.seed);
            let built = link.build(queue.build(&rng), &rng);
            let (file, mut output, name) = self.output(is_alone, number, &queue)?;
            writeln!(output, "{}", fates::HEADER).with_context(|| name.clone())?;
            let replay = Replay::new(built);
            let steps = self.html.is_some().then(Steps::default);
            Ok(Bench { rules: link.rule_names(), replay, queue, output, file, name, steps })
        };
        queues.into_iter().enumerate().map(bench).collect()
    }

    /// Where a queue's fates go.
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

    /// The page, if one is wanted.
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
            present::open(path);
        }
        Ok(())
    }

    /// The summaries, or the table of several queues.
    fn tell(&self, benches: &[Bench]) -> anyhow::Result<()> {
        let numbers = |bench: &Bench| fates::numbers(&bench.replay, &bench.queue, &self.link);
        let numbers: Vec<Numbers> = benches.iter().map(numbers).collect();
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &numbers).context("writing JSON")?;
            return writeln!(out).context("writing JSON");
        }
        if let [only] = benches {
            eprint!("{}", fates::summary(&only.replay, &only.queue, &self.link, &only.rules));
            return Ok(());
        }
        out.write_all(table(&numbers).as_bytes()).context("writing the table")
    }
}

/// Queues side by side, at most.
const QUEUES_MAX: usize = 32;

/// A line for each queue.
fn table(numbers: &[Numbers]) -> String {
    let width = numbers.iter().map(|it| it.queue.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8}\n",
        "queue", "packets", "sent", "marked", "dropped", "p50 ms", "p99 ms", "Mbit/s"
    );
    for it in numbers {
        let _ = writeln!(
            text,
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9.3}  {:>9.3}  {:>8.3}",
            it.queue,
            it.packets,
            it.sent,
            it.marked,
            it.dropped,
            it.sojourn_p50_ms,
            it.sojourn_p99_ms,
            it.throughput_bit_per_s as f64 / 1e6
        );
    }
    text + "Sojourn in the queue. The senders do not react: the packets come as they came.\n"
}

/// A file that a SPEC names: built in, else here.
fn named_file(name: &str) -> Result<Vec<u8>, String> {
    load_file("", name)
}

fn filter(text: &str) -> Result<Filter, String> {
    if text.is_empty() { Ok(Filter::default()) } else { text.parse() }
}

/// Sends every arrival through each link. Where the input breaks off, the packets before that are
/// still seen through to their fates.
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
                steps.came(time, meta.len);
            }
            replay.arrive(&arrival, &mut |row: Settled| settled(output, steps.as_mut(), &row))?;
        }
    }
    Ok(())
}

fn settled(output: &mut impl Write, steps: Option<&mut Steps>, row: &Settled) -> io::Result<()> {
    if let Some(steps) = steps {
        steps.settled(row);
    }
    fates::write_row(output, row)
}
