//! Applying, confirming and undoing changes.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use underload_disk::lock::Lock;
use underload_record::schema::PerDirection;
use underload_tc::Command;
use underload_tc::printed::{Device, Qdisc, Reading};
use underload_tc::restore;

use super::error::{ApplyError, ChangeError, UndoError};
use super::folder::{self, Folder, FolderError};
use super::now_ms;
use super::snapshot::{Snapshot, SnapshotError, name_of};
use super::watcher::Watcher;
use crate::judge::{Present, Refusal};
use crate::plan::{self, ifb_name};
use crate::rate::{Limit, error_number};
use crate::record::{self, Phase, Record};
use crate::request::Request;

/// The changes of the network that this process is in.
#[derive(Debug)]
pub struct Session {
    folder: Folder,
}

/// How to apply a change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Replaces a shaper that underload did not set up.
    pub may_replace: bool,
    pub lasts: Lasts,
}

/// How long a change lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// Until it is undone.
    Confirmed,
    /// The change is undone after this time unless the user confirms it.
    UnlessConfirmed(Duration),
    /// The change is undone after this time, or when the process that applied it ends.
    WithProcess(Duration),
}

/// The present state of a device that underload shapes.
#[derive(Debug, Clone)]
pub struct Shaped {
    pub record: Record,
    /// The device's present name; `None` if it is gone.
    pub name: Option<String>,
    pub standing: Standing,
    /// The queues that the device sends (up) and receives through, root first.
    pub queues: PerDirection<Vec<Reading>>,
}

/// The state of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The change is undone after this time unless it is confirmed.
    Pending { left: Duration },
    /// The change is undone after this time, or when the process that applied it ends.
    Temporary { left: Duration },
    /// The deadline of a pending change has passed, and the change was not undone.
    Late,
    /// The change stays until it is undone.
    Confirmed,
    /// Another program replaced or removed our queues.
    Lost,
    /// The queues are as before the change.
    Undone,
}

/// A change that was applied.
#[derive(Debug)]
pub struct Confirmation {
    pub record: Record,
    /// Devices whose abandoned changes were undone first.
    pub cleaned: Vec<String>,
    watcher: Option<Watcher>,
}

impl Session {
    /// Opens the records of changes.
    ///
    /// # Errors
    /// Returns [`FolderError::NoDirectory`].
    pub fn open() -> Result<Self, FolderError> {
        Ok(Self { folder: Folder::open()? })
    }

    /// Applies a change. After an error the device is as before, except for [`ApplyError::Stuck`].
    ///
    /// # Errors
    /// Returns [`ApplyError`].
    pub fn apply(&self, request: &Request, settings: Settings) -> Result<Confirmation, ApplyError> {
        let lock = self.folder.lock()?;
        request.check(None)?;
        let stuck = |error| ApplyError::Stuck {
            cause: "an earlier change was not confirmed".to_owned(),
            source: Box::new(error),
        };
        let cleaned = self.clean_up().map_err(stuck)?.into_iter();
        let cleaned = cleaned.filter(|(_, is_confirmed)| !is_confirmed).map(|(name, _)| name);
        let cleaned = cleaned.collect();
        let before = Snapshot::take(&request.device)?;
        request.check(before.port_rate())?;
        let mut record = judge(request, &before, settings.may_replace)?;
        let commands = plan::shape(request, &before.device, before.ingress.is_some())?;
        self.folder.write(&record)?;
        let path = self.folder.path(record.index);
        let watcher = Watcher::start(&path).map_err(|error| {
            let _ = self.folder.remove(record.index);
            ApplyError::Watcher(error)
        })?;
        let outcome = run_all(&record.device, &commands)
            .and_then(|()| check_applied(&record))
            .and_then(|()| self.finish(&mut record, settings.lasts));
        if let Err(error) = outcome {
            return Err(self.back_out(&record, &lock, error));
        }
        Ok(Confirmation { record, cleaned, watcher: Some(watcher) })
    }

    /// Records that all commands ran.
    fn finish(&self, record: &mut Record, lasts: Lasts) -> Result<(), ApplyError> {
        let after = |time: Duration| now_ms() + time.as_millis() as u64;
        record.phase = match lasts {
            Lasts::Confirmed => Phase::Confirmed,
            Lasts::UnlessConfirmed(time) => Phase::Pending { deadline_ms: after(time) },
            Lasts::WithProcess(time) => Phase::Temporary { deadline_ms: after(time) },
        };
        let device = record.device.clone();
        self.folder.write(record).map_err(|source| ApplyError::Unrecorded { device, source })
    }

