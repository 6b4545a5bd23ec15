//! `underload replay`: what would this queue have done to these packets?
//!
//! Streams: memory grows with the queue's backlog, never with the input; what waits to be sorted is
//! bounded ([`order`]).

mod capture;
mod fates;
mod input;
mod order;
mod output;
mod script;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::link::Link;
use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_run::modem_file;
use underload_run::source::read_trace;

use crate::console::warning;
use crate::exit::OrBadInput;
use fates::Fates;
use input::Arrival;
use output::OutputFile;

/// The command line of `underload replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Input: CSV with the header `time_ns,len,flow,dscp,ecn` (ecn is not-ect, ect0, ect1 or ce), or a pcap
or pcapng capture; either may be compressed with gzip. Captured packets count with the length of
their IP packet; `overhead=14B` on the link adds an Ethernet header. Packets may stand up to 1 s
(and 524,288 packets) out of order. A capture of an interface holds both directions: filter first.

Output: CSV `id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn`, one row per input packet,
in order of time, on stdout or in --out; `id` is the packet's place in the input, from 0. A summary
goes to stderr. Where the input breaks off, the packets before that are replayed, the summary says
INCOMPLETE, and the exit status is 2. The senders do not react: the packets are what they are.

Examples:
  underload replay capture.pcap --link 10mbit --queue codel:profile=linux,ecn=on --out fates.csv
  tcpdump -r all.pcap -w - 'src 192.0.2.7' | \
underload replay - --link 10mbit --queue pie > fates.csv")]
pub struct Arguments {
    /// Packets: CSV, pcap or pcapng, optionally gzipped; `-` is the standard input.
    pub input: PathBuf,
    /// The queue, for example docsis-pie:target=10ms (see `underload queues`).
    #[arg(long, value_name = "SPEC")]
    pub queue: String,
    /// The link behind it, for example 20mbit or trace:FILE.
    #[arg(long, value_name = "SPEC")]
    pub link: String,
    /// Seed of the queue's and the link's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Writes the fates there instead of to stdout.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Replays the input.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let link = Spec::parse(&arguments.link)
        .and_then(|link| modem_file::link(&link, &mut read_trace))
        .context("--link")
        .or_bad_input()?;
    let queue = Spec::parse(&arguments.queue)
        .and_then(|queue| modem_file::queue(&queue, &link.facts(), &mut read_trace))
        .context("--queue")
        .or_bad_input()?;
    let rng = Rng::new(arguments.seed);
    let rules = link.rule_names();
    let link = link.build(queue.build(&rng), &rng);
    let arrivals = input::open(&arguments.input).or_bad_input()?;
    let file = match &arguments.out {
        Some(path) => Some(OutputFile::begin(path, &arguments.input)?),
        None => None,
    };
    let output: Box<dyn Write> = match &file {
        Some(file) => Box::new(BufWriter::new(file.clone())),
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let name = arguments.out.as_ref().map_or("stdout".into(), |path| path.display().to_string());
    let mut fates = Fates::new(output).with_context(|| name.clone())?;
    let outcome = drive(link, arrivals, &mut fates);
    // Even after a bad packet, the fates of the ones before it are kept.
    fates.flush().with_context(|| name.clone())?;
    if let Some(file) = file {
        file.complete().with_context(|| name)?;
    }
    if outcome.is_err() {
        warning!("INCOMPLETE: the input could not be read to its end; up to there:");
    }
    eprint!("{}", fates.summary(&queue, &arguments.link, &rules));
    outcome.with_context(|| format!("{}", arguments.input.display()))
}

/// Sends every arrival through the link. Where the input breaks off, the packets before that are
/// still seen through to their fates.
fn drive(
    mut link: Link<u64>,
    arrivals: impl Iterator<Item = anyhow::Result<Arrival>>,
    fates: &mut Fates,
) -> anyhow::Result<()> {
    let input = feed(&mut link, arrivals, fates);
    while let Some(event) = link.next_event() {
        deliver(&mut link, event, fates);
        fates.write_settled()?;
    }
    fates.write_rest_as_queued()?;
    input
}

fn feed(
    link: &mut Link<u64>,
    arrivals: impl Iterator<Item = anyhow::Result<Arrival>>,
    fates: &mut Fates,
) -> anyhow::Result<()> {
    let mut previous = Time::ZERO;
    for (number, arrival) in (0..).zip(arrivals) {
        let arrival = arrival.or_bad_input()?;
        // What the link finished before this instant is settled first, so that memory stays
        // bounded; what it does at this instant comes after the arrivals of this instant.
        if arrival.time > previous {
            deliver(link, Time::from_nanos(arrival.time.as_nanos() - 1), fates);
        }
        previous = arrival.time;
        fates.arrived(&arrival);
        link.send(arrival.time, Packet { meta: arrival.meta, payload: number }, fates);
        fates.write_settled()?;
    }
    Ok(())
}

fn deliver(link: &mut Link<u64>, now: Time, fates: &mut Fates) {
    while let Some((_, packet)) = link.poll(now, fates) {
        fates.delivered(packet.payload);
    }
}
