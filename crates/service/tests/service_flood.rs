//! A flood of probes from addresses without a session gets no answer and uses no memory. This test
//! has a process for itself, so that the process's memory is the server's.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use underload_service::{Identity, Service, ServiceConfig};

const FLOOD: u64 = 100_000;
const SENDERS: u64 = 100;
const HELLOS: u64 = 20_000;

/// Returns the resident memory of this process, pages.
fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Waits up to ten seconds for a condition.
fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..200 {
        if condition() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends datagrams from all senders and waits until the server has counted them, so that its
/// socket's buffer does not drop any. `counted` returns the server's count.
fn flood<'a>(
    (senders, to): (&[UdpSocket], SocketAddr),
    datagrams: impl Iterator<Item = &'a [u8]>,
    counted: impl Fn() -> u64,
) {
    for (index, datagram) in (0..).zip(datagrams) {
        let _ = senders[(index % SENDERS) as usize].send_to(datagram, to);
        let mut patience = 50_000;
        while index > counted() + 100 {
            std::thread::sleep(Duration::from_micros(100));
            patience -= 1;
            assert!(patience > 0, "the server stopped counting at {}", counted());
        }
    }
}

#[test]
fn a_flood_of_forged_openings_gets_nothing_and_costs_nothing() {
    let identity = Identity::generate().unwrap();
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, ..ServiceConfig::on_loopback(identity) };
    let service = Service::start(config).unwrap();
    let probe = SocketAddr::from((Ipv4Addr::LOCALHOST, service.udp_port()));
    let senders: Vec<UdpSocket> = (0..SENDERS)
        .map(|i| UdpSocket::bind((Ipv4Addr::new(127, 0, 1, i as u8), 0)).unwrap())
        .collect();
    let seen = || service.probes().unknown;
    // The first datagram allocates; only growth after it counts.
    senders[0].send_to(&[0; 44], probe).unwrap();
    wait_for(|| seen() > 0);
    let before = resident_pages();
    let forged = (0..FLOOD).map(|index| &[0; 200][..14 + (index % 100) as usize]);
    flood((&senders, probe), forged, seen);
    wait_for(|| seen() > FLOOD);
    assert_eq!(seen(), FLOOD + 1);
    assert_eq!(service.probes().answered, 0);
    for sender in &senders {
        sender.set_nonblocking(true).unwrap();
        assert!(sender.recv(&mut [0; 300]).is_err(), "a byte came back");
    }
    // Hellos get an answer of the same length, up to a number per second and network.
    let mut hello = [0; 52];
    hello[..5].copy_from_slice(b"JUL1\x01");
    let begun = Instant::now();
    let hellos = || service.probes().spoken + service.probes().limited;
    flood((&senders, probe), (0..HELLOS).map(|_| &hello[..]), hellos);
    wait_for(|| hellos() == HELLOS);
    let spoken = service.probes().spoken;
    let most = 51.0 + 50.0 * begun.elapsed().as_secs_f64();
    assert!(spoken >= 50 && (spoken as f64) <= most, "{spoken} of {most}");
    assert_eq!(service.probes().limited, HELLOS - spoken);
    let mut answer = [0; 300];
    let answers = senders.iter().flat_map(|sender| {
        std::iter::from_fn(|| sender.recv(&mut answer).ok()).collect::<Vec<_>>()
    });
    let answers: Vec<usize> = answers.collect();
    assert_eq!(answers, vec![hello.len(); spoken as usize]);
    let growth = resident_pages().saturating_sub(before);
    assert!(growth < 256, "{growth} pages more for {FLOOD} datagrams");
}
