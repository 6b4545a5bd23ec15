//! Queue disciplines and links as pure functions of time.
#![no_std]
extern crate alloc;
