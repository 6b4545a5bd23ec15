//! Name service behind a link.
//!
//! A command's namespace has its own loopback, so a `resolv.conf` that names a resolver on the
//! host's loopback (systemd-resolved, dnsmasq) does not work. The command then sees another
//! `resolv.conf`, which names the host's end of the link, where a relay forwards queries.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Maximum number of queries under way; more are dropped, as by an overloaded resolver.
const QUERIES_MAX: usize = 64;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

fn name_servers(resolv_conf: &str) -> Vec<IpAddr> {
    let lines = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.split('%').next()?.trim().parse().ok()).collect()
}

/// Returns the resolver on the host's loopback if `resolv_conf` names only such resolvers.
pub fn loopback_resolver(resolv_conf: &str) -> Option<IpAddr> {
    let servers = name_servers(resolv_conf);
    let first = *servers.first()?;
    servers.iter().all(IpAddr::is_loopback).then_some(first)
}

/// Returns `resolv_conf` with `server` instead of its name servers.
pub fn with_name_server(resolv_conf: &str, server: Ipv4Addr) -> String {
    let kept = resolv_conf.lines().filter(|line| !line.trim().starts_with("nameserver"));
    let text: String = kept.flat_map(|line| [line, "\n"]).collect();
    format!("{text}nameserver {server}\n")
}

/// Relays queries of `client` at `address` to `resolver`, in threads that end with the process.
/// Others are ignored: the address belongs to a device of the host, and Linux accepts packets for
/// it on every device.
pub fn relay(address: Ipv4Addr, client: Ipv4Addr, resolver: IpAddr) -> io::Result<()> {
    relay_at(SocketAddr::from((address, 53)), client, SocketAddr::from((resolver, 53)))
}

fn relay_at(inside: SocketAddr, client: Ipv4Addr, outside: SocketAddr) -> io::Result<()> {
    let datagrams = Arc::new(UdpSocket::bind(inside)?);
    let streams = TcpListener::bind(inside)?;
    let under_way = Arc::new(AtomicUsize::new(0));
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let count = Arc::clone(&under_way);
    spawn("dns-udp").spawn(move || {
        let mut query = [0; 4096];
        while let Ok((length, from)) = datagrams.recv_from(&mut query) {
            if from.ip() != client {
                continue;
            }
            let (query, datagrams) = (query[..length].to_vec(), Arc::clone(&datagrams));
            in_thread(&count, move || {
                let answer = ask(&query, outside)?;
                datagrams.send_to(&answer, from).map(drop)
            });
        }
    })?;
    spawn("dns-tcp").spawn(move || {
        for stream in streams.incoming().map_while(Result::ok) {
            if !stream.peer_addr().is_ok_and(|from| from.ip() == client) {
                continue;
            }
            in_thread(&under_way, move || splice(&stream, outside));
        }
    })?;
    Ok(())
}

/// Runs one query in its own thread, unless too many are under way. Errors are ignored, because the
/// client repeats a failed query.
fn in_thread(running: &Arc<AtomicUsize>, query: impl FnOnce() -> io::Result<()> + Send + 'static) {
    if running.load(Relaxed) >= QUERIES_MAX {
        return;
    }
    running.fetch_add(1, Relaxed);
    let count = Arc::clone(running);
    let started = std::thread::Builder::new().spawn(move || {
        let _ = query();
        count.fetch_sub(1, Relaxed);
    });
    if started.is_err() {
        running.fetch_sub(1, Relaxed);
    }
}

fn ask(query: &[u8], resolver: SocketAddr) -> io::Result<Vec<u8>> {
    let local: IpAddr = if resolver.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(resolver)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.send(query)?;
    let mut answer = vec![0; 65_535];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn splice(client: &TcpStream, resolver: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&resolver, ANSWER_LIMIT)?;
    for stream in [client, &server] {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| io::copy(&mut &*client, &mut &server));
        io::copy(&mut &server, &mut &*client).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_only_loopback_servers_needs_a_relay() {
        let v4 = |text: &str| loopback_resolver(text);
        assert_eq!(v4("nameserver 127.0.0.53\noptions edns0\n"), "127.0.0.53".parse().ok());
        assert_eq!(v4("nameserver ::1\n"), "::1".parse().ok());
        assert_eq!(v4("nameserver 127.0.0.1\nnameserver 9.9.9.9\n"), None);
        assert_eq!(v4("# nothing\n"), None);
        assert_eq!(v4("nameserver fe80::1%eth0\n"), None);
    }

    /// Whether a relay for `client` on loopback answers 127.0.0.1.
    fn is_answered(client: Ipv4Addr) -> bool {
        let resolver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let outside = resolver.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut query = [0; 64];
            while let Ok((length, from)) = resolver.recv_from(&mut query) {
                let _ = resolver.send_to(&query[..length], from);
            }
        });
        // A port that is currently free for both protocols.
        let probe = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let inside = probe.local_addr().expect("an address");
        drop(probe);
        relay_at(inside, client, outside).expect("a relay");
        let asking = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        asking.connect(inside).expect("an address");
        let is_strange = client != Ipv4Addr::LOCALHOST;
        let patience = Duration::from_secs(if is_strange { 1 } else { 30 });
        asking.set_read_timeout(Some(patience)).expect("a time");
        asking.send(b"name").expect("sent");
        let mut answer = [0; 64];
        asking.recv(&mut answer).is_ok_and(|length| &answer[..length] == b"name")
    }

    #[test]
    fn only_the_command_is_answered() {
        assert!(is_answered(Ipv4Addr::LOCALHOST));
        assert!(!is_answered(Ipv4Addr::new(100, 126, 0, 2)));
    }

    #[test]
    fn search_domains_and_options_are_kept() {
        let text =
            with_name_server("search a.example\nnameserver 127.0.0.53\n", [1, 2, 3, 4].into());
        assert_eq!(text, "search a.example\nnameserver 1.2.3.4\n");
    }
}
