//! Queues of the kernel that are BPF programs: loading, attaching, changing and removing them.
//!
//! `bpftool` loads and registers an object, `tc` attaches its queue. An object serves all devices,
//! so it is registered once, and removed with the last queue of it. Nothing is pinned: a process
//! that is killed leaves at most a registered object and a limit of super-packets without a queue,
//! which the next command removes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use underload_tc::Command;
use underload_tc::printed::Qdisc;
use underload_tc::run::ToolError;

use super::folder::{Folder, FolderError};
use super::offload::{self, OffloadError};
use super::snapshot::{Snapshot, SnapshotError, name_of};
use crate::kernel_queue::{KernelQueue, Law, Maps, MapsError, Place, QUEUES_MAX, Report};

/// The number of a BPF queue at the root of a device: `uk` in ASCII.
const HANDLE: &str = "756b:";
/// The type information (BTF) of the running kernel.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// A function of the kernel that only BPF queues call.
const KFUNC: &[u8] = b"bpf_qdisc_skb_drop";

/// The result of changing a queue that is a BPF program.
type Result<T, E = KernelQueueError> = std::result::Result<T, E>;

/// Why a queue was not added, changed, shown or removed.
#[derive(Debug, thiserror::Error)]
pub enum KernelQueueError {
    #[error(
        "this kernel ({0}) has no BPF queues (CONFIG_NET_SCH_BPF): expected Linux 6.16 or newer \
         that is built with them, such as Debian's"
    )]
    NoBpfQueues(String),
    #[error(
        "this kernel ({0}) does not describe its types ({TYPES}), which BPF queues need: expected \
         one that is built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes(String),
    #[error("no device `{name}`; this machine has {known}{suggestion}")]
    NoDevice { name: String, known: String, suggestion: String },
    #[error(
        "{device} has the queue `{kind}`, which underload did not set up; to replace it: --replace"
    )]
    Foreign { device: String, kind: String },
    #[error(
        "{device} has a kernel queue `{law}` already: `underload kernel-queue change` gives it \
         other settings, `underload kernel-queue remove {device}` removes it"
    )]
    Present { device: String, law: &'static str },
    #[error("{device} has no kernel queue{other}; `underload kernel-queue show` lists them")]
    Absent { device: String, other: String },
    #[error(
        "another version of underload loaded `{0}`: remove its queues first (`underload \
         kernel-queue show` lists those of this network)"
    )]
    OtherVersion(&'static str),
    #[error(
        "this machine already has {QUEUES_MAX} kernel queues `{0}`, the limit of one kind: remove \
         one first"
    )]
    Full(&'static str),
    #[error("`{0}` was registered, but bpftool does not list it with its maps")]
    Unlisted(&'static str),
    #[error("{0}: the kernel did not create the queue")]
    NotCreated(String),
    #[error("the BPF object cannot be handed to bpftool")]
    Object(#[source] io::Error),
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error(transparent)]
    Offload(#[from] OffloadError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Snapshot(SnapshotError),
    #[error(transparent)]
    Tool(#[from] ToolError),
}

impl KernelQueueError {
    /// Whether the device does not fit the request, so that another one has to be made.
    pub fn is_refusal(&self) -> bool {
        use KernelQueueError::{Absent, Foreign, NoDevice, Present};

        matches!(self, NoDevice { .. } | Foreign { .. } | Present { .. } | Absent { .. })
    }
}

impl From<SnapshotError> for KernelQueueError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::NoDevice { name, known, suggestion } => {
                Self::NoDevice { name, known, suggestion }
            }
            other => Self::Snapshot(other),
        }
    }
}

/// The running kernel, which has BPF queues.
#[derive(Debug)]
pub struct Kernel {
    /// Identifies the network namespace of this process.
    network: u32,
}

/// Checks that the running kernel has BPF queues.
fn check_kernel() -> Result<()> {
    let release = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        text.trim().to_owned()
    };
    let types = std::fs::read(TYPES).map_err(|_| KernelQueueError::NoTypes(release()))?;
    if types.split(|byte| *byte == 0).any(|name| name == KFUNC) {
        return Ok(());
    }
    Err(KernelQueueError::NoBpfQueues(release()))
}

