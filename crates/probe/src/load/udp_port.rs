//! UDP flows that share the server's one UDP port with its probes.
//!
//! The client's first datagrams reach the port's own socket, whose reader passes them on to
//! [`UdpFlows`]. After its first datagram a flow opens a separate socket on the same address and
//! port, connected to the client: from then on the kernel delivers the flow's datagrams to that
//! socket, and the probes' reader sees none of them. Between binding and connecting the new socket,
//! a few microseconds, it may receive another client's datagram, which is lost.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, SockRef, Type};
use underload_record::schema::Marking;

use super::peer::set_marking;
use super::protocol::DatagramHeader;
use crate::network::{SocketSource, is_temporary};

/// Flows that wait for their client's first datagram, or have just received it.
#[derive(Debug, Default)]
pub struct UdpFlows(Mutex<Vec<Expected>>);

#[derive(Clone, Debug)]
struct Expected {
    cookie: u64,
    addresses: Vec<IpAddr>,
    early: Arc<Early>,
}

/// Counters of a flow's datagrams that reached the port's own socket.
#[derive(Debug, Default)]
struct Early {
    peer: Mutex<Option<SocketAddr>>,
    bytes: AtomicU64,
    packets: AtomicU64,
}

impl UdpFlows {
    /// Counts a datagram of a load flow. Returns true for any load datagram, even of an unknown
    /// flow, and false for a probe.
    pub fn offer(&self, datagram: &[u8], from: SocketAddr) -> bool {
        let Some(header) = DatagramHeader::decode(datagram).filter(|header| header.has_cookie())
        else {
            return false;
        };
        let flows = self.lock();
        let wanted = |flow: &&Expected| {
            flow.cookie == header.cookie && flow.addresses.contains(&from.ip().to_canonical())
        };
        if let Some(flow) = flows.iter().find(wanted) {
            flow.early.bytes.fetch_add(datagram.len() as u64, Ordering::Relaxed);
            flow.early.packets.fetch_add(1, Ordering::Relaxed);
            flow.early.peer.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(from);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the datagrams of one UDP flow reach the server.
pub(super) enum UdpEnd {
    /// A separate socket with a separate port.
    Own { socket: UdpSocket, cookie: u64, from: IpAddr },
    /// The shared port; `None` after the client's first datagram.
    Shared(Option<SharedEnd>),
}

/// The registration of a flow that waits at the shared port; dropping it ends the registration.
pub(super) struct SharedEnd {
    flows: Arc<UdpFlows>,
    network: Arc<dyn SocketSource>,
    local: SocketAddr,
    marking: Marking,
    cookie: u64,
    early: Arc<Early>,
}

/// A flow whose client has sent its first datagram.
pub(super) struct Meeting {
    pub socket: UdpSocket,
    pub cookie: u64,
    pub bytes: u64,
    pub packets: u64,
    /// Datagrams that still reach the port's own socket; `None` for a flow with a separate port.
    pub early: Option<SharedEnd>,
}

impl SharedEnd {
    pub(super) fn new(
        flows: &Arc<UdpFlows>,
        network: &Arc<dyn SocketSource>,
        local: SocketAddr,
        marking: Marking,
        cookie: u64,
        addresses: Vec<IpAddr>,
    ) -> Self {
        let early = Arc::new(Early::default());
        flows.lock().push(Expected { cookie, addresses, early: Arc::clone(&early) });
        Self {
            flows: Arc::clone(flows),
            network: Arc::clone(network),
            local,
            marking,
            cookie,
            early,
        }
    }

    /// Returns bytes and datagrams of the port's own socket since the last call.
    pub(super) fn take_early(&self) -> (u64, u64) {
        let Early { bytes, packets, .. } = &*self.early;
        (bytes.swap(0, Ordering::Relaxed), packets.swap(0, Ordering::Relaxed))
    }

    fn socket_to(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        let domain = Domain::for_address(self.local);
        let socket = self.network.socket(domain, Type::DGRAM)?;
        if self.local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // All sockets of the port share it, which the kernel allows to one user.
        crate::system::share_port(&socket)?;
        set_marking(&SockRef::from(&socket), domain, self.marking)?;
        let _ = socket.set_recv_buffer_size(4 << 20);
        socket.bind(&self.local.into())?;
        socket.connect(&peer.into())?;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(socket.into())
    }
}

impl Drop for SharedEnd {
    fn drop(&mut self) {
        let early = &self.early;
        self.flows.lock().retain(|flow| !Arc::ptr_eq(&flow.early, early));
    }
}

/// Interval at which a flow checks whether it should end.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl UdpEnd {
    /// Waits at most [`READ_TIMEOUT`] for the client's first datagram.
    pub(super) fn meet(&mut self) -> io::Result<Option<Meeting>> {
        match self {
            Self::Own { socket, cookie, from } => {
                let (cookie, from) = (*cookie, *from);
                let mut datagram = [0; 2048];
                let (len, sender) = match socket.recv_from(&mut datagram) {
                    Ok(received) => received,
                    Err(error) if is_temporary(&error) => return Ok(None),
                    Err(error) => return Err(error),
                };
                let header = DatagramHeader::decode(&datagram[..len]);
                if sender.ip() != from || header.is_none_or(|header| header.cookie != cookie) {
                    return Ok(None);
                }
                let socket = socket.try_clone()?;
                socket.connect(sender)?;
                let (bytes, packets) = (len as u64, 1);
                Ok(Some(Meeting { socket, cookie, bytes, packets, early: None }))
            }
            Self::Shared(waiting) => {
                let Some(end) = waiting.as_ref() else { return Ok(None) };
                let peer = *end.early.peer.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(peer) = peer else {
                    std::thread::sleep(READ_TIMEOUT / 4);
                    return Ok(None);
                };
                let (socket, cookie) = (end.socket_to(peer)?, end.cookie);
                Ok(Some(Meeting { socket, cookie, bytes: 0, packets: 0, early: waiting.take() }))
            }
        }
    }
}
