//! What the processor is asked for directly.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "stable Rust has no other way to fetch memory ahead")
)]

/// Asks for `value` to be fetched into the nearest cache, without waiting for it. Changes nothing
/// but the time that a later access takes.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_start(value, size_of::<T>());
}

/// The same for the first `bytes` of `value`.
#[inline]
pub(crate) fn prefetch_start<T>(value: &T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..bytes.min(size_of::<T>())).step_by(LINE_BYTES) {
            // SAFETY: a prefetch reads nothing that the program can see and faults nowhere; the
            // address is within `value` besides.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes);
}