impl Kernel {
    /// Returns the running kernel.
    ///
    /// # Errors
    /// Returns what the kernel lacks.
    pub fn open() -> Result<Self> {
        check_kernel()?;
        let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |facts| facts.ino() as u32);
        Ok(Self { network })
    }

    /// Returns the key of a device's settings: its network namespace and its number.
    fn place(&self, index: u64) -> Place {
        Place { network: self.network, device: index as u32 }
    }

    /// Attaches a queue at the root of a device, and limits the device's super-packets to about a
    /// millisecond of its rate. Returns the limit in packets if it changed. After an error the
    /// device is as before, unless the kernel attached no queue: then it has its default.
    ///
    /// # Errors
    /// Returns [`KernelQueueError`].
    pub fn add(&self, device: &str, queue: &KernelQueue, may_replace: bool) -> Result<Option<u64>> {
        let folder = Folder::open()?;
        let _locks = folder.lock_kernel_queues()?;
        let snapshot = Snapshot::take(device)?;
        check_root(device, root(&snapshot), may_replace)?;
        let place = self.place(snapshot.device.index);
        let maps = load(queue)?;
        // The limit and its record come first, so that an error does not change the device's queue.
        let attached = limit(&folder, &snapshot, queue).and_then(|limited| {
            set(&maps, place, queue)?;
            attach(device, queue.law).run()?;
            let error = || KernelQueueError::NotCreated(device.to_owned());
            is_attached(queue.law, place).then_some(limited).ok_or_else(error)
        });
        if attached.is_err() {
            let is_ours = |it: &Qdisc| Law::of_kind(&it.kind).is_some();
            if Snapshot::take(device).is_ok_and(|it| root(&it).is_some_and(is_ours)) {
                let _ = Command::tc(&format!("qdisc del dev {device} root")).run();
            }
            let _ = offload::restore(&folder, (device, snapshot.device.index));
            let _ = maps.forget(place).run();
            let _ = remove_unused(queue.law);
        }
        attached
    }

    /// Gives the queue of a device other settings, which apply from the next packet on. Stored
    /// packets stay.
    ///
    /// # Errors
    /// Returns [`KernelQueueError`].
    pub fn change(&self, device: &str, queue: &KernelQueue) -> Result<Option<u64>> {
        let folder = Folder::open()?;
        let _locks = folder.lock_kernel_queues()?;
        let snapshot = Snapshot::take(device)?;
        let present = root(&snapshot).and_then(|root| Law::of_kind(&root.kind));
        if present != Some(queue.law) {
            return Err(absent(device, present));
        }
        let maps = registered(queue.law)?.ok_or_else(|| absent(device, None))?;
        check_version(&maps, queue)?;
        set(&maps, self.place(snapshot.device.index), queue)?;
        limit(&folder, &snapshot, queue)
    }

    /// Returns the queues of this network.
    ///
    /// # Errors
    /// Returns [`KernelQueueError`].
    pub fn show(&self) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for law in Law::ALL {
            let Some(maps) = registered(law)? else { continue };
            for (place, mut report) in maps.reports(&maps.dump().run()?)? {
                if place.network == self.network
                    && let Some(name) = name_of(place.device.into())?
                {
                    let queue = KernelQueue::parse(&report.queue).ok();
                    report.warning = queue
                        .and_then(|queue| offload::warning(&name, queue.rate()?, queue.bound_ns()));
                    report.device = name;
                    reports.push(report);
                }
            }
        }
        reports.sort_by(|a, b| a.device.cmp(&b.device));
        Ok(reports)
    }

    /// Removes the queue of a device, which has the kernel's default then.
    ///
    /// # Errors
    /// Returns [`KernelQueueError`].
    pub fn remove(&self, device: &str) -> Result<()> {
        let folder = Folder::open()?;
        let _locks = folder.lock_kernel_queues()?;
        let detached = self.detach(&folder, device);
        // Also of a device that is gone with its queue.
        Law::ALL.into_iter().try_for_each(remove_unused)?;
        detached
    }

    fn detach(&self, folder: &Folder, device: &str) -> Result<()> {
        let snapshot = Snapshot::take(device)?;
        offload::restore(folder, (device, snapshot.device.index))?;
        let law = root(&snapshot).and_then(|root| Law::of_kind(&root.kind));
        let law = law.ok_or_else(|| absent(device, None))?;
        Command::tc(&format!("qdisc del dev {device} root")).run()?;
        if let Some(maps) = registered(law)? {
            // Another program may have removed the settings.
            let _ = maps.forget(self.place(snapshot.device.index)).run();
        }
        Ok(())
    }
}

