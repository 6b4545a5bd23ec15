//! `underload kernel-queue`: queues that Linux lacks, in the kernel, as BPF programs.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use underload_shape::kernel_queue::KernelQueue;
use underload_shape::machine::kernel_queues::{Kernel, KernelQueueError};
use underload_terminal::console;
use underload_terminal::exit::OrBadInput as _;

use crate::shape::require_rights;

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
            queue.set("add", |kernel, spec| kernel.add(&queue.device, spec, *replace))
        }
        Action::Change(queue) => {
            queue.set("change", |kernel, spec| kernel.change(&queue.device, spec))
        }
        Action::Show { device, json } => show(device.as_deref(), *json),
        Action::Remove { device } => {
            kernel("remove")?.remove(device).bad_input_if(KernelQueueError::is_refusal)?;
            console::print(&format!("{device}: has the kernel's default queue\n"))
        }
    }
}

impl QueueArguments {
    /// Sets a queue by `change`, which returns the changed number of packets in a super-packet, and
    /// prints what the device has now.
    fn set(
        &self,
        action: &str,
        change: impl FnOnce(&Kernel, &KernelQueue) -> Result<Option<u64>, KernelQueueError>,
    ) -> anyhow::Result<()> {
        let queue = KernelQueue::parse(&self.queue).or_bad_input()?;
        let limit = change(&kernel(action)?, &queue).bad_input_if(KernelQueueError::is_refusal)?;
        let limit = limit.map_or(String::new(), |packets| {
            format!(
                "  super-packets of this machine's TCP (segmentation offload): at most {}, about 1 \
                 ms of the rate; `remove` restores the former limit\n",
                console::count(packets, "packet")
            )
        });
        console::print(&format!("{}: {queue}\n{limit}", self.device))
    }
}

/// Returns the running kernel, which has BPF queues and lets this user change them.
fn kernel(action: &str) -> anyhow::Result<Kernel> {
    let kernel = Kernel::open()?;
    require_rights("kernel-queue", action)?;
    Ok(kernel)
}

fn show(device: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut queues = kernel("show")?.show()?;
    queues.retain(|queue| device.is_none_or(|device| queue.device == device));
    let none = if queues.is_empty() { "no kernel queue\n" } else { "" };
    let text = || queues.iter().map(ToString::to_string).chain([none.to_owned()]).collect();
    console::print_as(json, &BTreeMap::from([("queues", &queues)]), text)
}
