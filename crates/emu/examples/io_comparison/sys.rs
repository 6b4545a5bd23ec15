//! Packet sockets and their rings, for which no safe wrapper exists.
#![expect(unsafe_code, reason = "packet sockets and shared rings have no safe wrapper in nix")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS: usize = 32;

/// A packet socket on one device, which receives frames with a `virtio_net_hdr`. The calling thread
/// must be in the device's network.
pub fn packet_socket(device: &str) -> io::Result<OwnedFd> {
    let name = CString::new(device)?;
    // SAFETY: plain system calls; the new descriptor is owned at once, structures outlive calls.
    unsafe {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let fd = Errno::result(libc::socket(libc::AF_PACKET, kind, 0))?;
        let socket = OwnedFd::from_raw_fd(fd);
        set(&socket, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        Errno::result(libc::bind(fd, (&raw const address).cast(), length))?;
        Ok(socket)
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value is plain data that outlives the call.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        let length = size_of::<T>() as u32;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length)
    };
    Errno::result(result).map(drop).map_err(Into::into)
}

/// A receive ring (TPACKET_V3) shared with the kernel.
pub struct Ring {
    memory: *mut u8,
    block: usize,
}

// SAFETY: the mapping belongs to this value alone, whichever thread holds it.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives the socket a ring whose blocks are delivered after at most a millisecond.
    pub fn new(socket: &OwnedFd) -> io::Result<Self> {
        set(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as i32))?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK_BYTES / 2048 * BLOCKS) as u32,
            tp_retire_blk_tov: 1,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(socket, libc::PACKET_RX_RING, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps the ring that was just made, in its whole length.
        let memory = unsafe {
            let length = BLOCK_BYTES * BLOCKS;
            let fd = socket.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { memory: memory.cast(), block: 0 })
    }

    /// Calls `take` with each frame of the next block, `virtio_net_hdr` first, and returns the
    /// block to the kernel. Returns false if the block still belongs to the kernel.
    pub fn take_block(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        // SAFETY: `block` stays below BLOCKS; the status word is read before and written after
        // everything else in the block, and the kernel keeps offsets within the block.
        unsafe {
            let start = self.memory.add(self.block * BLOCK_BYTES);
            let header: *mut libc::tpacket_block_desc = start.cast();
            let status = &raw mut (*header).hdr.bh1.block_status;
            if status.read_volatile() & libc::TP_STATUS_USER == 0 {
                return false;
            }
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            let first = (*header).hdr.bh1.offset_to_first_pkt as usize;
            let mut frame = start.add(first);
            for _ in 0..(*header).hdr.bh1.num_pkts {
                let info: *const libc::tpacket3_hdr = frame.cast();
                let vnet = usize::from((*info).tp_mac) - 10;
                let length = 10 + (*info).tp_snaplen as usize;
                take(std::slice::from_raw_parts(frame.add(vnet), length));
                frame = frame.add((*info).tp_next_offset as usize);
            }
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            status.write_volatile(libc::TP_STATUS_KERNEL);
        }
        self.block = (self.block + 1) % BLOCKS;
        true
    }
}

/// Sends one frame, `virtio_net_hdr` first.
pub fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the slice outlives the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    Errno::result(sent).map(drop).map_err(Into::into)
}

/// Receives one frame, `virtio_net_hdr` first; `None` if no frame is waiting.
pub fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the slice outlives the call.
    let got = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags)
    };
    match Errno::result(got) {
        Ok(length) => Ok(Some(length as usize)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
