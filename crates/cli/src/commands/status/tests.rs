use aquifer_api::{
    DamagedFile, FreeWorkInfo, FreeWorkState, Health, LeafState, PoolSummary, RepairedFile,
    ResilverInfo, ScanState, ScrubInfo, ScrubState, VdevClass,
};

use super::*;

fn leaf(path: &str, state: LeafState) -> LeafStatus {
    LeafStatus {
        path: path.into(),
        guid: "00000000000000aa".into(),
        state,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        repaired: 0,
        spare_for: None,
        replaces: None,
        last_error: None,
        own_past: false,
        slow: None,
        trim: None,
        initialize: None,
        cannot_discard: false,
        disk: None,
    }
}

fn pool() -> PoolStatus {
    let mirror = VdevStatus {
        name: "mirror-0".into(),
        class: VdevClass::Data,
        kind: VdevKind::Mirror,
        size_bytes: 10 << 30,
        health: Health::Degraded,
        leaves: vec![leaf("/dev/a", LeafState::Online), leaf("/dev/b", LeafState::Outdated)],
    };
    let single = VdevStatus {
        name: "/dev/c".into(),
        class: VdevClass::Data,
        kind: VdevKind::Single,
        size_bytes: 5 << 30,
        health: Health::Online,
        leaves: vec![leaf("/dev/c", LeafState::Online)],
    };
    PoolStatus {
        spares: Vec::new(),
        caches: Vec::new(),
        summary: PoolSummary {
            name: "tank".into(),
            guid: "00000000000000ff".into(),
            health: Health::Degraded,
            size_bytes: 15 << 30,
            allocated_bytes: 3 << 30,
            free_bytes: 12 << 30,
            freeing_bytes: 0,
            damaged_files: 0,
            reason: None,
        },
        txg: 7,
        held_bytes: 0,
        closed_metaslabs: 0,
        vdevs: vec![mirror, single],
        import_notes: vec!["/dev/b: outdated, not used".into()],
        notes: Vec::new(),
        damaged: Vec::new(),
        sync_disabled: Vec::new(),
        replications: Vec::new(),
        dropped_log: None,
        scan: None,
        scrub: None,
        drill: None,
        status: Some("/dev/b missed writes.".into()),
        action: Some("Keep a backup.".into()),
        problems: Vec::new(),
    }
}

const PLAIN: Show = Show { verbose: false, trim: false, initialize: false, problems: false };
const VERBOSE: Show = Show { verbose: true, ..PLAIN };
const OUTPUT: Output = Output { json: false, script: false, exact: false, colour: false };

#[test]
fn the_tree_of_disks_looks_as_in_zpool() {
    let mut pool = pool();
    pool.vdevs[0].leaves[0].checksum_errors = 2;
    pool.vdevs[0].leaves[0].repaired = 2;
    pool.vdevs[0].leaves[1].write_errors = 1;
    pool.vdevs[0].leaves[1].last_error = Some("write at sector 9: EIO".into());
    let expected = "  pool: tank
 state: DEGRADED
status: /dev/b missed writes.
action: Keep a backup.
import: /dev/b: outdated, not used
  disk: /dev/b: write at sector 9: EIO
config:

\tNAME        STATE     READ  WRITE  CKSUM
\ttank        DEGRADED     0      1      2  (2 repaired)
\t  mirror-0  DEGRADED     0      1      2  (2 repaired)
\t    /dev/a  ONLINE       0      0      2  (2 repaired)
\t    /dev/b  OUTDATED     0      1      0
\t  /dev/c    ONLINE       0      0      0

errors: No known data errors
";
    assert_eq!(text(&pool, PLAIN, OUTPUT), expected);
}

