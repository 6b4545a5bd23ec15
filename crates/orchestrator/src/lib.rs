//! Admits runs and collects what they measured.
