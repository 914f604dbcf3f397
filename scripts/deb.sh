#!/bin/sh
# Builds the Debian package into target/debian, and prints its path last.
#
#   scripts/deb.sh [PROFILE]          PROFILE is cargo's: release, or quick for one that is only tried
#   VERSION=1.2-3 scripts/deb.sh      with this version
#   DEB_DIR=DIRECTORY scripts/deb.sh  into another directory
#   DEB_FAST=1 scripts/deb.sh         larger, and made in less time
#
# What holds: the same commit gives the same package, wherever it is built with the same tools. No path of
# this machine is in it. Without VERSION, a commit that is no release has a version before that of the
# release, later commits after earlier ones.
set -eu
cd "$(dirname "$0")/.."

profile=${1:-release}
target=${CARGO_TARGET_DIR:-$PWD/target}
built=$target/$profile
made=$built/package

release=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
if commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    AQUIFER_COMMIT=$commit
    git diff --quiet HEAD || AQUIFER_COMMIT=$commit-dirty
    if ! git describe --exact-match --match "v$release" >/dev/null 2>&1; then
        moment=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)
        release=$release~$moment.$commit
    fi
else
    # Sources without a repository.
    SOURCE_DATE_EPOCH=$(stat -c %Y Cargo.toml)
    AQUIFER_COMMIT=
fi
version=${VERSION:-$release-1}
export SOURCE_DATE_EPOCH AQUIFER_COMMIT

cargo_home=${CARGO_HOME:-$HOME/.cargo}
registry=$cargo_home/registry/src
RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/aquifer"
for index in "$registry"/*; do
    RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$index=/crates"
done
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/aquifer"
export RUSTFLAGS CFLAGS

cargo fetch --locked --quiet
cargo build --locked --quiet --profile "$profile" -p aquifer

# Licences of all that is linked into the program, each with its text.
third_party() {
    echo "Aquifer is under the Apache License 2.0 (see LICENSE). The program contains code of others:"
    cargo tree --locked --quiet -p aquifer -e normal --prefix none --no-dedupe -f '{p}|{l}' |
        grep -v '(/' | sed 's/ (proc-macro)//' | sort -u |
        while IFS='|' read -r crate licence; do
            directory=$(echo "$crate" | sed 's/ v/-/')
            printf '\n======== %s: %s\n' "$crate" "$licence"
            find "$registry"/*/"$directory" -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' \
                -o -iname 'notice*' \) | LC_ALL=C sort | while read -r file; do
                printf '\n---- %s\n\n' "${file##*/"$directory"/}"
                cat "$file"
            done
        done
    for file in crates/daemon/page/vendor/*.LICENSE; do
        printf '\n======== %s, in the page for browsers\n\n' "$(basename "$file" .LICENSE)"
        cat "$file"
    done
}

rm -rf "$made"
mkdir -p "$made/man"
third_party >"$made/THIRD-PARTY"
"$built/aquifer" man-pages "$made/man"
gzip -9n "$made"/man/*
"$built/aquifer" completions bash >"$made/aquifer.bash"
"$built/aquifer" completions zsh >"$made/aquifer.zsh"
"$built/aquifer" completions fish >"$made/aquifer.fish"
gzip -9n >"$made/changelog.Debian.gz" <<END
aquifer ($version) unstable; urgency=medium

  * What changed is in /usr/share/doc/aquifer/CHANGELOG.md.

 -- Aquifer developers <aquifer@packages.invalid>  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
END

cargo deb --quiet ${DEB_FAST:+--fast} --locked --no-build --strip --profile "$profile" -p aquifer --deb-version "$version" \
    --output "${DEB_DIR:-$target/debian}/"
