//! A flood of probes from addresses without a session: no answer, no memory. Alone in its process,
//! so that the process's memory is the server's.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use underload_probe::service::{Identity, Limits, Service, ServiceConfig};

const FLOOD: u64 = 100_000;
const SENDERS: u64 = 100;

/// Resident memory, pages.
fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_flood_of_forged_openings_gets_nothing_and_costs_nothing() {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // The probe port has to be known, which nobody tells who has no session: find a free one.
    let probe = UdpSocket::bind(loopback(0)).unwrap().local_addr().unwrap();
    let service = Service::start(ServiceConfig {
        control: loopback(0),
        load: loopback(0),
        probe,
        limits: Limits::default(),
        secret: None,
        identity: Identity::generate().unwrap(),
    })
    .unwrap();
    let senders: Vec<UdpSocket> = (0..SENDERS)
        .map(|i| UdpSocket::bind((Ipv4Addr::new(127, 0, 1, i as u8), 0)).unwrap())
        .collect();
    let seen = || service.probes().unknown;
    // Warm, so that what is counted is growth.
    senders[0].send_to(&[0; 44], probe).unwrap();
    for _ in 0..200 {
        if seen() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = resident_pages();
    for index in 0..FLOOD {
        let len = 14 + (index % 100) as usize;
        let _ = senders[(index % SENDERS) as usize].send_to(&[0; 200][..len], probe);
        // In step with the server, so that its socket's buffer does not drop the flood for it.
        let mut patience = 50_000;
        while index > seen() + 100 {
            std::thread::sleep(Duration::from_micros(100));
            patience -= 1;
            assert!(patience > 0, "the server stopped counting at {}", seen());
        }
    }
    for _ in 0..200 {
        if seen() > FLOOD {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(seen(), FLOOD + 1);
    assert_eq!(service.probes().answered, 0);
    for sender in &senders {
        sender.set_nonblocking(true).unwrap();
        assert!(sender.recv(&mut [0; 300]).is_err(), "an octet came back");
    }
    let growth = resident_pages().saturating_sub(before);
    assert!(growth < 256, "{growth} pages more for {FLOOD} datagrams");
}
