//! All channels of a server, without sockets: it passes datagrams to their sessions and removes
//! sessions that have ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use is::stun::StunMessage;

use super::session::{Secrets, Send, Session, Shown};

/// Sessions by the server's half of their name, and these names by the addresses that proved it.
#[derive(Default)]
pub(super) struct Table {
    sessions: BTreeMap<String, Session>,
    by_address: BTreeMap<SocketAddr, String>,
    answered: u64,
}

/// First bytes of the two protocols that share the socket (RFC 7983).
const STUN: std::ops::RangeInclusive<u8> = 0..=3;
const DTLS: std::ops::RangeInclusive<u8> = 20..=63;

impl Table {
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Probes answered, including those of ended sessions.
    pub(super) fn answered(&self) -> u64 {
        self.answered + self.sessions.values().map(Session::answered).sum::<u64>()
    }

    pub(super) fn insert(&mut self, secrets: &Secrets, session: Session) {
        self.sessions.insert(secrets.name.clone(), session);
    }

    /// Passes a datagram to its session. Returns false if it belongs to none; then nothing is sent.
    pub(super) fn datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        shown: &Shown,
        send: &mut Send<'_>,
    ) -> bool {
        match datagram.first() {
            Some(first) if STUN.contains(first) => self.check(now, from, datagram, send),
            Some(first) if DTLS.contains(first) => {
                let Some(name) = self.by_address.get(&from).cloned() else { return false };
                // Taken out of the table, so that a panic removes this session alone.
                let Some(mut session) = self.sessions.remove(&name) else { return false };
                session.datagram(now, from, datagram, shown, send);
                self.keep(name, session);
                true
            }
            _ => false,
        }
    }

    fn check(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        send: &mut Send<'_>,
    ) -> bool {
        let Ok(message) = StunMessage::parse(datagram) else { return false };
        let Some((name, _)) = message.split_username() else { return false };
        // The address has another session's channel: the sender is forged to take that channel
        // over.
        let is_anothers = self.by_address.get(&from).is_some_and(|own| {
            own != name && self.sessions.get(own).is_some_and(|session| session.is_with(from))
        });
        if is_anothers {
            return false;
        }
        let Some(mut session) = self.sessions.remove(name) else { return false };
        let is_good = session.check(now, from, &message, send);
        if is_good {
            self.by_address.insert(from, name.to_owned());
        }
        self.keep(name.to_owned(), session);
        is_good
    }

    pub(super) fn tick(&mut self, now: Instant, send: &mut Send<'_>) {
        let names: Vec<String> = self.sessions.keys().cloned().collect();
        for name in names {
            if let Some(mut session) = self.sessions.remove(&name) {
                session.tick(now, send);
                self.keep(name, session);
            }
        }
        self.forget_addresses();
    }

    fn keep(&mut self, name: String, session: Session) {
        if session.is_over {
            self.answered += session.answered();
            self.forget_addresses();
        } else {
            self.sessions.insert(name, session);
        }
    }

    fn forget_addresses(&mut self) {
        let sessions = &self.sessions;
        self.by_address.retain(|_, name| sessions.contains_key(name));
    }
}
