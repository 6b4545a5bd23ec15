//! System calls without a safe wrapper.
#![expect(unsafe_code, reason = "ioctl, fork and scheduling calls have no safe wrapper in nix")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{ForkResult, Pid, fork, pipe};

/// A TUN device whose frames have a `virtio_net_hdr` and no link-layer header.
const TUN_FLAGS: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// Offloads of checksums and TCP segmentation (both IP versions, with CWR), which the device may
/// leave to this process.
const TUN_OFFLOADS: libc::c_ulong =
    (libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN) as libc::c_ulong;

/// Creates the TUN device `name` in the network namespace in which `file` was opened.
pub fn attach_tun(file: &impl AsFd, name: &str) -> io::Result<()> {
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "device name too long"));
    }
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *target = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = TUN_FLAGS as libc::c_short;
    // SAFETY: the descriptor is open for the call, and TUNSETIFF reads and writes one `ifreq`.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETIFF, &mut request) };
    nix::errno::Errno::result(result).map(drop).map_err(Into::into)
}

/// Sets whether the device may deliver super-packets with incomplete checksums.
pub fn set_tun_offload(file: &impl AsFd, on: bool) -> io::Result<()> {
    let offloads = if on { TUN_OFFLOADS } else { 0 };
    // SAFETY: the descriptor is open for the call, and TUNSETOFFLOAD takes its argument by value.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
    nix::errno::Errno::result(result).map(drop).map_err(Into::into)
}

/// Lets the command start with no signal blocked, whatever the starting thread blocks. The thread's
/// own mask stays, because a signal could otherwise end this process.
pub fn block_no_signal_in(command: &mut Command) {
    // SAFETY: between fork and exec it calls pthread_sigmask alone, which is async-signal-safe.
    unsafe { command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from)) };
}

/// The command and its children will run on one of the cores that this process may use. `place`
/// selects it; places beyond the last core begin at the first again.
pub fn run_on_one_core(command: &mut Command, place: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true));
    let cores: Vec<usize> = cores.collect();
    let mut one = CpuSet::new();
    one.set(cores[place % cores.len()])?;
    let set = move || sched_setaffinity(Pid::from_raw(0), &one).map_err(io::Error::from);
    // SAFETY: between fork and exec it calls sched_setaffinity alone, which is async-signal-safe.
    unsafe { command.pre_exec(set) };
    Ok(())
}

/// The command will be killed when the calling thread ends, whichever way it ends.
pub fn die_with_parent(command: &mut Command) {
    let set = || nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from);
    // SAFETY: between fork and exec it calls prctl alone, which is async-signal-safe.
    unsafe { command.pre_exec(set) };
}

/// Forks the first process of a process namespace that the caller has just unshared. It mounts
/// `/proc`, sleeps, and dies with the calling *thread*, even after `SIGKILL` of this process; the
/// kernel then kills every process of the namespace.
pub fn fork_namespace_init() -> io::Result<Pid> {
    let (alive_read, alive_write) = pipe()?;
    // SAFETY: the child calls async-signal-safe functions only and never returns.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(alive_read);
            nix::unistd::write(&alive_write, &[1])?;
            Ok(child)
        }
        ForkResult::Child => {
            let write_end = alive_write.as_raw_fd();
            namespace_init(&alive_read, write_end)
        }
    }
}

fn namespace_init(alive: &OwnedFd, write_end: RawFd) -> ! {
    // SAFETY: only system calls follow, on values that live on this stack; descriptors are closed
    // by number because the child shares none of them with a destructor that could still run.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, Signal::SIGKILL as libc::c_ulong);
        libc::close(write_end);
        let mut byte = 0u8;
        // End of file: the parent died before the line above took effect.
        if libc::read(alive.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::setsid();
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // Some containers refuse this: then the command sees the process numbers outside.
        let (kind, path) = (c"proc".as_ptr(), c"/proc".as_ptr());
        libc::mount(kind, path, kind, libc::MS_NOSUID | libc::MS_NODEV, std::ptr::null());
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}

/// Forks this process. The caller must ensure that it has no other thread, so that the child may
/// do anything; the child must end by [`exit_now`] and not return to the callers.
pub fn fork_process() -> io::Result<ForkResult> {
    // SAFETY: there is one thread: no lock is held by a thread that the child does not have.
    Ok(unsafe { fork() }?)
}

/// Ends the calling process without destructors or handlers, which its parent will run, too.
pub fn exit_now(status: libc::c_int) -> ! {
    // SAFETY: takes its argument by value and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor except `kept`, and opens `/dev/null` as the standard ones. Only for a
/// process that has no other descriptor in a value that it will drop.
pub fn keep_only(kept: RawFd) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: descriptors are named by number; the caller promises that no value still owns the
    // closed descriptors, and `null` is forgotten below.
    unsafe {
        for standard in 0..3 {
            nix::errno::Errno::result(libc::dup2(null.as_raw_fd(), standard))?;
        }
        std::mem::forget(null);
        let (kept, last) = (kept as libc::c_uint, libc::c_uint::MAX);
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept.max(2) + 1, last, 0);
    }
    Ok(())
}

/// Gives the calling thread real-time priority (`SCHED_FIFO`), which children do not inherit.
pub fn set_realtime_priority(priority: libc::c_int) -> io::Result<()> {
    // The kernel's structure has only the priority. musl's function is not used: POSIX defines it
    // for whole processes, and musl rejects every call.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `priority` lives through the call, which reads an int; 0 names the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    nix::errno::Errno::result(result).map(drop).map_err(Into::into)
}

/// Keeps present mappings resident once they are touched. Later mappings are not locked, because
/// RLIMIT_MEMLOCK would then let allocations fail.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: takes flags by value.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
    nix::errno::Errno::result(result).map(drop).map_err(Into::into)
}
