//! `underload kernel-queue`: queues that Linux lacks, in the kernel, as BPF programs.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use underload_shape::kernel_queue::{KernelQueue, Report};
use underload_shape::machine::kernel_queues::{Kernel, KernelQueueError};
use underload_shape::machine::may_change_queues;
use underload_terminal::console;
use underload_terminal::exit::{OrBadInput as _, refuse};

#[derive(Debug, Args)]
#[command(after_help = "\
The queues are `bode` and `docsis-pie`, which Linux lacks. They need Linux 6.16 or newer with BPF
queues (CONFIG_NET_SCH_BPF), `bpftool`, and root. `underload shape` sets up the queues that Linux
has.

Examples:
  sudo underload kernel-queue add eth0 bode:bound=20ms,rate=20mbit
  sudo underload kernel-queue show
  sudo underload kernel-queue remove eth0")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Puts a queue at the root of a device.
    #[command(after_help = "\
`rate=` shapes what the device sends; without it, `bode` sends as fast as the device takes packets.

Examples:
  sudo underload kernel-queue add eth0 bode:bound=20ms
  sudo underload kernel-queue add eth0 docsis-pie:rate=10mbit,target=10ms")]
    Add {
        #[command(flatten)]
        queue: QueueArguments,
        /// Replaces a queue that underload did not set up; `remove` does not restore it.
        #[arg(long)]
        replace: bool,
    },
    /// Gives the queue of a device other settings; packets that wait stay.
    #[command(after_help = "\
Parameters that SPEC leaves out get their defaults.

Examples:
  sudo underload kernel-queue change eth0 bode:bound=10ms,rate=20mbit")]
    Change(QueueArguments),
    /// Shows the queues of this network: settings, packets sent, dropped and waiting.
    #[command(after_help = "Examples:
  sudo underload kernel-queue show
  sudo underload kernel-queue show eth0 --json | jq '.queues[].late'")]
    Show {
        /// The device [default: all].
        device: Option<String>,
        /// Prints JSON, with the state of the queue's law.
        #[arg(long)]
        json: bool,
    },
    /// Removes the queue of a device, which has the kernel's default then.
    #[command(after_help = "Examples:
  sudo underload kernel-queue remove eth0")]
    Remove { device: String },
}

#[derive(Debug, Args)]
struct QueueArguments {
    device: String,
    /// The queue: `bode` or `docsis-pie`, such as bode:bound=20ms,rate=20mbit.
    #[arg(value_name = "SPEC")]
    queue: String,
}

#[derive(Debug, Serialize)]
struct Document {
    queues: Vec<Report>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Add { queue, replace } => {
            let spec = KernelQueue::parse(&queue.queue).or_bad_input()?;
            sorted(kernel("add")?.add(&queue.device, &spec, *replace))?;
            console::print(&format!("{}: {spec}\n", queue.device))
        }
        Action::Change(queue) => {
            let spec = KernelQueue::parse(&queue.queue).or_bad_input()?;
            sorted(kernel("change")?.change(&queue.device, &spec))?;
            console::print(&format!("{}: {spec}\n", queue.device))
        }
        Action::Show { device, json } => show(device.as_deref(), *json),
        Action::Remove { device } => {
            sorted(kernel("remove")?.remove(device))?;
            console::print(&format!("{device}: has the kernel's default queue\n"))
        }
    }
}

/// Returns the running kernel, which has BPF queues and lets this user change them.
fn kernel(action: &str) -> anyhow::Result<Kernel> {
    let kernel = Kernel::open()?;
    if !may_change_queues() {
        refuse!(
            "`underload kernel-queue {action}` loads programs into the kernel: run it as root \
             (`sudo underload kernel-queue {action} ...`)"
        );
    }
    Ok(kernel)
}

/// Marks what the user can correct on the command line as bad input.
fn sorted<T>(outcome: Result<T, KernelQueueError>) -> anyhow::Result<T> {
    match outcome {
        Err(
            error @ (KernelQueueError::NoDevice { .. }
            | KernelQueueError::Foreign { .. }
            | KernelQueueError::Present { .. }
            | KernelQueueError::Absent { .. }),
        ) => Err(error).or_bad_input(),
        outcome => Ok(outcome?),
    }
}

fn show(device: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut queues = kernel("show")?.show()?;
    queues.retain(|queue| device.is_none_or(|device| queue.device == device));
    if json {
        return console::print_json(&Document { queues });
    }
    if queues.is_empty() {
        return console::print("no kernel queue\n");
    }
    console::print(&queues.iter().map(text).collect::<String>())
}

fn text(report: &Report) -> String {
    let Report { device, queue, counts, waiting, law } = report;
    let mut text = format!("{device}: {queue}\n");
    let megabytes = counts.sent_bytes as f64 / 1e6;
    let longest_ms = counts.longest_sojourn_ns as f64 / 1e6;
    let _ = writeln!(
        text,
        "  {} packets sent ({megabytes:.1} MB), longest wait {longest_ms:.1} ms; {} waiting",
        counts.sent, waiting.packets
    );
    let _ = writeln!(
        text,
        "  dropped: {} on arrival by the queue, {} on arrival when full, {} after waiting",
        counts.early, counts.full, counts.late
    );
    let number = |name: &str| law.get(name).and_then(serde_json::Value::as_u64);
    if let Some(exempted) = number("exempted") {
        let _ = writeln!(text, "  {exempted} sent late, because they were among the last");
    }
    if let Some(probability_q56) = number("probability_q56") {
        let probability = probability_q56 as f64 / 2_f64.powi(56);
        let _ = writeln!(text, "  probability of a drop {probability:.6}");
    }
    text
}
