//! Prefetches memory that is used soon.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "stable Rust has no other way to fetch memory ahead")
)]

/// Starts fetching `value` into the nearest cache. Changes only the time of a later access.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_start(value, size_of::<T>());
}

/// As [`prefetch`], for the first `bytes` of `value`.
#[inline]
pub(crate) fn prefetch_start<T>(value: &T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..bytes.min(size_of::<T>())).step_by(LINE_BYTES) {
            // SAFETY: a prefetch has no effect that the program can observe and never faults; the
            // address is within `value`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes);
}