    /// Undoes what was applied before an error.
    fn back_out(&self, record: &Record, _: &Lock, cause: ApplyError) -> ApplyError {
        match self.undo(record) {
            Ok(_) => cause,
            Err(source) => {
                let cause = match &cause {
                    ApplyError::Step { source, .. } => source.to_string(),
                    cause => cause.to_string(),
                };
                ApplyError::Stuck { cause, source: Box::new(source) }
            }
        }
    }

    /// Undoes the changes whose watchers were killed, and those of devices that are gone or whose
    /// queues another program removed. Returns the devices, and whether each change was confirmed.
    /// The caller has the lock.
    fn clean_up(&self) -> Result<Vec<(String, bool)>, UndoError> {
        let mut devices = Vec::new();
        for record in self.folder.records()?.0 {
            let is_gone = || Self::shaped(record.clone()).is_ok_and(|shaped| is_lost(&shaped));
            let is_confirmed = record.phase == Phase::Confirmed;
            if record::is_abandoned(record.phase, now_ms()) || (is_confirmed && is_gone()) {
                self.undo(&record)?;
                devices.push((record.device.clone(), is_confirmed));
            }
        }
        Ok(devices)
    }

    /// Changes the rates of a shaped device from `before` to `request`. The record keeps the first
    /// rates; the present rates are read from the kernel.
    ///
    /// # Errors
    /// Returns [`ChangeError::Ended`] if the device is not shaped any more.
    pub fn change_rates(
        &self,
        device: &Device,
        before: &Request,
        request: &Request,
    ) -> Result<(), ChangeError> {
        let _lock = self.folder.lock()?;
        if !self.folder.path(device.index).exists() {
            return Err(ChangeError::Ended { device: device.name.clone() });
        }
        for (place, limit) in plan::change(before, request, device)? {
            let error = |source| ChangeError::Kernel { device: device.name.clone(), source };
            change_limit(&place, &limit).map_err(error)?;
        }
        Ok(())
    }

    /// Confirms the pending change of a device, or the only one.
    ///
    /// # Errors
    /// Returns [`UndoError::Nothing`] if there is no change.
    pub fn confirm(&self, device: Option<&str>) -> Result<Record, UndoError> {
        let _lock = self.folder.lock()?;
        self.clean_up()?;
        let mut record = self.select(device)?;
        record.phase = Phase::Confirmed;
        self.folder.write(&record)?;
        Ok(record)
    }

    /// Undoes the change of a device, or the only one. Returns its record, and what differs from
    /// before.
    ///
    /// # Errors
    /// Returns [`UndoError`].
    pub fn off(&self, device: Option<&str>) -> Result<(Record, Option<String>), UndoError> {
        let _lock = self.folder.lock()?;
        let cleaned = self.clean_up()?;
        let record = match (self.select(device), device) {
            (Ok(record), _) => record,
            (Err(error), Some(name)) => match unrecorded(name)? {
                Some(record) => record,
                None if cleaned.iter().any(|(cleaned, _)| cleaned == name) => {
                    return Ok((Record::new(name, 0, 0), None));
                }
                None => return Err(error),
            },
            (Err(UndoError::Nothing), None) if !cleaned.is_empty() => {
                let names: Vec<&str> = cleaned.iter().map(|(name, _)| name.as_str()).collect();
                return Ok((Record::new(&names.join(", "), 0, 0), None));
            }
            (Err(error), None) => return Err(error),
        };
        let difference = self.undo(&record)?;
        Ok((record, difference))
    }

    /// Undoes a change unless its record changed after it was read as `last`.
    ///
    /// # Errors
    /// Returns [`UndoError`].
    pub fn undo_unless_changed(&self, last: &Record) -> Result<(), UndoError> {
        let _lock = self.folder.lock()?;
        match folder::read(&self.folder.path(last.index)) {
            Ok(None) => Ok(()),
            Ok(Some(record)) if record.phase != last.phase => Ok(()),
            // The record cannot be read now; `last` is its last readable state.
            Ok(Some(_)) | Err(_) => self.undo(last).map(drop),
        }
    }

    /// Returns all devices that underload shapes, and why others cannot be shown.
    ///
    /// # Errors
    /// Returns an error if the directory of records cannot be read.
    pub fn list(&self) -> Result<(Vec<Shaped>, Vec<UndoError>), UndoError> {
        let (records, unreadable) = self.folder.records()?;
        let mut errors: Vec<UndoError> = unreadable.into_iter().map(UndoError::from).collect();
        let mut shaped = Vec::new();
        for record in records {
            match Self::shaped(record) {
                Ok(one) => shaped.push(one),
                Err(error) => errors.push(error.into()),
            }
        }
        Ok((shaped, errors))
    }

