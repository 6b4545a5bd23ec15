//! The super-packets that a device takes from its own machine's TCP, and their limit.
//!
//! TCP hands up to 64 KiB to a device as one packet, which the network card cuts (segmentation
//! offload). In a queue that does not cut them, one packet of 64 KiB takes 26 ms at 20 Mbit/s, and
//! a drop loses all of it. `gso_max_segs` limits them. It does not limit packets that the machine
//! forwards.

use underload_aqm::rate::Rate;
use underload_disk::{Access, write_whole};
use underload_tc::Command;
use underload_tc::run::ToolError;

use super::folder::{Folder, FolderError};

/// Bytes of a full packet with its Ethernet header.
const PACKET_BYTES: u64 = 1_514;
/// Longest record: two numbers with a space between them.
const RECORD_BYTES_MAX: u64 = 64;

/// Why the limit of a device was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    #[error("`ip -j -d link show dev {0}` prints no gso_max_segs")]
    Unknown(String),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Returns the packets that one super-packet of a device has at most.
///
/// # Errors
/// Returns an error if `ip` fails, or is too old to print it.
pub fn segments(device: &str) -> Result<u64, OffloadError> {
    let text = Command::ip(&format!("-j -d link show dev {device}")).run()?;
    let links: Option<Vec<serde_json::Value>> = serde_json::from_str(&text).ok();
    let found = links.and_then(|links| links.first()?.get("gso_max_segs")?.as_u64());
    found.ok_or_else(|| OffloadError::Unknown(device.to_owned()))
}

/// Returns the packets that take about a millisecond at a rate, at least one.
pub fn of_a_millisecond(rate: Rate) -> u64 {
    (rate.bits_per_second() / 8_000 / PACKET_BYTES).max(1)
}

/// Returns a message if a super-packet of a device takes longer at a rate than `bound_ns`; `None`,
/// too, if that is unknown.
pub fn warning(device: &str, rate: Rate, bound_ns: u64) -> Option<String> {
    let bytes = (segments(device).ok()? * PACKET_BYTES).min(64 << 10);
    let time_ns = (u128::from(bytes) * 8_000_000_000)
        .checked_div(rate.bits_per_second().into())
        .filter(|time_ns| bytes > PACKET_BYTES && *time_ns > bound_ns.into())?;
    Some(format!(
        "packets of up to {} KiB, which TCP of this machine sends (segmentation offload), take {:.1} \
         ms at this rate: `ip link set dev {device} gso_max_segs {}`",
        bytes >> 10,
        time_ns as f64 / 1e6,
        of_a_millisecond(rate)
    ))
}

/// Limits the super-packets of a device to about a millisecond of a rate, once the present limit is
/// recorded. Returns the limit if it changed.
///
/// # Errors
/// Returns [`OffloadError`]; the limit is then as before.
pub(super) fn limit(
    folder: &Folder,
    (device, index): (&str, u64),
    rate: Rate,
) -> Result<Option<u64>, OffloadError> {
    restore(folder, (device, index))?;
    let wanted = of_a_millisecond(rate);
    let Some(present) = segments(device).ok().filter(|present| wanted < *present) else {
        return Ok(None);
    };
    let path = folder.offload_path(index);
    let record = format!("{present} {wanted}");
    let written = write_whole(&path, record.as_bytes(), Access::Owner);
    written.map_err(|source| FolderError::File { path, source })?;
    set(device, wanted)?;
    Ok(Some(wanted))
}

/// Restores the limit that a record has, which a command that was killed may have left, and removes
/// the record. A limit that is not the recorded one stays: another program set it, or the device is
/// another one with the number of one that is gone.
///
/// # Errors
/// Returns [`OffloadError`].
pub(super) fn restore(folder: &Folder, (device, index): (&str, u64)) -> Result<(), OffloadError> {
    let path = folder.offload_path(index);
    let record = underload_disk::read_file(&path, RECORD_BYTES_MAX).unwrap_or_default();
    let record = String::from_utf8_lossy(&record);
    let numbers = record.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
    if let Ok([before, limited]) = numbers.as_deref()
        && segments(device).is_ok_and(|present| present == *limited)
    {
        set(device, *before)?;
    }
    underload_disk::remove(&path).map_err(|source| FolderError::File { path, source })?;
    Ok(())
}

fn set(device: &str, segments: u64) -> Result<(), ToolError> {
    Command::ip(&format!("link set dev {device} gso_max_segs {segments}")).run().map(drop)
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn super_packets_are_limited_and_restored_also_by_the_next_command() {
        // Of this thread alone: the commands that it starts are in its network.
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            eprintln!("SKIPPED super_packets_are_limited...: no right to create a network");
            return;
        }
        let folder = Folder::open().expect("a directory");
        Command::ip("link add name gso0 type veth peer name gso1").run().expect("devices");
        let device = ("gso0", u64::from(std::process::id()) + 1_000_000);
        let before = segments("gso0").expect("a limit");
        let mbit = Rate::from_megabits_per_second;
        assert!(warning("gso0", mbit(20), 20_000_000).expect("too large").contains("26.2 ms"));
        assert_eq!(limit(&folder, device, mbit(100)).expect("limited"), Some(8));
        assert_eq!(segments("gso0").expect("a limit"), 8);
        assert_eq!(warning("gso0", mbit(100), 20_000_000), None);
        // After a kill the record remains, and a change of the rate does not record our own limit
        // as the former one.
        assert_eq!(limit(&folder, device, mbit(20)).expect("limited"), Some(1));
        restore(&folder, device).expect("restored");
        assert_eq!(segments("gso0").expect("a limit"), before);
        restore(&folder, device).expect("nothing to restore");
        // Another program changes the limit, and a record remains of another device.
        assert_eq!(limit(&folder, device, mbit(20)).expect("limited"), Some(1));
        set("gso0", 7).expect("changed");
        restore(&folder, device).expect("nothing of ours");
        assert_eq!(segments("gso0").expect("a limit"), 7);
        for (record, expected) in [("5 7", 5), ("5 8", 7), ("5", 7), ("x 7", 7), ("", 7)] {
            set("gso0", 7).expect("changed");
            std::fs::write(folder.offload_path(device.1), record).expect("a record");
            restore(&folder, device).expect("restored");
            assert_eq!(segments("gso0").expect("a limit"), expected, "{record}");
        }
        assert!(!folder.offload_path(device.1).exists());
    }
}
