#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of `make fuzz`: the workspace's own crates count what they pass through,
# as libFuzzer wants it, on stable Rust. Third-party crates stay as they are. `trace-pc` counts how
# often, for the cost oracle: libFuzzer's counters have eight bits. Its function of that name does
# nothing, and the linker takes the first, which is that of the oracle.
exec "$@" -C passes=sancov-module \
	-C llvm-args=-sanitizer-coverage-level=4 \
	-C llvm-args=-sanitizer-coverage-inline-8bit-counters \
	-C llvm-args=-sanitizer-coverage-trace-pc \
	-C llvm-args=-sanitizer-coverage-pc-table \
	-C llvm-args=-sanitizer-coverage-trace-compares \
	-C link-arg=-Wl,--allow-multiple-definition
