//! libFuzzer around one target, which `AQUIFER_FUZZ` names; libFuzzer's own options apply.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("AQUIFER_FUZZ").unwrap_or_default();
    match aquifer_fuzz::target(&name) {
        Some(target) => target.run,
        None => {
            let names = aquifer_fuzz::TARGETS.map(|target| target.name).join(", ");
            eprintln!("AQUIFER_FUZZ={name:?} is to be one of {names}");
            std::process::exit(2);
        }
    }
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
