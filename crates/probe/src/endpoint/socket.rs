//! A UDP socket that reports when a packet arrived, and with which marking.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::SockRef;

use super::ancillary::{self, Way};
use super::{EndpointError, Received};

/// Socket buffers for packets that arrive while the thread waits for a processor: one second of 1
/// ms probes in a dozen classes, as the kernel counts memory per small packet.
const BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket with kernel time stamps and markings of received packets.
#[derive(Debug)]
pub struct ProbeSocket {
    socket: UdpSocket,
    sends_over_ipv6: bool,
    control: Vec<u8>,
}

impl ProbeSocket {
    /// Prepares a bound socket: time stamps, markings, buffers. `end` is its name in errors.
    ///
    /// # Errors
    /// Returns [`EndpointError::Socket`] if the kernel refuses an option that the measurement
    /// needs.
    pub fn new(socket: UdpSocket, end: &'static str) -> Result<Self, EndpointError> {
        let error = |step| move |source: io::Error| EndpointError::Socket { end, step, source };
        let local = socket.local_addr().map_err(error("reading its address"))?;
        let options = SockRef::from(&socket);
        // The kernel may cap the buffers at its own limit.
        let _ = options.set_recv_buffer_size(BUFFER_BYTES);
        let _ = options.set_send_buffer_size(BUFFER_BYTES);
        ancillary::ask_for_time(&socket).map_err(error("asking for receive time stamps"))?;
        if local.is_ipv6() {
            let asked = ancillary::ask_ipv6(&socket);
            asked.map_err(error("asking for the traffic class and the hop limit"))?;
        }
        // On a dual-stack IPv6 socket these serve IPv4 peers; a socket for IPv6 alone may refuse
        // them.
        let for_ipv4 = ancillary::ask_ipv4(&socket);
        if local.is_ipv4() {
            for_ipv4.map_err(error("asking for the type of service and the time to live"))?;
        }
        ancillary::ask_for_address(&socket, local.is_ipv6())
            .map_err(error("asking for the address"))?;
        Ok(Self { socket, sends_over_ipv6: local.is_ipv6(), control: ancillary::space() })
    }

    /// Returns another handle to the same socket, for another thread.
    ///
    /// # Errors
    /// Returns the kernel's error, for example if the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            sends_over_ipv6: self.sends_over_ipv6,
            control: self.control.clone(),
        })
    }

    /// Exchanges datagrams only with `peer` from now on.
    ///
    /// # Errors
    /// Returns the kernel's error, for example without a route.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(peer)?;
        self.sends_over_ipv6 = is_ipv6_on_the_wire(peer);
        Ok(())
    }

    /// Returns the address and port that the socket is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sets how long [`ProbeSocket::recv`] waits before it fails with
    /// [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Returns an error for a zero duration.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Sends one datagram with DSCP and ECN `class`, to `peer` or, if `None`, to the connected
    /// peer.
    ///
    /// # Errors
    /// Returns the kernel's error; [`io::ErrorKind::WouldBlock`] if its buffer is full.
    pub fn send(&self, bytes: &[u8], class: u8, peer: Option<SocketAddr>) -> io::Result<usize> {
        self.send_from(None, bytes, class, peer)
    }

    /// Sends an answer to the sender of a datagram, from the address that the datagram was sent to:
    /// on a machine with several addresses the kernel might choose another one.
    pub fn answer(&self, to: &Received, bytes: &[u8], class: u8) -> io::Result<usize> {
        self.send_from(to.sent_to, bytes, class, to.peer)
    }

    fn send_from(
        &self,
        from: Option<IpAddr>,
        bytes: &[u8],
        class: u8,
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let over_ipv6 = peer.map_or(self.sends_over_ipv6, is_ipv6_on_the_wire);
        ancillary::send(&self.socket, bytes, class, Way { over_ipv6, from, to: peer })
    }

    /// Receives one datagram with its ancillary data.
    ///
    /// # Errors
    /// Returns the kernel's error; [`io::ErrorKind::WouldBlock`] after the read timeout;
    /// [`io::ErrorKind::ConnectionRefused`] if the connected peer's port is closed.
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        ancillary::receive(&self.socket, &mut self.control, buffer)
    }
}

