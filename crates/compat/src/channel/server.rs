//! The table of channels on a UDP socket, with a separate thread so that load does not delay
//! answers to probes.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dimpl::{Config, DtlsCertificate};
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use underload_probe::Counters;
use underload_probe::endpoint::ThreadTiming;
use underload_service::CompatLedger;

use super::sdp::{self, Answer, Offer};
use super::session::{Seat, Secrets, Session, Shown};
use super::table::Table;
use super::{ChannelError, ChannelLimits, OfferError, crypto};
use crate::nq::Channels;
use crate::{CompatError, Places, Threads, places};

/// A running server of channels. Dropping it ends the channels and joins its thread.
#[derive(Debug)]
pub struct ChannelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    pub offers: u64,
    /// Offers rejected because there was no place.
    pub busy: u64,
    pub answered: u64,
    /// Datagrams that belong to no channel, or made its handler panic.
    pub ignored: u64,
    /// Channels that are open or being opened.
    pub sessions: usize,
}

struct Shared {
    limits: ChannelLimits,
    ledger: CompatLedger,
    places: Places,
    shown: Shown,
    table: Mutex<Table>,
    counters: Counters<ChannelCounts>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without keys and passwords.
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Interval at which timeouts of the sessions are checked.
const TICK: Duration = Duration::from_millis(20);
/// Longer than any datagram of a browser; a longer one is cut, and its decryption fails.
const DATAGRAM_BYTES_MAX: usize = 2048;
/// DTLS repeats an unanswered flight after this time, then after twice as long.
const RESEND_AFTER: Duration = Duration::from_millis(500);
/// Largest UDP payload that DTLS sends; every path carries it.
const DATAGRAM_BYTES: usize = 1150;

impl ChannelServer {
    /// Serves on `socket`, which the caller has bound. The channels' traffic is charged to
    /// `ledger`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option, the thread or random numbers.
    pub fn start(
        socket: UdpSocket,
        limits: ChannelLimits,
        ledger: CompatLedger,
    ) -> Result<Self, ChannelError> {
        let error = |step| move |source| CompatError::Socket { protocol: "channel", step, source };
        let address = socket.local_addr().map_err(error("reading its address"))?;
        socket.set_read_timeout(Some(TICK)).map_err(error("setting a timeout"))?;
        let shared = Arc::new(Shared {
            limits,
            ledger,
            places: places(limits.sessions_max, limits.sessions_per_network_max),
            shown: shown(&limits)?,
            table: Mutex::default(),
            counters: Counters::default(),
        });
        let thread_shared = Arc::clone(&shared);
        let mut threads = Threads::default();
        threads.spawn("channel", "channel", move |stop| serve(&socket, &thread_shared, stop))?;
        Ok(Self { address, shared, _threads: threads })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> ChannelCounts {
        let table = self.shared.table();
        ChannelCounts {
            answered: table.answered(),
            sessions: table.len(),
            ..self.shared.counters.read()
        }
    }

    fn open(&self, offer: &Offer, from: IpAddr) -> Option<Secrets> {
        let Shared { limits, places, ledger, .. } = &*self.shared;
        let now = Instant::now();
        let seat = Seat::take(places, now, from)?;
        let share = ledger.enter(from, limits.duration_max).ok()?;
        let secrets = Secrets {
            name: random_text(8)?,
            password: random_text(16)?,
            theirs: offer.name.clone(),
            fingerprint: offer.fingerprint,
        };
        let session = Session::new(now, secrets.clone(), limits, share, seat);
        self.shared.table().insert(&secrets, session);
        Some(secrets)
    }
}

impl Channels for ChannelServer {
    fn answer(
        &self,
        offer: &str,
        from: IpAddr,
        reached: IpAddr,
        authority: Option<&str>,
    ) -> Result<String, OfferError> {
        let offer = Offer::parse(offer)?;
        let Some(secrets) = self.open(&offer, from) else {
            self.shared.counters.update(|counts| counts.busy += 1);
            return Err(OfferError::Busy);
        };
        self.shared.counters.update(|counts| counts.offers += 1);
        let answer = Answer {
            name: &secrets.name,
            password: &secrets.password,
            fingerprint: &self.shared.shown.fingerprint,
            addresses: &sdp::addresses(reached, authority),
            port: self.address.port(),
        };
        Ok(answer.write(&offer.mid))
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A session that panics has been taken out of the table before.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a certificate for this run of the server; each answer contains its fingerprint.
pub(super) fn shown(limits: &ChannelLimits) -> Result<Shown, ChannelError> {
    let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()]);
    let made = made.map_err(ChannelError::Certificate)?;
    let certificate = DtlsCertificate {
        certificate: made.cert.der().to_vec(),
        private_key: made.signing_key.serialize_der(),
    };
    let config = Config::builder()
        .with_crypto_provider(crypto::provider())
        .mtu(DATAGRAM_BYTES)
        .flight_start_rto(RESEND_AFTER)
        .handshake_timeout(limits.setup_max)
        .use_server_cookie(true)
        .require_client_certificate(true)
        .build()
        .map_err(ChannelError::Dtls)?;
    let mut fingerprint = [0; 32];
    let digest = digest::digest(&digest::SHA256, &certificate.certificate);
    fingerprint.copy_from_slice(digest.as_ref());
    Ok(Shown { config: Arc::new(config), certificate, fingerprint })
}

/// Returns `bytes` random bytes, 16 at most, as hexadecimal digits, which ICE allows in names.
fn random_text(bytes: usize) -> Option<String> {
    let mut random = [0; 16];
    let random = random.get_mut(..bytes)?;
    SystemRandom::new().fill(random).ok()?;
    let mut text = String::new();
    for byte in random {
        write!(text, "{byte:02x}").ok()?;
    }
    Some(text)
}

fn serve(socket: &UdpSocket, shared: &Shared, stop: &AtomicBool) {
    ThreadTiming::default().apply();
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    let mut ticked = Instant::now();
    // A datagram that the kernel refuses to send is lost, as any datagram may be.
    let mut send = |bytes: &[u8], to: SocketAddr| drop(socket.send_to(bytes, to));
    while !stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP errors of earlier answers.
        if let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let bytes = &datagram[..len];
            let taken = catch_unwind(AssertUnwindSafe(|| {
                shared.table().datagram(Instant::now(), from, bytes, &shared.shown, &mut send)
            }));
            if !matches!(taken, Ok(true)) {
                shared.counters.update(|counts| counts.ignored += 1);
            }
        }
        let now = Instant::now();
        if now.duration_since(ticked) >= TICK {
            ticked = now;
            // A session that panics must not end the others.
            let _ = catch_unwind(AssertUnwindSafe(|| shared.table().tick(now, &mut send)));
        }
    }
}
