//! `underload shape apply` and `underload shape write`.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_record::schema::PerDirection;
use underload_shape::machine::{
    ApplyError, Confirmation, Lasts, Session, Settings, Snapshot, SnapshotError, Standing,
};
use underload_shape::permanent::Format;
use underload_shape::plan;
use underload_shape::request::{Overhead, Request};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput as _;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity;

use super::{print_confirmed, require_rights};

#[derive(Debug, Args)]
#[command(after_help = "\
Choose rates of 90 to 95 % of those of the access line, which `underload measure` names: then
packets wait here, where a queue looks after them, and not in the modem. The change is undone unless
you press Enter, or `underload shape confirm` follows within --within. If a command fails, or this
process is killed, the device is as it was before.

--overhead: what the line adds to each packet. none, ethernet, ethernet-vlan, docsis (cable), vdsl2,
vdsl2-pppoe, adsl-pppoa, adsl-pppoe, conservative (unknown line), or a number such as 44B.

Examples:
  sudo underload shape apply --dev eth0 --up 18mbit --down 90mbit --overhead docsis
  sudo underload shape apply --dev eth0 --up 9500kbit --queue fq-codel:target=10ms
  sudo underload shape apply --dev eth0 --up 18mbit --yes
  underload shape apply --dev eth0 --up 18mbit --dry-run")]
pub struct Arguments {
    #[command(flatten)]
    shaping: Shaping,
    #[command(flatten)]
    change: Change,
    /// Prints the commands that would run, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Formats: systemd (a service that runs `tc`), openwrt (a section of sqm-scripts). On other systems,
run at each start the commands that `underload shape apply --dry-run` prints.

Examples:
  underload shape write systemd --dev eth0 --up 18mbit --down 90mbit
  underload shape write openwrt --dev wan --up 18mbit --down 90mbit --overhead docsis")]
pub struct WriteArguments {
    /// systemd or openwrt.
    #[arg(value_name = "FORMAT", value_parser = Format::parse)]
    format: Format,
    #[command(flatten)]
    shaping: Shaping,
}

/// How a change begins; `apply` and `auto` share these options.
#[derive(Debug, Args)]
pub(super) struct Change {
    /// Replaces a shaper that underload did not set up; `underload shape off` restores it.
    #[arg(long)]
    replace: bool,
    /// Confirms the change at once, for scripts.
    #[arg(long, conflicts_with = "within")]
    yes: bool,
    /// The time after which the change is undone unless it is confirmed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::from_to("1s", "1h"))]
    within: Duration,
}

/// The queue of a shaper and the line's overhead; all commands that shape share these options.
#[derive(Debug, Args)]
pub(super) struct Queueing {
    /// The queue in both directions: cake, cake_mq, fq-codel, fq-pie, codel, pie, dualpi2, red, sfb
    /// or fifo, with parameters as `underload queues` lists them; CAKE also has nat=on, wash=on and
    /// ack-filter=on or aggressive.
    #[arg(long, value_name = "SPEC", default_value = "cake")]
    queue: String,
    /// The queue of what the device receives, if it differs from --queue.
    #[arg(long, value_name = "SPEC")]
    down_queue: Option<String>,
    /// What the line adds to each packet, such as docsis.
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = Overhead::parse)]
    overhead: Overhead,
}

/// The options that `apply`, `trial` and `write` share.
#[derive(Debug, Args)]
pub(super) struct Shaping {
    /// The device that leads to the access line, such as eth0 or ppp0.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Rate of what the device sends, such as 18mbit.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    up: Option<u64>,
    /// Rate of what the device receives, such as 90mbit.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    down: Option<u64>,
    #[command(flatten)]
    queueing: Queueing,
}

impl Shaping {
    /// Returns the request, if it can be met on some device.
    pub(super) fn request(&self) -> anyhow::Result<Request> {
        let rates = PerDirection::new(self.up, self.down);
        let rates = rates.map(|rate| rate.map(Rate::from_bits_per_second));
        self.queueing.request(&self.dev, rates)
    }
}

