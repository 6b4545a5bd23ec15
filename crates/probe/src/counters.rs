//! Counters that the threads of a server share.

use std::sync::{Mutex, PoisonError};

/// Counters that some threads update and others read.
#[derive(Debug, Default)]
pub struct Counters<T>(Mutex<T>);

impl<T: Copy> Counters<T> {
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn read(&self) -> T {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
