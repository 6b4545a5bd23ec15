//! `underload replay`: replays recorded packets through queues and a link.
//!
//! The memory grows with the backlog of the queues, up to a limit, and not with the input; the
//! buffer for sorting is bounded.

pub mod output;

use std::fs;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_run::recording::Recording;
use underload_run::replay::{self, CSV_HEADER, Replay, Settled, Summary};
use underload_scenario::modem_file;
use underload_terminal::console::{self, count, note, warning};
use underload_terminal::exit::{OrBadInput, refuse};

use output::Output;

#[derive(Debug, Args)]
#[command(after_help = "\
Input: CSV with the header `time_ns,len,flow,dscp,ecn` (ecn is not-ect, ect0, ect1 or ce), or a pcap
or pcapng capture; both may be compressed with gzip. The length of a captured packet is that of its
IP packet; `overhead=14B` on the link adds an Ethernet header. TCP packets above 1,500 bytes, which
a machine captures before its network card cuts them, are cut into their segments. Packets may be
up to 1 s (and 524,288 packets) out of order. A capture of an interface has both directions: let
tcpdump select one.

Output: CSV `id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn`, one row per packet in order
of time, on stdout or in --out; with several queues only in --out, a file per queue. `id` is the
packet's position in the input, from 0, after that cut. A summary goes to stderr; with several
queues, a table goes to stdout. If the input is damaged, the packets before are replayed, the
summary says INCOMPLETE, and the exit status is 2. The senders do not react: packets arrive as
recorded.

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
}

/// The output of a queue, and its name for messages.
type Named = (Output, String);

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (mut benches, mut outputs) = arguments.benches()?;
    let named = || arguments.input.display().to_string();
    let recording = Recording::open(&arguments.input).with_context(named).or_bad_input()?;
    for (output, name) in &mut outputs {
        writeln!(output.writer(), "{CSV_HEADER}").with_context(|| name.clone())?;
    }
    let outcome = drive(&mut benches, &mut outputs, recording);
    // Even after a bad packet, the rows of the packets before it are written.
    for (output, name) in outputs {
        output.complete().context(name)?;
    }
    if outcome.is_err() {
        warning!("INCOMPLETE: the input could not be read to its end; until the error:");
    }
    arguments.print(&benches)?;
    outcome.with_context(named)
}

impl Arguments {
    fn benches(&self) -> anyhow::Result<(Vec<Bench>, Vec<Named>)> {
        let link = modem_file::link_of(&self.link).context("--link").or_bad_input()?;
        let setup = |queue: &String| {
            modem_file::queue_of(queue, &link.facts()).context("--queue").or_bad_input()
        };
        // Parses all queues before it creates any file.
        let queues: Vec<QueueSetup> = self.queues.iter().map(setup).collect::<Result<_, _>>()?;
        if queues.len() > QUEUES_MAX {
            refuse!("--queue: expected at most {QUEUES_MAX} queues");
        }
        let is_alone = queues.len() == 1;
        let bench = |(number, queue): (usize, QueueSetup)| {
            let rng = Rng::new(self.seed);
            let replay = Replay::new(link.build_behind(&queue, &rng));
            let output = self.output(is_alone, number, &queue)?;
            Ok((Bench { rules: link.rule_names(), replay, queue }, output))
        };
        queues.into_iter().enumerate().map(bench).collect()
    }

    /// Opens the output of a queue.
    fn output(&self, is_alone: bool, number: usize, queue: &QueueSetup) -> anyhow::Result<Named> {
        let path = match &self.out {
            Some(path) if is_alone => path.clone(),
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                folder.join(format!("{}-{}.csv", number + 1, queue.label.name))
            }
            None if is_alone && !self.json => {
                let output = Box::new(BufWriter::new(io::stdout().lock()));
                return Ok((Output::Stream(output), "stdout".to_owned()));
            }
            None => return Ok((Output::Stream(Box::new(io::sink())), String::new())),
        };
        Ok((Output::file(&path, &self.input)?, path.display().to_string()))
    }

    /// Prints the summary of one queue, or the table of several.
    fn print(&self, benches: &[Bench]) -> anyhow::Result<()> {
        let summary = |it: &Bench| it.replay.summary(it.queue.label.to_string(), self.link.clone());
        let summaries: Vec<Summary> = benches.iter().map(summary).collect();
        match (benches, summaries.as_slice()) {
            _ if self.json => console::print_json(&summaries),
            ([bench], [summary]) => {
                let text = replay::text(&bench.replay, &bench.queue, &bench.rules, summary);
                note!("{}", text.trim_end());
                Ok(())
            }
            _ => console::print(&replay::table(&summaries)),
        }
    }
}

const QUEUES_MAX: usize = 32;
/// Packets that may wait in all queues together: about 80 MB.
const WAITING_MAX: usize = 1 << 20;

/// Sends every packet through each link, also those before damage of the input.
fn drive(
    benches: &mut [Bench],
    outputs: &mut [Named],
    mut recording: Recording,
) -> anyhow::Result<()> {
    let fed = recording.try_for_each(|arrival| {
        let arrival = arrival.or_bad_input()?;
        let mut waiting = 0;
        for (Bench { replay, .. }, (output, _)) in benches.iter_mut().zip(&mut *outputs) {
            let mut out = output.writer();
            replay.arrive(&arrival, &mut |row: Settled| row.write_csv(&mut out))?;
            waiting += replay.waiting();
        }
        // A gzipped capture of a few kilobytes may contain millions of packets of one instant.
        if waiting > WAITING_MAX {
            refuse!("packet {}: more than {WAITING_MAX} packets wait for the link", arrival.id + 1);
        }
        Ok(())
    });
    if recording.cuts() > 0 {
        note!(
            "{} of TCP had more than 1,500 bytes, as a machine captures its own packets before its \
             network card cuts them (segmentation offload): each was replayed as its segments",
            count(recording.cuts(), "packet")
        );
    }
    for (Bench { replay, .. }, (output, _)) in benches.iter_mut().zip(outputs) {
        let mut out = output.writer();
        replay.finish(&mut |row: Settled| row.write_csv(&mut out))?;
    }
    fed
}