#[test]
fn a_resilver_is_told_while_it_goes_on_and_after() {
    let mut pool = pool();
    let scan = |state, copied_bytes, unread_blocks| ResilverInfo {
        disk: "/dev/b".into(),
        state,
        copied_bytes,
        unread_blocks,
        total_bytes: None,
        took_ms: 61_500,
    };
    for (info, line) in [
        (scan(ScanState::Running, 3 << 20, 0), "  scan: resilver of /dev/b goes on: 3M in 61 s\n"),
        (scan(ScanState::Done, 3 << 30, 0), "  scan: resilvered 3G on /dev/b in 61 s\n"),
        (scan(ScanState::Done, 0, 2), "; 2 blocks could not be read from any"),
        (
            scan(ScanState::Failed, 4096, 0),
            "  scan: resilver of /dev/b failed after 4K and 61 s; it is tried again by itself\n",
        ),
    ] {
        pool.scan = Some(info);
        let told = text(&pool, PLAIN, OUTPUT);
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn log_devices_have_a_section_of_their_own() {
    let mut pool = pool();
    // Whatever the vdevs' numbers.
    pool.vdevs.insert(
        0,
        VdevStatus {
            name: "/dev/l".into(),
            class: VdevClass::Log,
            kind: VdevKind::Single,
            size_bytes: 1 << 30,
            health: Health::Online,
            leaves: vec![leaf("/dev/l", LeafState::Online)],
        },
    );
    pool.import_notes.clear();
    (pool.status, pool.action) = (None, None);
    let expected = "  pool: tank
 state: DEGRADED
config:

\tNAME        STATE     READ  WRITE  CKSUM
\ttank        DEGRADED     0      0      0
\t  mirror-0  DEGRADED     0      0      0
\t    /dev/a  ONLINE       0      0      0
\t    /dev/b  OUTDATED     0      0      0
\t  /dev/c    ONLINE       0      0      0
\tlogs
\t  /dev/l    ONLINE       0      0      0

errors: No known data errors
";
    assert_eq!(text(&pool, PLAIN, OUTPUT), expected);
    assert!(text(&pool, VERBOSE, OUTPUT).contains("\n\tlogs\n"));
}

#[test]
fn verbose_adds_identities_and_sizes() {
    let text = text(&pool(), VERBOSE, OUTPUT);
    for line in [
        "    id: 00000000000000ff\n",
        "   txg: 7\n",
        " space: 3G of 15G in use, of that 0B freed and held back\n",
        "errors: No known data errors\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let disk = text.lines().find(|line| line.contains("/dev/c")).unwrap();
    assert_eq!(
        disk.split_whitespace().collect::<Vec<_>>(),
        ["/dev/c", "ONLINE", "0", "0", "0", "5G", "00000000000000aa"]
    );
}

#[test]
fn who_promises_nothing_is_named_in_red() {
    let mut pool = pool();
    let of = |dataset: &str, reason: &str| SyncDisabled {
        dataset: dataset.into(),
        reason: reason.into(),
    };
    pool.sync_disabled = vec![of("tank/scratch", "made anew each night"), of("tank/tmp", "x")];
    let expected = "unsafe: sync=disabled: what these datasets acknowledged in the last seconds is
        lost in a power cut or crash:
        tank/scratch: made anew each night
        tank/tmp: x
import: ";
    let plain = text(&pool, PLAIN, OUTPUT);
    assert!(plain.contains(expected), "{plain}");
    let red = text(&pool, PLAIN, Output { colour: true, ..OUTPUT });
    assert!(red.contains("\x1b[31m        tank/tmp: x\x1b[0m\n"), "{red}");
    assert_eq!(red.replace("\x1b[31m", "").replace("\x1b[0m", ""), plain);
}

#[test]
fn a_pool_that_is_not_in_service_has_a_reason_and_no_tree() {
    let mut pool = pool();
    pool.summary.health = Health::Unavail;
    pool.status = Some("none of its disks was found: /a".into());
    pool.vdevs.clear();
    pool.import_notes.clear();
    let expected = "  pool: tank
 state: UNAVAIL
status: none of its disks was found: /a
action: Keep a backup.
";
    assert_eq!(text(&pool, PLAIN, OUTPUT), expected);
}

#[test]
fn long_texts_are_folded_between_words() {
    let long = "word ".repeat(40);
    let folded = folded(long.trim_end());
    assert!(folded.lines().count() > 2);
    assert!(folded.lines().all(|line| line.len() <= 8 + TEXT_WIDTH));
    assert!(folded.lines().skip(1).all(|line| line.starts_with("        word")));
    let back: Vec<&str> = folded.split_whitespace().collect();
    assert_eq!(back.len(), 40);
}

#[test]
fn a_command_is_not_broken() {
    let text = "word ".repeat(12) + "`aquifer pool replace tank /dev/b NEW`. And on, `ls`, on.";
    let folded = folded(&text);
    assert!(
        folded.contains("\n        `aquifer pool replace tank /dev/b NEW`. And on"),
        "{folded}"
    );
    // Whatever somebody's text has.
    assert_eq!(words("a `b c` d `e f").collect::<Vec<_>>(), ["a", "`b c`", "d", "`e f"]);
}

#[test]
fn damaged_files_are_named_with_what_to_do() {
    let mut pool = pool();
    let damaged = |number| DamagedFile {
        dataset: "tank/vms".into(),
        file: format!("/disk{number}"),
        unreadable: number == 1,
        ranges: vec![(4096, 12_288)],
        more: false,
        since_ns: 1_700_000_000_000_000_000,
        txg: 5,
        lost_bytes: 8192,
        error: "checksum".into(),
    };
    pool.damaged = (0..25).map(damaged).collect();
    let text = text(&pool, PLAIN, OUTPUT);
    let unreadable = "/disk1: bytes 4096-12287 cannot be read, since 2023-11-14T22:13:20";
    let parts =
        ["errors: 25 files are damaged", "tank/vms /disk0: 8192 bytes", "/disk19:", "and 5 more"];
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts.into_iter().chain([unreadable]) {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("/disk20"), "{text}");
}

#[test]
fn repaired_files_are_named_where_more_is_asked_for() {
    let repaired = |number: u64| RepairedFile {
        dataset: "tank/vms@a".into(),
        file: format!("/disk{number}\x1b[2J"),
        bytes: 8192,
        ranges: vec![(4096, 12_288), (20_480, 24_576)],
        more: number == 1,
    };
    let scrub = ScrubInfo {
        state: ScrubState::Running,
        begun_ns: 1_700_000_000_000_000_000,
        ended_ns: None,
        active_ms: 2000,
        total_bytes: 4 << 30,
        examined_bytes: 1 << 30,
        repaired_bytes: 8192 * 30,
        unreadable_blocks: 0,
        repaired_files: (0..22).map(repaired).collect(),
        more_repaired_files: 6,
    };
    let pool = PoolStatus { scrub: Some(scrub), ..pool() };
    let text = |verbose| {
        let text = text(&pool, Show { verbose, ..PLAIN }, OUTPUT);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let plain = text(false);
    let running = "1G of 4G (25%), 512M/s, 00:00:06 left, 240K repaired, 0 errors";
    assert!(plain.contains(running) && !plain.contains("/disk0"), "{plain}");
    let all = text(true);
    for part in [
        "tank/vms@a /disk0?[2J: 8K repaired, bytes 4096-12287, 20480-24575",
        "20480-24575, and more tank/vms@a /disk2",
        "and 8 more files",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!all.contains("/disk20"), "{all}");
}

#[test]
fn the_last_trim_is_shown_for_a_day_and_later_by_order() {
    let mut pool = pool();
    let work = |ended_s: u64| FreeWorkInfo {
        state: FreeWorkState::Finished,
        passed_bytes: 1 << 30,
        total_bytes: 1 << 30,
        done_bytes: 0,
        skipped_bytes: 0,
        begun_ns: ended_s * 1_000_000_000,
        ended_ns: Some(ended_s * 1_000_000_000),
        last_error: None,
    };
    let remark = |pool: &PoolStatus, show, disk: &str| {
        let text = text(pool, show, OUTPUT);
        let rows = text.split_once("config:").unwrap().1;
        let row = rows.lines().find(|line| line.trim_start().starts_with(disk)).unwrap();
        row.split_once('(').map(|(_, remark)| remark.to_string())
    };
    let all = Show { trim: true, initialize: true, ..PLAIN };
    let now = aquifer_api::time::now_s();
    pool.vdevs[0].leaves[0].trim = Some(work(now - 3600));
    assert!(remark(&pool, PLAIN, "/dev/a").unwrap().starts_with("trimmed on "));
    pool.vdevs[0].leaves[0].trim = Some(work(now - 48 * 3600));
    assert_eq!(remark(&pool, PLAIN, "/dev/a"), None);
    let told = remark(&pool, all, "/dev/a").unwrap();
    assert!(told.starts_with("trimmed on ") && told.ends_with(", uninitialized)"), "{told}");
    assert_eq!(remark(&pool, all, "/dev/b").unwrap(), "untrimmed, uninitialized)");
    // The log has nothing to trim.
    pool.vdevs[1].class = VdevClass::Log;
    assert_eq!(remark(&pool, all, "/dev/c"), None);
}
