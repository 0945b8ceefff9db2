//! Plays random bytes: less than a fuzzer does, but with any toolchain and in a few seconds.

/// Inputs of a linear congruential generator, the same at every run; `GRAFTLINE_FUZZ_INPUTS` sets how many.
#[test]
fn random_bytes_find_no_difference() {
    let inputs = std::env::var("GRAFTLINE_FUZZ_INPUTS").map_or(5_000, |text| text.parse().expect("a number"));
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for _ in 0..inputs {
        let length = 8 + usize::from(byte()) * 4;
        let data: Vec<u8> = (0..length).map(|_| byte()).collect();
        graftline_fuzz::play(&data);
    }
}