    /// Whether underload shapes a device, once a command that changes it now has ended.
    pub fn is_shaped(&self, device: &Device) -> bool {
        let _lock = self.folder.lock();
        matches!(folder::read(&self.folder.path(device.index)), Ok(Some(_)))
    }

    /// Returns what became of a change.
    pub fn standing(&self, record: &Record) -> Standing {
        match folder::read(&self.folder.path(record.index)) {
            Ok(Some(now)) => standing(now.phase),
            Ok(None) => Standing::Undone,
            Err(_) => standing(record.phase),
        }
    }

    /// Returns the record of `device`, or the only one.
    fn select(&self, device: Option<&str>) -> Result<Record, UndoError> {
        let (mut records, mut unreadable) = self.folder.records()?;
        let names: Vec<&str> = records.iter().map(|record| record.device.as_str()).collect();
        let shaped = names.join(", ");
        let place = match (device, records.len()) {
            (_, 0) => return Err(unreadable.pop().map_or(UndoError::Nothing, UndoError::from)),
            (None, 1) => 0,
            (None, _) => return Err(UndoError::Several { shaped }),
            (Some(device), _) => names
                .iter()
                .position(|name| *name == device)
                .ok_or_else(|| UndoError::Other { device: device.to_owned(), shaped })?,
        };
        Ok(records.swap_remove(place))
    }

    /// Undoes a change and removes its record. Returns what differs from before. The caller has the
    /// lock.
    fn undo(&self, record: &Record) -> Result<Option<String>, UndoError> {
        let difference = match name_of(record.index)? {
            Some(name) => undo_device(&name, record)?,
            None => {
                remove_ifb(record)?;
                None
            }
        };
        self.folder.remove(record.index)?;
        Ok(difference)
    }

    /// Returns the present state of a change.
    fn shaped(record: Record) -> Result<Shaped, SnapshotError> {
        let name = name_of(record.index)?;
        let standing = standing(record.phase);
        let mut shaped = Shaped { standing, record, name, queues: PerDirection::default() };
        if let Some(name) = &shaped.name {
            let snapshot = Snapshot::take(name)?;
            let remains = snapshot.remains();
            if remains.root {
                shaped.queues.up = snapshot.queues;
            }
            if remains.ifb && remains.redirect {
                shaped.queues.down = Snapshot::take(&ifb_name(shaped.record.index))?.queues;
            }
        }
        if is_lost(&shaped) {
            shaped.standing = Standing::Lost;
        }
        Ok(shaped)
    }
}

impl Confirmation {
    /// Waits for the watcher's end.
    pub fn wait_for_watcher(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.wait(Duration::from_secs(2));
        }
    }
}

/// Returns the bytes that a device has sent, which are those that its shaper let pass.
///
/// # Errors
/// Returns [`ChangeError::Counter`] if the device is gone.
pub fn sent_bytes(device: &str) -> Result<u64, ChangeError> {
    let path = format!("/sys/class/net/{device}/statistics/tx_bytes");
    let text = std::fs::read_to_string(&path).ok();
    let bytes = text.and_then(|text| text.trim().parse().ok());
    bytes.ok_or(ChangeError::Counter { path })
}

