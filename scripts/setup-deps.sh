#!/bin/sh
# Installs the Debian packages that building, testing and demonstrating Aquifer need.
#
#   scripts/setup-deps.sh [build] [clients] [guest] [capture] [peer] [service] [browser] [shells]
#                         [package] [bench] [fuzz]                            (no argument: all groups)
#   scripts/setup-deps.sh mutants     installs cargo-mutants, from the registry of crates, with cargo
#   scripts/setup-deps.sh deny        installs cargo-deny in the same way
#   scripts/setup-deps.sh deb         installs cargo-deb in the same way
#
# What holds: packages are installed by name and only if missing, so a second run changes nothing
# and asks the network for nothing; no question is ever asked; no service is started by an
# installation (rpcbind and nfs-ganesha would open port 111 and 2049 on this machine; the tests
# start them in a network namespace of their own). Any failure is a non-zero exit status.
set -eu

packages_of() {
    case "$1" in
        # Compiler and linker for the C libraries below, mkfs for images.
        build)   echo "gcc libc6-dev make pkg-config e2fsprogs" ;;
        # Programs that are clients of an NFS server: libnfs's tools, QEMU's nfs:// driver,
        # showmount (nfs-common) and rpcinfo (rpcbind).
        clients) echo "libnfs-utils qemu-utils qemu-block-extra nfs-common rpcbind" \
                      "util-linux iproute2" ;;
        # A virtual machine: QEMU, a static userland, depmod for the unpacked kernel's modules,
        # debootstrap for a disk image with Debian on it, a database to run in a guest.
        guest)   echo "qemu-system-x86 qemu-utils qemu-block-extra busybox-static kmod" \
                      "e2fsprogs util-linux iproute2 debootstrap sqlite3 xz-utils" ;;
        # A second opinion on every message on the wire.
        capture) echo "tshark" ;;
        # Another NFS server, to prove the harness against and to compare with.
        peer)    echo "nfs-ganesha nfs-ganesha-vfs rpcbind util-linux iproute2" ;;
        # What judges the unit for systemd (systemd-analyze), the calls of a program, rules and
        # metrics for Prometheus (promtool), and examples of the API.
        service) echo "systemd strace util-linux prometheus curl" ;;
        # What opens the page.
        browser) echo "chromium" ;;
        # What reads the manual's pages and the shells' completions.
        shells)  echo "bash mandoc zsh fish" ;;
        # What a Debian package is made with: strip, and the dependencies of a program.
        package) echo "binutils dpkg-dev git" ;;
        # What is measured beside ours, also on a btrfs over loop devices.
        bench)   echo "nfs-ganesha nfs-ganesha-vfs rpcbind util-linux iproute2 mount coreutils" \
                      "btrfs-progs" ;;
        # libFuzzer is C++, built from the sources that its crate carries.
        fuzz)    echo "g++" ;;
        *)       return 1 ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    else
        echo "setup-deps: needs root (or sudo without a password) to install:$missing" >&2
        exit 1
    fi
}

# Debian starts a service at installation unless this file says no; the machine's own is left alone.
forbid_service_start() {
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && return 0
    trap 'as_root rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' > $policy && chmod 755 $policy"
}

apt() {
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

# Quiet if it works; if not, what it said.
quietly() {
    if output=$("$@" 2>&1); then return 0; fi
    printf '%s\n' "$output" >&2
    return 1
}

CARGO_MUTANTS=27.1.0
CARGO_DENY=0.20.2
CARGO_DEB=3.8.0

[ $# -gt 0 ] || set -- build clients guest capture peer service browser shells package bench fuzz
if [ "$*" = mutants ]; then
    cargo mutants --version >/dev/null 2>&1 || \
        quietly cargo install --locked --version "$CARGO_MUTANTS" cargo-mutants
    exit 0
fi
if [ "$*" = deny ]; then
    cargo deny --version >/dev/null 2>&1 || \
        quietly cargo install --locked --version "$CARGO_DENY" cargo-deny
    exit 0
fi
if [ "$*" = deb ]; then
    cargo deb --version >/dev/null 2>&1 || \
        quietly cargo install --locked --version "$CARGO_DEB" cargo-deb
    exit 0
fi
missing=
for group; do
    if ! packages=$(packages_of "$group"); then
        echo "setup-deps: no group '$group'; groups: build clients guest capture peer service browser shells package bench fuzz, or mutants, deny or deb alone" >&2
        exit 2
    fi
    for package in $packages; do
        case " $missing " in *" $package "*) continue ;; esac
        is_installed "$package" || missing="$missing $package"
    done
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup-deps: no apt-get here; install the equivalents of:$missing" >&2
    exit 1
fi
echo "setup-deps: installing$missing"
forbid_service_start
quietly apt update
# shellcheck disable=SC2086  # a list of words
quietly apt install -y --no-install-recommends $missing
