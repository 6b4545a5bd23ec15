//! `underload shape`: limits a device's rates with the kernel's queues, undone unless confirmed.

mod apply;
mod auto;
mod show;
mod suggest;
mod trial;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use underload_shape::machine::{Session, UndoError};
use underload_terminal::console::{self, warning};
use underload_terminal::exit::{OrBadInput as _, refuse};

#[derive(Debug, Args)]
#[command(after_help = "\
A change is undone after 30 s unless you confirm it, and when its process is killed: nobody is left
without a network. `off` brings back the queues that were there before.

Examples:
  sudo underload shape suggest example.net --dev eth0
  sudo underload shape apply --dev eth0 --up 18mbit --down 90mbit
  sudo underload shape show
  sudo underload shape off")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shapes a device, and undoes that unless it is confirmed.
    Apply(apply::Arguments),
    /// Tries rates and queues on the line, and prints what mends it.
    Suggest(suggest::Arguments),
    /// Shapes a line in hours drawn by lot, and compares them with the others.
    Trial(trial::Arguments),
    /// Follows a line whose rate varies: shapes a device, and changes the rates as it runs.
    Auto(auto::Arguments),
    /// Confirms a change, so that it is not undone.
    #[command(after_help = "Examples:
  sudo underload shape confirm
  sudo underload shape confirm --dev eth0")]
    Confirm(DeviceArguments),
    /// Shows what is shaped: rates, backlogs, delays, drops and marks.
    Show(show::Arguments),
    /// Removes the shaping, and restores the queues that were there before.
    #[command(after_help = "Examples:
  sudo underload shape off
  sudo underload shape off --dev eth0")]
    Off(DeviceArguments),
    /// Prints a file that shapes a device at each start of the machine.
    Write(apply::WriteArguments),
    /// Undoes the change of a record unless it is confirmed.
    #[command(hide = true)]
    Watch { record: PathBuf },
}

#[derive(Debug, Args)]
struct DeviceArguments {
    /// The device [default: the only one that is shaped].
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Apply(arguments) => arguments.run(),
        Action::Suggest(arguments) => arguments.run(),
        Action::Trial(arguments) => arguments.run(),
        Action::Auto(arguments) => arguments.run(),
        Action::Confirm(arguments) => confirm(arguments.dev.as_deref()),
        Action::Show(arguments) => arguments.run(),
        Action::Off(arguments) => off(arguments.dev.as_deref()),
        Action::Write(arguments) => arguments.run(),
        Action::Watch { record } => Ok(underload_shape::machine::follow(record)?),
    }
}

fn confirm(device: Option<&str>) -> anyhow::Result<()> {
    require_rights("shape", "confirm")?;
    let record = Session::open()?.confirm(device).bad_input_if(UndoError::is_refusal)?;
    print_confirmed(&record.device)
}

fn print_confirmed(device: &str) -> anyhow::Result<()> {
    console::print(&format!(
        "{device}: confirmed; `underload shape off --dev {device}` restores what was there before\n"
    ))
}

fn off(device: Option<&str>) -> anyhow::Result<()> {
    require_rights("shape", "off")?;
    let (record, difference) = Session::open()?.off(device).bad_input_if(UndoError::is_refusal)?;
    if let Some(difference) = difference {
        warning!("warning: {difference}");
    }
    console::print(&format!("{}: not shaped any more\n", record.device))
}

/// Refuses a user who may not change the queues of devices, and cannot read root's records.
pub fn require_rights(command: &str, action: &str) -> anyhow::Result<()> {
    if !underload_shape::machine::may_change_queues() {
        refuse!(
            "`underload {command} {action}` needs the records and queues of network devices: run it \
             as root (`sudo underload {command} {action} ...`)"
        );
    }
    Ok(())
}