/// Changes the limit of our queue of a device.
fn change_limit(device: &str, limit: &Limit) -> io::Result<()> {
    let index = if_nametoindex(device)?;
    let protocol = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let socket = socket.as_raw_fd();
    send(socket, &limit.message(index), MsgFlags::empty())?;
    let mut answer = [0; 512];
    // The kernel has answered by the time that the message is sent.
    let length = recv(socket, &mut answer, MsgFlags::MSG_DONTWAIT)?;
    match error_number(&answer[..length]) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the record of a change that may begin.
fn judge(request: &Request, before: &Snapshot, may_replace: bool) -> Result<Record, ApplyError> {
    let tree: Vec<Qdisc> = before.queues.iter().map(|queue| queue.qdisc.clone()).collect();
    let (device, devices) = (before.device.name.as_str(), before.devices.as_slice());
    if before.remains().is_any() {
        return Err(Refusal::AlreadyOurs { device: device.to_owned() }.into());
    }
    let present = Present { device, tree: &tree, filters: &before.filters, devices };
    let mut record = Record::new(device, before.device.index, now_ms());
    record.queue = request.queues();
    record.overhead = request.overhead;
    if let Some(rate) = request.rates.up {
        present.check_root(may_replace)?;
        record.bit_per_s.up = Some(rate.bits_per_second());
        record.before = Some(tree.clone());
    }
    if let Some(rate) = request.rates.down {
        present.check_ingress()?;
        record.bit_per_s.down = Some(rate.bits_per_second());
        record.adds_ingress = before.ingress.is_none();
    }
    Ok(record)
}

fn run_all(device: &str, commands: &[Command]) -> Result<(), ApplyError> {
    commands.iter().try_for_each(|command| {
        let error = |source| ApplyError::Step { device: device.to_owned(), source };
        command.run().map(drop).map_err(error)
    })
}

/// Checks that the device has what was applied.
fn check_applied(record: &Record) -> Result<(), ApplyError> {
    let remains = Snapshot::take(&record.device)?.remains();
    let missing = |what| ApplyError::Missing { device: record.device.clone(), what };
    if record.bit_per_s.up.is_some() && !remains.root {
        return Err(missing("the queue"));
    }
    if record.bit_per_s.down.is_some() && !(remains.redirect && remains.ifb) {
        return Err(missing("the redirection of received packets"));
    }
    Ok(())
}

/// Undoes what remains of a change. Returns what differs from before.
fn undo_device(name: &str, record: &Record) -> Result<Option<String>, UndoError> {
    const PASSES: u32 = 2;
    let ifb = ifb_name(record.index);
    for pass in 1..=PASSES {
        let snapshot = Snapshot::take(name)?;
        let commands = plan::undo(name, &ifb, Some(record), &snapshot.remains())?;
        let outcomes = commands.iter().map(Command::run).collect::<Vec<_>>();
        let failed = outcomes.into_iter().find_map(Result::err);
        let after = Snapshot::take(name)?;
        if !after.remains().is_any() {
            return Ok(difference(record, &after));
        }
        if let Some(source) = failed.filter(|_| pass == PASSES) {
            // If the earlier queues cannot be restored, the kernel's default is set.
            let default = restore::commands(name, &[])?;
            let is_shaped = default.iter().any(|command| command.run().is_err())
                || Snapshot::take(name)?.remains().is_any();
            if is_shaped {
                return Err(UndoError::Left { commands, source });
            }
            return Ok(Some(format!("{name}: has the kernel's default queue now: {source}")));
        }
    }
    Ok(None)
}

/// Returns what differs from the queues before a change.
fn difference(record: &Record, after: &Snapshot) -> Option<String> {
    let before = record.before.as_deref()?;
    let after: Vec<&Qdisc> = after.queues.iter().map(|queue| &queue.qdisc).collect();
    let is_equal = before.len() == after.len() && before.iter().zip(&after).all(|(a, b)| a == *b);
    let kinds = |qdiscs: &mut dyn Iterator<Item = &Qdisc>| {
        qdiscs.map(|qdisc| qdisc.kind.clone()).collect::<Vec<_>>().join(", ")
    };
    (!is_equal).then(|| {
        let (before, after) = (kinds(&mut before.iter()), kinds(&mut after.into_iter()));
        format!("{}: the queues differ from before ({before}): now {after}", record.device)
    })
}

/// Removes the device behind which a device that is gone received.
fn remove_ifb(record: &Record) -> Result<(), UndoError> {
    let ifb = ifb_name(record.index);
    if if_nametoindex(&*ifb).is_err() {
        return Ok(());
    }
    let command = Command::ip(&format!("link del dev {ifb}"));
    let removed = command.run().map(drop);
    removed.map_err(|source| UndoError::Left { commands: vec![command], source })
}

/// Returns a record of shaping whose record was lost; `None` if the device is not shaped by us.
fn unrecorded(name: &str) -> Result<Option<Record>, SnapshotError> {
    let snapshot = Snapshot::take(name)?;
    let record = Record::new(name, snapshot.device.index, now_ms());
    Ok(snapshot.remains().is_any().then_some(record))
}

/// Returns true if none of our queues exists.
fn is_lost(shaped: &Shaped) -> bool {
    shaped.queues.iter().all(|(_, queues)| queues.is_empty())
}

fn standing(phase: Phase) -> Standing {
    let now = now_ms();
    let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(now));
    match phase {
        Phase::Confirmed => Standing::Confirmed,
        Phase::Applying { .. } => Standing::Pending { left: Duration::ZERO },
        phase if record::is_abandoned(phase, now) => Standing::Late,
        Phase::Pending { deadline_ms } => Standing::Pending { left: left(deadline_ms) },
        Phase::Temporary { deadline_ms } => Standing::Temporary { left: left(deadline_ms) },
    }
}
