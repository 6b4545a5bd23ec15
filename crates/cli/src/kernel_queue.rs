//! `underload kernel-queue`: queues that Linux lacks, in the kernel, as BPF programs.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use underload_shape::kernel_queue::KernelQueue;
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
    /// Changes the settings of a device's queue; queued packets stay.
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
    #[command(visible_alias = "del")]
    Remove { device: String },
}

#[derive(Debug, Args)]
struct QueueArguments {
    device: String,
    /// The queue: `bode` or `docsis-pie`, such as bode:bound=20ms,rate=20mbit.
    #[arg(value_name = "SPEC")]
    queue: String,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Add { queue, replace } => {
            let spec = KernelQueue::parse(&queue.queue).or_bad_input()?;
            let added = kernel("add")?.add(&queue.device, &spec, *replace);
            let limit = added.bad_input_if(KernelQueueError::is_refusal)?;
            print(&queue.device, &spec, limit)
        }
        Action::Change(queue) => {
            let spec = KernelQueue::parse(&queue.queue).or_bad_input()?;
            let changed = kernel("change")?.change(&queue.device, &spec);
            let limit = changed.bad_input_if(KernelQueueError::is_refusal)?;
            print(&queue.device, &spec, limit)
        }
        Action::Show { device, json } => show(device.as_deref(), *json),
        Action::Remove { device } => {
            kernel("remove")?.remove(device).bad_input_if(KernelQueueError::is_refusal)?;
            console::print(&format!("{device}: has the kernel's default queue\n"))
        }
    }
}

/// Prints what a device has now; `limit` is the changed number of packets in a super-packet.
fn print(device: &str, queue: &KernelQueue, limit: Option<u64>) -> anyhow::Result<()> {
    let limit = limit.map_or(String::new(), |packets| {
        format!(
            "  super-packets of this machine's TCP (segmentation offload): at most {}, about 1 ms of \
             the rate; `remove` restores the former limit\n",
            console::count(packets as usize, "packet")
        )
    });
    console::print(&format!("{device}: {queue}\n{limit}"))
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

fn show(device: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut queues = kernel("show")?.show()?;
    queues.retain(|queue| device.is_none_or(|device| queue.device == device));
    let none = if queues.is_empty() { "no kernel queue\n" } else { "" };
    let text = || queues.iter().map(ToString::to_string).chain([none.to_owned()]).collect();
    console::print_as(json, &BTreeMap::from([("queues", &queues)]), text)
}
