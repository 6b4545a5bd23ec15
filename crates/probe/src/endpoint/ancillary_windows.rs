//! Datagrams on Windows, which has no control data here: no marking is sent or read, arrivals have
//! the time at which this program reads them, and the system chooses the source of answers.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use windows_sys::Win32::Networking::WinSock::WSAEMSGSIZE;

use super::Received;

#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    #[expect(dead_code, reason = "no marking is sent")]
    pub over_ipv6: bool,
    #[expect(dead_code, reason = "the system chooses the source")]
    pub from: Option<IpAddr>,
    pub to: Option<SocketAddr>,
}

pub(super) fn ask_for_time(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

pub(super) fn ask_ipv4(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

pub(super) fn ask_ipv6(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

pub(super) fn ask_for_address(_: &UdpSocket, _: bool) -> io::Result<()> {
    Ok(())
}

pub(super) fn space() -> Vec<u8> {
    Vec::new()
}

pub(super) fn send(socket: &UdpSocket, bytes: &[u8], _: u8, way: Way) -> io::Result<usize> {
    match way.to {
        Some(peer) => socket.send_to(bytes, peer),
        None => socket.send(bytes),
    }
}

pub(super) fn receive(socket: &UdpSocket, _: &mut [u8], buffer: &mut [u8]) -> io::Result<Received> {
    let len = buffer.len();
    match socket.recv_from(buffer) {
        Ok((len, peer)) => Ok(Received { len, peer: Some(peer), ..Received::default() }),
        Err(error) if error.raw_os_error() == Some(WSAEMSGSIZE) => {
            Ok(Received { len, truncated: true, ..Received::default() })
        }
        Err(error) => Err(error),
    }
}
