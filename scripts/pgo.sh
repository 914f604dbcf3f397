#!/bin/bash
# Builds target/pgo/aquifer: the release binary, laid out by what a datastore does most (rustc's
# profile-guided optimisation). Two builds and a minute of load between them.
#
#   scripts/pgo.sh
#
# What holds: the load runs in a network namespace of its own, on a pool that lies in target/pgo;
# daemon and pool are gone when this ends, however it ends. Only what the compiler assumes to be
# usual depends on the load, never what the program does.
set -euo pipefail

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "pgo: needs root, for a network namespace" >&2; exit 1; }
host=$(rustc -vV | sed -n 's/^host: //p')
tools=$(rustc --print sysroot)/lib/rustlib/$host/bin
if [ ! -x "$tools/llvm-profdata" ]; then
    command -v rustup >/dev/null || {
        echo "pgo: no llvm-profdata of this compiler; rustup would bring it (llvm-tools)" >&2
        exit 1
    }
    rustup component add llvm-tools
fi

targets=$(readlink -f "${CARGO_TARGET_DIR:-target}")
# The socket too: its path may have 107 bytes.
work=$(mktemp -d "${TMPDIR:-/tmp}/aquifer-pgo-XXXXXX")
pool=$targets/pgo/pool.img
mkdir -p "$targets/pgo"
trap 'rm -rf "$work" "$pool"' EXIT

# With a target named, build scripts and macros are built without the flags.
build() {
    RUSTFLAGS=$1 cargo build --release --locked --target "$host" -p aquifer
}

cargo build --profile quick --locked -p aquifer-bench
build "-Cprofile-generate=$work/profile"

# What is usual, each for some seconds: random reads and stable writes of one or many machines, a
# boot, a copy.
loads=(
    "--read 0 --depth 1"
    "--read 0 --depth 32"
    "--read 0 --depth 32 --file 1024"
    "--read 100 --depth 64"
    "--read 70 --depth 32 --connections 4"
    "--read 0 --depth 8 --size 8"
    "--read 100 --depth 16 --size 64 --sequential"
    "--read 100 --depth 4 --size 1024 --sequential"
    "--read 0 --depth 16 --size 64 --sequential --stable unstable --commit-after 1024"
    "--read 0 --depth 4 --size 1024 --sequential --stable unstable --commit-after 64"
)
load() {
    local aquifer=("$targets/$host/release/aquifer" --api-socket "$work/socket") daemon words line
    ip link set lo up
    fallocate -l 4G "$pool"
    "${aquifer[@]}" serve --state-dir "$work/state" --config /dev/null --no-portmap \
        --nfs-addr 127.0.0.1:2049 --log warn &
    daemon=$!
    trap 'kill -KILL $daemon 2>/dev/null || true' EXIT
    for _ in {1..100}; do
        [ -S "$work/socket" ] && break
        sleep 0.1
    done
    "${aquifer[@]}" pool create -f tank "$pool"
    "${aquifer[@]}" create tank/vms
    "${aquifer[@]}" set sharenfs=on tank/vms
    for line in "${loads[@]}"; do
        read -ra words <<<"$line"
        "$targets/quick/aquifer-bench" load 2049 /tank/vms --seconds 3 "${words[@]}" | tail -n 1
    done
    # What was counted is written at its end.
    kill -TERM $daemon
    wait $daemon
    trap - EXIT
}
export targets host work pool
export -f load
declare -p loads >"$work/loads"
LLVM_PROFILE_FILE=$work/profile/%m-%p.profraw unshare --net \
    bash -euo pipefail -c 'source "$work/loads"; load'

"$tools/llvm-profdata" merge -o "$work/profile.profdata" "$work"/profile/*.profraw
build "-Cprofile-use=$work/profile.profdata"
install -m755 "$targets/$host/release/aquifer" "$targets/pgo/aquifer"
echo "pgo: $targets/pgo/aquifer"
