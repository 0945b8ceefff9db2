//! `cargo +nightly fuzz run tree --sanitizer none` (the crate forbids `unsafe`, so a sanitizer finds nothing more).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| graftline_fuzz::play(data));
