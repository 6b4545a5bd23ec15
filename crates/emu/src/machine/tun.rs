//! TUN devices: this process is the wire between them.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use super::namespace::{NamespaceError, Network};
use super::sys;

/// A TUN device whose frames have a `virtio_net_hdr`. It is removed with its last descriptor.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

/// Why a TUN device could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    #[error("/dev/net/tun cannot be opened: try `modprobe tun`, and mode 0666 for non-root")]
    Open(#[source] io::Error),
    #[error("creating TUN device {name} in the {network} network")]
    Attach { name: String, network: String, source: io::Error },
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl Tun {
    /// Creates the device `name` in `network`. It is down and has no address yet.
    pub fn create(network: &Network, name: &str) -> Result<Self, TunError> {
        network.enter(|| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            let file = options.open("/dev/net/tun").map_err(TunError::Open)?;
            let attached = sys::attach_tun(&file, name);
            let attached = attached.and_then(|()| sys::set_tun_offload(&file, false));
            attached.map_err(|source| TunError::Attach {
                name: name.to_owned(),
                network: network.name().to_owned(),
                source,
            })?;
            Ok(Self { file, name: name.to_owned() })
        })?
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns another handle of the same device.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, name: self.name.clone() })
    }

    /// Sets whether the kernel may deliver super-packets of up to 64 KiB with incomplete checksums,
    /// instead of the packets that would be on the wire.
    pub fn set_offload(&self, on: bool) -> io::Result<()> {
        sys::set_tun_offload(&self.file, on)
    }

    /// Reads one frame; `None` if no frame is waiting.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one frame, which is given in two parts.
    pub fn write(&self, head: &[u8], rest: &[u8]) -> io::Result<()> {
        if rest.is_empty() {
            (&self.file).write(head).map(drop)
        } else {
            (&self.file).write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]).map(drop)
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