/// Returns false for IPv4 peers of a dual-stack socket, too: their packets are IPv4.
fn is_ipv6_on_the_wire(peer: SocketAddr) -> bool {
    match peer.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(address: &str) -> io::Result<(ProbeSocket, ProbeSocket)> {
        let near = UdpSocket::bind(address)?;
        let far = UdpSocket::bind(address)?;
        let mut near = ProbeSocket::new(near, "near").unwrap();
        let far = ProbeSocket::new(far, "far").unwrap();
        near.connect(far.local_addr()?)?;
        far.set_read_timeout(Duration::from_secs(5))?;
        Ok((near, far))
    }

    fn marking_and_time_arrive(address: &str) {
        let Ok((near, mut far)) = pair(address) else {
            eprintln!("SKIPPED marking over {address}: the address cannot be bound here");
            return;
        };
        for class in [0xb5, 0x00, 0xb7] {
            near.send(b"hello", class, None).unwrap();
            let received = far.recv(&mut [0; 100]).unwrap();
            assert_eq!((received.len, received.traffic_class), (5, Some(class)));
            assert_eq!(received.peer, near.local_addr().ok());
            assert!(received.ttl.is_some_and(|ttl| ttl > 0));
            assert!(received.kernel_unix_ns.is_some_and(|ns| ns > 1_600_000_000_000_000_000));
            assert!(!received.truncated);
        }
        near.send(&[0; 50], 0, None).unwrap();
        assert!(far.recv(&mut [0; 20]).unwrap().truncated);
    }

    #[test]
    fn marking_and_time_arrive_over_ipv4() {
        marking_and_time_arrive("127.0.0.1:0");
    }

    #[test]
    fn marking_and_time_arrive_over_ipv6() {
        marking_and_time_arrive("[::1]:0");
    }

    /// A socket that is bound to all of a machine's addresses answers from the one that was asked.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_answer_comes_from_the_probed_address() {
        let far = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = far.local_addr().unwrap().port();
        let mut far = ProbeSocket::new(far, "far").unwrap();
        far.set_read_timeout(Duration::from_secs(5)).unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        near.connect(("127.0.0.2", port)).unwrap();
        near.send(b"question").unwrap();
        let received = far.recv(&mut [0; 100]).unwrap();
        assert_eq!(received.sent_to, Some("127.0.0.2".parse().unwrap()));
        far.answer(&received, b"answer", 0xb5).unwrap();
        let mut answer = [0; 100];
        let len =
            near.recv(&mut answer).expect("a connected socket receives from that address alone");
        assert_eq!(&answer[..len], b"answer");
    }

    #[test]
    fn an_answer_comes_from_the_probed_address_over_ipv6() {
        let Ok(far) = UdpSocket::bind("[::]:0") else {
            eprintln!("SKIPPED an answer over IPv6: there is no IPv6 here");
            return;
        };
        let port = far.local_addr().unwrap().port();
        let mut far = ProbeSocket::new(far, "far").unwrap();
        far.set_read_timeout(Duration::from_secs(5)).unwrap();
        let near = UdpSocket::bind("[::1]:0").unwrap();
        near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        near.connect(("::1", port)).unwrap();
        near.send(b"question").unwrap();
        let received = far.recv(&mut [0; 100]).unwrap();
        if cfg!(target_os = "linux") {
            assert_eq!(received.sent_to, Some("::1".parse().unwrap()));
        }
        far.answer(&received, b"answer", 0xb5).unwrap();
        assert_eq!(near.recv(&mut [0; 100]).expect("an answer"), 6);
    }
}