/// Limits the super-packets of a device whose queue has a rate.
fn limit(folder: &Folder, snapshot: &Snapshot, queue: &KernelQueue) -> Result<Option<u64>> {
    let place = (snapshot.device.name.as_str(), snapshot.device.index);
    match queue.rate() {
        Some(rate) => Ok(offload::limit(folder, place, rate)?),
        None => Ok(offload::restore(folder, place).map(|()| None)?),
    }
}

fn root(snapshot: &Snapshot) -> Option<&Qdisc> {
    snapshot.queues.first().map(|queue| &queue.qdisc)
}

fn check_root(device: &str, root: Option<&Qdisc>, may_replace: bool) -> Result<()> {
    let device = device.to_owned();
    match root {
        Some(root) if Law::of_kind(&root.kind).is_some() => {
            let law = Law::of_kind(&root.kind).map_or("", Law::name);
            Err(KernelQueueError::Present { device, law })
        }
        Some(root) if !root.is_default() && !may_replace => {
            Err(KernelQueueError::Foreign { device, kind: root.kind.clone() })
        }
        _ => Ok(()),
    }
}

fn absent(device: &str, present: Option<Law>) -> KernelQueueError {
    let other = present.map(|law| format!(" of this law, but `{}`", law.name()));
    KernelQueueError::Absent { device: device.to_owned(), other: other.unwrap_or_default() }
}

/// Returns the maps of a law's object, which is loaded unless a queue uses it already.
fn load(queue: &KernelQueue) -> Result<Maps> {
    let law = queue.law;
    remove_unused(law)?;
    if let Some(maps) = registered(law)? {
        check_version(&maps, queue)?;
        let present = maps.reports(&maps.dump().run()?)?.len();
        let is_full = present >= QUEUES_MAX;
        return if is_full { Err(KernelQueueError::Full(law.name())) } else { Ok(maps) };
    }
    let object = object(law).map_err(KernelQueueError::Object)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), object.as_raw_fd());
    Command::bpftool(&format!("struct_ops register {path}")).run()?;
    registered(law)?.ok_or(KernelQueueError::Unlisted(law.kind()))
}

/// Returns a file in memory with the object, which disappears with this process.
fn object(law: Law) -> io::Result<File> {
    let mut file = File::from(memfd_create(law.kind(), MFdFlags::MFD_CLOEXEC)?);
    file.write_all(law.object())?;
    Ok(file)
}

/// Returns the maps of the registered object of a law; `None` if none is registered.
fn registered(law: Law) -> Result<Option<Maps>> {
    Ok(Maps::find(law, &Command::bpftool("-j map show").run()?)?)
}

/// Unregisters the object of a law if no queue uses it. The caller has the lock.
fn remove_unused(law: Law) -> Result<()> {
    let Some(maps) = registered(law)? else { return Ok(()) };
    if !maps.reports(&maps.dump().run()?)?.is_empty() {
        return Ok(());
    }
    maps.unregister().run()?;
    Ok(())
}

fn check_version(maps: &Maps, queue: &KernelQueue) -> Result<()> {
    let error = || KernelQueueError::OtherVersion(queue.law.kind());
    maps.has_layout_of(queue).then_some(()).ok_or_else(error)
}

/// Writes the settings of a device.
fn set(maps: &Maps, place: Place, queue: &KernelQueue) -> Result<()> {
    let since_start = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from);
    let version = since_start.map_or(0, |time| time.as_nanos() as u64);
    maps.set(place, &queue.words(version)).run()?;
    Ok(())
}

fn is_attached(law: Law, place: Place) -> bool {
    registered(law).ok().flatten().is_some_and(|maps| {
        let dump = maps.dump().run().unwrap_or_default();
        maps.reports(&dump).is_ok_and(|all| all.iter().any(|(known, _)| *known == place))
    })
}

fn attach(device: &str, law: Law) -> Command {
    Command::tc(&format!("qdisc replace dev {device} root handle {HANDLE} {}", law.kind()))
}
