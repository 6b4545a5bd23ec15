//! `underload replay`: replays recorded packets through queues and a link.
//!
//! The memory grows with the backlog of the queues and not with the input; the buffer for sorting
//! is bounded.

pub mod output;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_run::recording::Recording;
use underload_run::replay::{CSV_HEADER, Replay, Settled, Summary};
use underload_scenario::modem_file;
use underload_scenario::source::load_file;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput, refuse};

use output::OutputFile;

#[derive(Debug, Args)]
#[command(after_help = "\
Input: CSV with the header `time_ns,len,flow,dscp,ecn` (ecn is not-ect, ect0, ect1 or ce), or a pcap
or pcapng capture; both may be compressed with gzip. The length of a captured packet is that of its
IP packet; `overhead=14B` on the link adds an Ethernet header. Packets may be up to 1 s (and 524,288
packets) out of order. A capture of an interface has both directions: let tcpdump select one.

Output: CSV `id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn`, one row per input packet in
order of time, on stdout or in --out; with several queues only in --out, a file per queue. `id` is
the packet's position in the input, from 0. A summary goes to stderr; with several queues, a table
goes to stdout. If the input is damaged, the packets before are replayed, the summary says
INCOMPLETE, and the exit status is 2. The senders do not react: packets arrive as recorded.

Examples:
  underload replay capture.pcap --link 10mbit --queue codel:profile=linux,ecn=on --out fates.csv
  tcpdump -r all.pcap -w - src 192.0.2.7 | underload replay - --link 10mbit --queue pie > fates.csv
  underload replay all.pcap --link 10mbit --queue fifo:limit=64KiB --queue codel --queue pie")]
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
    /// Seed of the queue's and the link's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Writes the rows to this file instead of stdout; with several queues, a directory.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
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
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut benches = arguments.benches()?;
    let named = || arguments.input.display().to_string();
    let recording = Recording::open(&arguments.input).with_context(named).or_bad_input()?;
    for Bench { output, name, .. } in &mut benches {
        writeln!(output, "{CSV_HEADER}").with_context(|| name.clone())?;
    }
    let outcome = drive(&mut benches, recording);
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
    outcome.with_context(named)
}

impl Arguments {
    fn benches(&self) -> anyhow::Result<Vec<Bench>> {
        let mut load = |name: &str| load_file("", name);
        let link = Spec::parse(&self.link)
            .and_then(|link| modem_file::link(&link, &mut load))
            .context("--link")
            .or_bad_input()?;
        let setup = |queue: &String| {
            Spec::parse(queue)
                .and_then(|queue| modem_file::queue(&queue, &link.facts(), &mut load))
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
            let replay = Replay::new(link.build(queue.build(&rng), &rng));
            let (file, output, name) = self.output(is_alone, number, &queue)?;
            Ok(Bench { rules: link.rule_names(), replay, queue, output, file, name })
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

    /// Prints the summary of one queue, or the table of several.
    fn print(&self, benches: &[Bench]) -> anyhow::Result<()> {
        let summary = |it: &Bench| it.replay.summary(it.queue.label.to_string(), self.link.clone());
        let summaries: Vec<Summary> = benches.iter().map(summary).collect();
        match (benches, summaries.as_slice()) {
            _ if self.json => console::print_json(&summaries),
            ([bench], [summary]) => {
                note!("{}", text(bench, summary).trim_end());
                Ok(())
            }
            _ => console::print(&table(&summaries)),
        }
    }
}

const QUEUES_MAX: usize = 32;

/// Sends every packet through each link, also those before damage of the input.
fn drive(benches: &mut [Bench], mut recording: Recording) -> anyhow::Result<()> {
    let fed = recording.try_for_each(|arrival| {
        let arrival = arrival.or_bad_input()?;
        benches.iter_mut().try_for_each(|Bench { replay, output, .. }| {
            Ok(replay.arrive(&arrival, &mut |row: Settled| row.write_csv(output))?)
        })
    });
    for Bench { replay, output, .. } in benches {
        replay.finish(&mut |row: Settled| row.write_csv(output))?;
    }
    fed
}

/// Returns a summary of one screen.
fn text(bench: &Bench, summary: &Summary) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let tally = bench.replay.tally();
    let share = |packets: u64| {
        let percent = 100.0 * packets as f64 / summary.packets.max(1) as f64;
        format!("{packets} ({percent:.2} %)")
    };
    line("queue", summary.queue.clone());
    line("link", summary.link.clone());
    line("packets", format!("{} ({} bytes)", summary.packets, summary.bytes));
    line("sent", share(summary.sent));
    line("marked", share(summary.marked));
    for (rule, changed) in bench.rules.iter().zip(tally.total().remarks()) {
        line("remarked", share(*changed) + " by " + rule);
    }
    let reasons = tally.total().drops();
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{} {}", reason.name(), count.packets)).collect();
    let separator = if reasons.is_empty() { "" } else { ": " };
    line("dropped", share(summary.dropped) + separator + &reasons.join(", "));
    let Summary { sojourn_p50_ms: p50, sojourn_p99_ms: p99, sojourn_max_ms: max, .. } = summary;
    line("sojourn", format!("p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"));
    let redirected: u64 = tally.sanctions().flows().map(|(_, count)| count.packets).sum();
    if redirected > 0 {
        let flows = tally.sanctions().flows().count();
        line("redirected", format!("{} of {flows} flows, by queue protection", share(redirected)));
    }
    for (side, edges) in bench.queue.latency_bins() {
        let names = edges.spans().map(|edge| format!("to {edge}")).chain(["more".to_owned()]);
        let bins = names.zip(tally.total().bins()[side as usize]);
        let bins: Vec<String> = bins.map(|(name, count)| format!("{name}: {count}")).collect();
        line(side.name(), bins.join(", "));
    }
    line("senders", "do not react: packets arrive as recorded (open loop)".to_owned());
    if let Some(rate) = summary.throughput_bit_per_s {
        let rate = rate as f64 / 1e6;
        line("throughput", format!("{rate:.3} Mbit/s, link-layer overhead included"));
    }
    text
}

fn table(summaries: &[Summary]) -> String {
    let width = summaries.iter().map(|it| it.queue.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8}\n",
        "queue", "packets", "sent", "marked", "dropped", "p50 ms", "p99 ms", "Mbit/s"
    );
    for it in summaries {
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
