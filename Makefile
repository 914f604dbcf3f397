# Aquifer: two commands from a fresh machine are `make demo` and `make test`.
# Everything runs as root on Debian 12 with a Rust toolchain; missing packages are installed by name.

SHELL := /bin/bash
SEEDS ?= 10000
# Seconds for each target of `make fuzz`, which targets, and where chance begins (0: anywhere).
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
FUZZ_TARGETS ?= $(notdir $(wildcard crates/fuzz/corpus/*))
FUZZER := nice target/debug/aquifer-fuzz -rss_limit_mb=1024 -timeout=30 -verbosity=0 -print_final_stats=1
THREADS = cargo test -p aquifer-threads --features permute --test threads
THREADS_CRATES := sync blockio arc meter ondisk space vdev object pool dataset files sim inspect checker threads

.PHONY: all build test lint unit sim powercut sabotage threads threads-short mutants deny fuzz fuzz-short fuzz-build fuzz-merge conformance \
	bench bench-sync bench-disks bench-snapshots attacks demo pgo install deb deb-test clean

all: build

build:
	scripts/setup-deps.sh build
	cargo build --release

# Everything that CI runs. Rules are left out and the corpus of the fuzz targets is run by `unit`, too;
# `make fuzz` looks for more.
test:
	@for part in lint unit threads-short; do \
		SECONDS=0; $(MAKE) --no-print-directory $$part || exit 1; echo "$$part: $$SECONDS s"; \
	done

lint:
	scripts/setup-deps.sh build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p aquifer-threads --features permute --all-targets -- -D warnings

# Unit, property, golden, power-cut and client tests: two programs at once, else as `cargo test
# --workspace` runs them.
unit:
	scripts/setup-deps.sh build clients guest capture peer service browser bench shells
	cargo run -q -p xtask -- test

# Power cuts: make sim SEEDS=100000 (FROM=100000 for the next ones); make sim SEED=17 replays one
# and tells its story.
sim:
	AQUIFER_SEEDS=$(SEEDS) $(if $(FROM),AQUIFER_FIRST_SEED=$(FROM)) $(if $(SEED),AQUIFER_SEED=$(SEED)) \
		cargo test --profile sim -p aquifer-pool -p aquifer-files -p aquifer-nfs --test power_cut -- \
		--nocapture

# Power cuts of the release build on disks that record what it writes: make powercut N=1000; make
# powercut SEED=4711 makes one cut, tells its story and leaves its images. Needs /dev/fuse.
N ?= 200
powercut:
	scripts/setup-deps.sh build clients guest
	cargo build --release -p aquifer
	AQUIFER_BIN=$(CURDIR)/target/release/aquifer AQUIFER_CUTS=$(N) $(if $(SEED),AQUIFER_SEED=$(SEED)) \
		cargo test -p aquifer-conformance --test aquifer -- --nocapture power_cut::program

# Rules of the design left out, one by one: the simulator must find each.
sabotage:
	cargo test -p aquifer-vdev -p aquifer-pool -p aquifer-files -p aquifer-nfs \
		--test holds --test power_cut --test files -- \
		--ignored --nocapture a_rule_left_out_is_found

# Threads of the engine, switched as a seed has it: make threads N=100000 (FROM=100000 for the next
# ones), SCENARIO=quota for those with such a name; make threads SEED=17 SCENARIO=kill replays one.
threads: N = 2000
threads:
	AQUIFER_SEEDS=$(N) $(if $(FROM),AQUIFER_FIRST_SEED=$(FROM)) $(if $(SEED),AQUIFER_SEED=$(SEED)) \
		$(THREADS) -- --nocapture --skip are_found $(SCENARIO)

# A little of each scenario, and each rule left out, which must be found. Our own crates are not
# optimised here: they take longer to build than to run.
threads-short:
	$(THREADS) $(foreach crate,$(THREADS_CRATES),--config profile.dev.package.aquifer-$(crate).opt-level=0) \
		-- --nocapture

# Mutants of the engine that cargo-mutants lists, drawn by a seed, and which test finds each:
# make mutants N=50 SEED=1; make mutants PLANTED=all tries those that people planted. docs/mutants.md.
mutants:
	scripts/setup-deps.sh build
	scripts/setup-deps.sh mutants
	cargo run -q -p xtask -- mutants $(if $(PLANTED),planted "$(PLANTED)",$(N) $(or $(SEED),1))

# Licences, sources, crates in two versions, and advisories of what comes from outside (deny.toml).
# Builds cargo-deny, which takes minutes; all but advisories is checked by every `make unit` as well.
deny:
	scripts/setup-deps.sh build
	scripts/setup-deps.sh deny
	cargo deny --locked check bans licenses sources
	if cargo deny --locked fetch db; then cargo deny --locked check advisories; \
		else echo "deny: NOT CHECKED: advisories; their database cannot be reached from here"; fi

# Hostile input, guided by coverage: make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=calls. What is new
# goes to target/fuzz; an input that breaks something is named and kept beside it.
fuzz: fuzz-build
	set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p target/fuzz/$$target; echo "fuzz: $$target"; \
		AQUIFER_FUZZ=$$target $(FUZZER) -max_total_time=$(FUZZ_SECONDS) \
			-seed=$(FUZZ_SEED) -artifact_prefix=target/fuzz/$$target- \
			target/fuzz/$$target crates/fuzz/corpus/$$target; \
	done

# From one seed: the same inputs each time, after a change of a parser.
fuzz-short: FUZZ_SECONDS = 2
fuzz-short: FUZZ_SEED = 1
fuzz-short: fuzz

# Keeps of target/fuzz what the corpus does not reach, and of both what is needed for that.
fuzz-merge: fuzz-build
	set -e; for target in $(FUZZ_TARGETS); do \
		rm -rf target/fuzz/merged; mkdir -p target/fuzz/merged target/fuzz/$$target; \
		AQUIFER_FUZZ=$$target $(FUZZER) -merge=1 \
			target/fuzz/merged crates/fuzz/corpus/$$target target/fuzz/$$target; \
		rm -r crates/fuzz/corpus/$$target; mv target/fuzz/merged crates/fuzz/corpus/$$target; \
	done

# All that it counts is optimised: the counting calls core's atomics, which a crate that is not would
# share with it, with calls of the counting in them.
fuzz-build:
	scripts/setup-deps.sh build fuzz
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-coverage.sh \
		cargo build -p aquifer-fuzz --features engine \
		$(foreach crate,admin daemon doctor,--config profile.dev.package.aquifer-$(crate).opt-level=1)

# Real clients, the long way: many kills, large logs, whole disks of rot; and the harness itself, in
# front of nfs-ganesha.
conformance:
	scripts/setup-deps.sh build clients guest capture peer service
	cargo build -p aquifer -p aquifer-conformance
	AQUIFER_LONG=1 cargo test -p aquifer-conformance --test aquifer -- --nocapture
	cargo test -p aquifer-conformance --test guest --test image -- --nocapture --include-ignored

# The main job on real input, told in plain words. With a terminal the server stays until Ctrl-C.
demo:
	scripts/setup-deps.sh build clients guest
	cargo build --profile quick -p aquifer -p aquifer-demo -p aquifer-conformance
	target/quick/aquifer-demo

# Aquifer, others and a server that does nothing, side by side, in about ten minutes; for instance
# make bench BENCH="--only write-4k-stable-32 --rounds 9".
bench:
	scripts/setup-deps.sh build bench
	cargo build --release -p aquifer -p aquifer-bench
	target/release/aquifer-bench $(BENCH)

# Stable writes on slow disks, without and with a fast log, and one write outstanding, in about ten
# minutes; for instance make bench-sync BENCH="--sustained 300 --aged --only sustained".
bench-sync:
	scripts/setup-deps.sh build bench
	cargo build --release -p aquifer -p aquifer-bench
	target/release/aquifer-bench sync $(BENCH)

# Scrub, new and returning sides of a mirror on slow disks, and what clients notice, in some minutes;
# for instance make bench-disks BENCH="--only fills".
bench-disks:
	scripts/setup-deps.sh build bench
	cargo build --release -p aquifer -p aquifer-bench
	target/release/aquifer-bench disks $(BENCH)

# What snapshots and clones take, and what clients notice of them, in about ten minutes; for instance
# make bench-snapshots BENCH="--only destroy --file 4096 --disk 16384", or BENCH="--aged 90".
bench-snapshots:
	scripts/setup-deps.sh build bench
	cargo build --release -p aquifer -p aquifer-bench
	target/release/aquifer-bench snapshots $(BENCH)

# What a host that is let in is served under each of 15 attacks, in about eleven minutes; fails if a
# limit is broken. For instance make attacks ATTACKS="--seconds 300" (100 minutes).
attacks:
	scripts/setup-deps.sh build guest
	cargo build --release -p aquifer -p aquifer-bench
	target/release/aquifer-bench attacks $(ATTACKS)

# The release binary, laid out by what a datastore does most: target/pgo/aquifer. Takes twice as long
# to build, and a minute of load.
pgo:
	scripts/setup-deps.sh build bench
	scripts/pgo.sh

# The binary, its unit for systemd, the user that it runs as, and the configuration if there is none:
# make install DESTDIR=... (then the package's installation makes the user).
# make install PGO=1 takes the binary of `make pgo`.
install: $(if $(PGO),pgo,build)
	install -Dm755 target/$(if $(PGO),pgo,release)/aquifer $(DESTDIR)/usr/bin/aquifer
	install -Dm644 dist/aquifer.service $(DESTDIR)/usr/lib/systemd/system/aquifer.service
	install -Dm644 dist/aquifer.sysusers $(DESTDIR)/usr/lib/sysusers.d/aquifer.conf
	$(if $(DESTDIR),,systemd-sysusers aquifer.conf)
	install -Dm644 -t $(DESTDIR)/usr/share/doc/aquifer/docs docs/*.md
	test -e $(DESTDIR)/etc/aquifer/aquifer.toml || \
		install -Dm640 dist/aquifer.toml $(DESTDIR)/etc/aquifer/aquifer.toml
	$(if $(DESTDIR),,chgrp aquifer /etc/aquifer/aquifer.toml)

# The Debian package, with man pages, completions and documentation: target/debian/*.deb. make deb
# DEB_PROFILE=quick builds one to try in a fifth of the time.
DEB_PROFILE ?= release
deb:
	scripts/setup-deps.sh build package
	scripts/setup-deps.sh deb
	scripts/deb.sh $(DEB_PROFILE)

# The package in a Debian of its own: installed, upgraded with a pool in service and clients at work,
# removed, purged. Takes a minute beside the builds; needs root, and control groups of version 2.
DEBS := $(CURDIR)/target/debs
deb-test: DEB_PROFILE = quick
deb-test:
	scripts/setup-deps.sh build package guest service
	scripts/setup-deps.sh deb
	rm -rf $(DEBS)
	DEB_FAST=1 DEB_DIR=$(DEBS)/old VERSION=0.1.0~1-1 scripts/deb.sh $(DEB_PROFILE)
	DEB_FAST=1 DEB_DIR=$(DEBS)/new VERSION=0.1.0~2-1 scripts/deb.sh $(DEB_PROFILE)
	cargo build -p aquifer
	AQUIFER_DEBS=$(DEBS) cargo test -p aquifer-conformance --test aquifer -- --nocapture --ignored package

clean:
	cargo clean
