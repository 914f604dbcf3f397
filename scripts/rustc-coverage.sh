#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of `make fuzz`: the workspace's own crates count what they pass through,
# as libFuzzer wants it, on stable Rust. Third-party crates stay as they are.
exec "$@" -C passes=sancov-module \
	-C llvm-args=-sanitizer-coverage-level=4 \
	-C llvm-args=-sanitizer-coverage-inline-8bit-counters \
	-C llvm-args=-sanitizer-coverage-pc-table \
	-C llvm-args=-sanitizer-coverage-trace-compares
