//! Relays the browser's connections to the orchestrator. The port is opened in the network that the
//! demo was started in, before the demo moves to its own network.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// Concurrent connections; a browser opens about six.
const CONNECTIONS_MAX: usize = 64;

/// Relays connections until the program ends.
pub(super) fn start(listener: TcpListener, to: SocketAddr) -> io::Result<()> {
    let open = Arc::<AtomicUsize>::default();
    Builder::new().name("relay".to_owned()).spawn(move || {
        loop {
            let Ok((visitor, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let counted = Arc::clone(&open);
            let relayed = Builder::new().name("visitor".to_owned()).spawn(move || {
                let _ = relay(visitor, to);
                counted.fetch_sub(1, Ordering::Relaxed);
            });
            if relayed.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(())
}

fn relay(mut visitor: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut host = TcpStream::connect(to)?;
    let (mut from_host, mut to_visitor) = (host.try_clone()?, visitor.try_clone()?);
    let answers = Builder::new().name("answers".to_owned()).spawn(move || {
        let copied = io::copy(&mut from_host, &mut to_visitor).and_then(|_| to_visitor.flush());
        // Both directions: a host that has sent its answer reads no further requests.
        let _ = to_visitor.shutdown(Shutdown::Both);
        copied
    })?;
    let _ = io::copy(&mut visitor, &mut host);
    let _ = host.shutdown(Shutdown::Write);
    let _ = answers.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_relay_forwards_requests_and_answers() {
        let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = door.local_addr().expect("an address");
        start(door, host.local_addr().expect("an address")).expect("it opens");
        let mut visitor = TcpStream::connect(address).expect("it is open");
        visitor.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
        visitor.write_all(b"question").expect("it is sent");
        visitor.shutdown(Shutdown::Write).expect("it is said");
        let (mut asked, _) = host.accept().expect("it is passed on");
        let mut question = String::new();
        asked.read_to_string(&mut question).expect("it comes");
        asked.write_all(b"answer").expect("it is sent");
        drop(asked);
        let mut answer = String::new();
        visitor.read_to_string(&mut answer).expect("it comes");
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    }
}