impl Queueing {
    /// Returns the request for rates of a device.
    pub(super) fn request(
        &self,
        device: &str,
        rates: PerDirection<Option<Rate>>,
    ) -> anyhow::Result<Request> {
        let queue = Spec::parse(&self.queue).context("--queue").or_bad_input()?;
        let parse = |text| Spec::parse(text).context("--down-queue").or_bad_input();
        let down_queue = self.down_queue.as_deref().map(parse).transpose()?;
        let (device, overhead) = (device.to_owned(), self.overhead);
        let request = Request { device, rates, queue, down_queue, overhead };
        request.check(None).or_bad_input()?;
        Ok(request)
    }
}

impl Change {
    /// Applies a request, and waits until it is confirmed.
    pub(super) fn apply(
        &self,
        request: &Request,
        session: &Session,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let settings = Settings {
            may_replace: self.replace,
            lasts: if self.yes { Lasts::Confirmed } else { Lasts::UnlessConfirmed(self.within) },
        };
        let confirmation = session.apply(request, settings);
        let confirmation = confirmation.bad_input_if(ApplyError::is_refusal)?;
        for device in &confirmation.cleaned {
            warning!("warning: {device}: an earlier change was not confirmed, and is now undone");
        }
        if self.yes {
            return console::print(&format!("{request}\n"));
        }
        note!("{request}");
        wait(session, confirmation, interrupt)
    }
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let request = self.shaping.request()?;
        if self.dry_run {
            return dry_run(&request);
        }
        require_rights("shape", "apply")?;
        let interrupt = Interrupt::watch()?;
        let session = Session::open()?;
        self.change.apply(&request, &session, &interrupt)
    }
}

impl WriteArguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let request = self.shaping.request()?;
        // A section for a router names a device of the router.
        let snapshot = || Snapshot::take(&request.device).bad_input_if(SnapshotError::is_refusal);
        let device = self.format.needs_device().then(snapshot).transpose()?;
        let device = device.map(|snapshot| snapshot.device);
        console::print(&self.format.write(&request, device.as_ref()).or_bad_input()?)
    }
}

/// Prints the commands that would shape the device.
fn dry_run(request: &Request) -> anyhow::Result<()> {
    let snapshot = Snapshot::take(&request.device).bad_input_if(SnapshotError::is_refusal)?;
    request.check(snapshot.port_rate()).or_bad_input()?;
    let commands = plan::shape(request, &snapshot.device, snapshot.ingress.is_some());
    let commands = commands.or_bad_input()?;
    let lines: Vec<String> = commands.iter().map(|command| format!("{command}\n")).collect();
    console::print(&lines.concat())
}

/// Waits until the change is confirmed or undone.
fn wait(
    session: &Session,
    mut confirmation: Confirmation,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let device = confirmation.record.device.clone();
    let enter = io::stdin().is_terminal().then(lines);
    let here = if enter.is_some() { "press Enter, or run" } else { "run" };
    let mut is_announced = false;
    loop {
        let standing = session.standing(&confirmation.record);
        match standing {
            Standing::Confirmed => break,
            Standing::Undone | Standing::Lost | Standing::Late => {
                match standing {
                    Standing::Late => session.undo_unless_changed(&confirmation.record)?,
                    _ => confirmation.wait_for_watcher(),
                }
                bail!("{device} is as it was before: the change was not confirmed");
            }
            Standing::Pending { left } if !is_announced => {
                let seconds = left.as_millis().div_ceil(1_000);
                note!(
                    "undone in {seconds} s: to confirm that the network works, {here} `underload \
                     shape confirm --dev {device}`"
                );
                is_announced = true;
            }
            Standing::Pending { .. } | Standing::Temporary { .. } => {}
        }
        if interrupt.is_requested() {
            session.undo_unless_changed(&confirmation.record)?;
            let error = anyhow::anyhow!("{device} is as it was before");
            return Err(interrupt.stopped(error));
        }
        if enter.as_ref().is_some_and(|lines| lines.try_recv().is_ok()) {
            session.confirm(Some(&device))?;
            break;
        }
        std::thread::sleep(POLL);
    }
    print_confirmed(&device)
}

/// Interval between looks at the record, the keyboard and signals.
const POLL: Duration = Duration::from_millis(50);

/// Returns a message for each line of the standard input.
fn lines() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while io::stdin().lock().read_line(&mut line).is_ok_and(|count| count > 0) {
            if sender.send(()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}
