//! The table on a socket, with a thread: answers to probes wait for no load.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use dimpl::{Config, DtlsCertificate};
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use underload_probe::endpoint::ThreadTiming;
use underload_service::CompatLedger;

use super::sdp::{self, Answer, Offer};
use super::session::{Seat, Secrets, Session, Shown};
use super::table::Table;
use super::{ChannelError, ChannelLimits, OfferError, crypto};
use crate::nq::Channels;
use crate::{CompatError, Places, places};

/// A running server of channels. Dropping it ends them.
#[derive(Debug)]
pub struct ChannelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of a server of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    /// Offers answered.
    pub offers: u64,
    /// Offers turned away because there was no place.
    pub busy: u64,
    /// Probes answered.
    pub answered: u64,
    /// Datagrams that were nobody's.
    pub ignored: u64,
    /// Channels open, or being opened.
    pub sessions: usize,
}

struct Shared {
    limits: ChannelLimits,
    ledger: CompatLedger,
    places: Places,
    shown: Shown,
    table: Mutex<Table>,
    stop: AtomicBool,
    offers: AtomicU64,
    busy: AtomicU64,
    ignored: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither keys nor passwords.
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// How often time passes for sessions in which nothing happens.
const TICK: Duration = Duration::from_millis(20);
/// No datagram of a browser is longer; a longer one is cut, and then opens no cipher.
const DATAGRAM_BYTES_MAX: usize = 2048;
/// A flight of DTLS that gets no answer is sent again after this, then after twice as long.
const RESEND_AFTER: Duration = Duration::from_millis(500);
/// Bytes of UDP payload that fit everywhere.
const DATAGRAM_BYTES: usize = 1150;

impl ChannelServer {
    /// Serves on `socket`, which the caller bound; channels pay from `ledger` for what they move.
    ///
    /// # Errors
    /// [`ChannelError`]: a socket option refused, no thread, no randomness.
    pub fn start(
        socket: UdpSocket,
        limits: ChannelLimits,
        ledger: CompatLedger,
    ) -> Result<Self, ChannelError> {
        let failed = |step| move |source| CompatError::Socket { protocol: "channel", step, source };
        let address = socket.local_addr().map_err(failed("reading its address"))?;
        socket.set_read_timeout(Some(TICK)).map_err(failed("setting a timeout"))?;
        let shared = Arc::new(Shared {
            limits,
            ledger,
            places: places(limits.sessions_max, limits.sessions_per_network_max),
            shown: shown(&limits)?,
            table: Mutex::default(),
            stop: AtomicBool::new(false),
            offers: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new()
            .name("channel".to_owned())
            .spawn(move || serve(&socket, &of_thread))
            .map_err(failed("starting its thread"))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The address and port that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server has counted so far.
    pub fn counts(&self) -> ChannelCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let table = self.shared.table();
        ChannelCounts {
            offers: read(&self.shared.offers),
            busy: read(&self.shared.busy),
            answered: table.answered(),
            ignored: read(&self.shared.ignored),
            sessions: table.len(),
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
            self.shared.busy.fetch_add(1, Ordering::Relaxed);
            return Err(OfferError::Busy);
        };
        self.shared.offers.fetch_add(1, Ordering::Relaxed);
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
        // What panicked was out of the table at that time.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChannelServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A certificate for as long as the server runs: browsers learn it anew with each answer.
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

/// So many random bytes as hexadecimal digits, which are characters of ICE.
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

fn serve(socket: &UdpSocket, shared: &Shared) {
    ThreadTiming::default().apply();
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    let mut ticked = Instant::now();
    // What the kernel refuses to send is lost, as any datagram may be.
    let mut send = |bytes: &[u8], to: SocketAddr| drop(socket.send_to(bytes, to));
    while !shared.stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP complaints about earlier answers.
        if let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let bytes = &datagram[..len];
            let taken = catch_unwind(AssertUnwindSafe(|| {
                shared.table().datagram(Instant::now(), from, bytes, &shared.shown, &mut send)
            }));
            if !matches!(taken, Ok(true)) {
                shared.ignored.fetch_add(1, Ordering::Relaxed);
            }
        }
        let now = Instant::now();
        if now.duration_since(ticked) >= TICK {
            ticked = now;
            // One whose time cannot pass is no reason to end the others.
            let _ = catch_unwind(AssertUnwindSafe(|| shared.table().tick(now, &mut send)));
        }
    }
}
