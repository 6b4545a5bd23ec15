//! A flow's or a probe's handle on its session.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use underload_probe::load::FlowShare;
use underload_record::schema::Direction;

use super::account::Account;
use super::grant::Grant;
use super::traffic::Traffic;

/// A handle on the rates and the volume of a session.
#[derive(Clone, Debug)]
pub(crate) struct Share(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    traffic: Arc<Traffic>,
    account: Account,
    flows: AtomicUsize,
    /// Addresses that were proved over UDP to be the client's, except its TCP address.
    joined: Mutex<Vec<IpAddr>>,
}

/// A flow's place in its session; dropping it frees the place.
pub(crate) struct FlowPlace(Share);

impl Drop for FlowPlace {
    fn drop(&mut self) {
        self.0.0.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Share {
    pub(crate) fn new(traffic: Arc<Traffic>, grant: &Grant) -> Self {
        let (flows, joined) = (AtomicUsize::new(0), Mutex::default());
        Self(Arc::new(Shared { traffic, account: Account::new(grant), flows, joined }))
    }

    /// Counts one more flow until the returned place is dropped.
    pub(crate) fn enter(&self) -> FlowPlace {
        self.0.flows.fetch_add(1, Ordering::Relaxed);
        FlowPlace(self.clone())
    }

    pub(crate) fn flows(&self) -> usize {
        self.0.flows.load(Ordering::Relaxed)
    }

    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    fn now_ns(&self) -> u64 {
        self.0.traffic.now_ns()
    }

    /// Returns why the session has ended by itself; `None` while it runs.
    pub(crate) fn end(&self) -> Option<&'static str> {
        self.0.account.end(self.now_ns())
    }

    /// Returns whether the granted rate has ever limited the session, up and down.
    pub(crate) fn throttled(&self) -> (bool, bool) {
        let limited = |way| self.0.account.allowance(way).has_limited();
        (limited(Direction::Up), limited(Direction::Down))
    }

    pub(crate) fn joined_addresses(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlowShare for Share {
    fn is_over(&self) -> bool {
        self.0.account.is_over(self.now_ns())
    }

    fn take(&self, direction: Direction, bytes: u64) -> Result<(), Duration> {
        let taken = self.0.account.take(self.now_ns(), direction, bytes);
        if taken.is_ok() {
            self.0.traffic.add(direction, bytes);
        }
        taken
    }

    fn give_back(&self, direction: Direction, bytes: u64) {
        self.0.account.give_back(direction, bytes);
        self.0.traffic.subtract(direction, bytes);
    }

    fn charge(&self, direction: Direction, bytes: u64) {
        self.0.account.charge(self.now_ns(), direction, bytes);
        self.0.traffic.add(direction, bytes);
    }

    fn take_bytes(&self, direction: Direction) -> usize {
        self.0.account.take_bytes(direction) as usize
    }

    fn bit_per_s(&self, direction: Direction) -> u64 {
        self.0.account.allowance(direction).bit_per_s()
    }

    fn note_limited(&self, direction: Direction) {
        self.0.account.allowance(direction).note_limited();
    }

    fn joined(&self) -> Vec<IpAddr> {
        self.joined_addresses().clone()
    }
}
