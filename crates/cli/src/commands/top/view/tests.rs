use aquifer_api::{Count, DiskStat, Flow, Latency};

use super::*;

fn count(ops: u64, bytes: u64, each_ns: u64) -> Count {
    let mut times = Histogram::default();
    (0..ops).for_each(|_| times.record(each_ns));
    let (count, total_ns, buckets) = (ops, times.total_ns(), times.buckets().collect());
    Count { bytes, latency: Latency { count, total_ns, buckets } }
}

fn disk(dataset: &str, file: &str, object: u64, reads: Count, writes: Count) -> DiskStat {
    DiskStat {
        fs_guid: "1".into(),
        object,
        dataset: dataset.into(),
        file: format!("/{file}"),
        client: "10.1.0.2".into(),
        shared: false,
        flow: Flow { reads, writes, ..Flow::default() },
    }
}

/// A second in which one disk does many small operations, one few large ones, and one is slow.
fn view() -> View {
    let at = |uptime_s: u64, disks: Vec<DiskStat>| NfsStat {
        uptime_ns: uptime_s * 1_000_000_000,
        disks,
        ..NfsStat::default()
    };
    let none = || count(0, 0, 0);
    let mut view = View::new(Sort::Ops, String::new());
    view.take(at(10, vec![disk("tank/vms", "idle.vhd", 9, count(50, 50, 1000), none())]));
    view.take(at(
        11,
        vec![
            disk("tank/vms", "idle.vhd", 9, count(50, 50, 1000), none()),
            disk("tank/vms", "large.vhd", 1, count(10, 10 << 20, 2_000_000), none()),
            disk("tank/db", "small.vhd", 2, none(), count(900, 900 * 4096, 1_000_000)),
            disk(
                "tank/a-very-long-name/of-a-dataset",
                "slow.vhd",
                3,
                count(1, 4096, 90_000_000),
                none(),
            ),
        ],
    ));
    view
}

fn order(view: &View) -> Vec<String> {
    view.rows().into_iter().map(|row| row.file[1..].to_string()).collect()
}

#[test]
fn keys_sort_and_filter() {
    let mut view = view();
    assert_eq!(order(&view), ["small.vhd", "large.vhd", "slow.vhd"]);
    assert!(view.press(b'b'));
    assert_eq!(order(&view), ["large.vhd", "small.vhd", "slow.vhd"]);
    assert!(view.press(b'l'));
    assert_eq!(order(&view), ["slow.vhd", "large.vhd", "small.vhd"]);
    for key in b"dtank/dx\x7fb\r" {
        assert!(view.press(*key));
    }
    assert_eq!(order(&view), ["small.vhd"]);
    // Given up: as before. A `q` there is a letter.
    for key in b"dq\x1b" {
        assert!(view.press(*key));
    }
    assert_eq!(order(&view), ["small.vhd"]);
    assert!(!view.press(b'q') && !view.press(CTRL_C));
}

#[test]
fn lines_fit_the_screen() {
    let mut view = view();
    for (columns, rows) in [(80, 24), (132, 5), (40, 10), (10, 2), (0, 0)] {
        let lines = view.lines(columns, rows);
        assert!(lines.len() <= rows.max(1), "{columns} {rows}");
        assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:#?}");
    }
    let lines = view.lines(80, 24);
    assert_eq!(
        lines[2],
        format!("{:<31}  OPS/S    R/S    W/S  R B/S  W B/S   MEAN    P99", "DISK")
    );
    assert!(lines[3].starts_with("tank/db:small.vhd    "), "{lines:#?}");
    assert!(lines[3].contains("   900      0    900     0B  3.51M"), "{lines:#?}");
    // The end of a name tells more than its start.
    assert!(lines[5].starts_with("~") && lines[5].contains("dataset:slow.vhd "), "{lines:#?}");
    assert!(lines[23].ends_with("q quit"));
    view.problem("the daemon is\x1b[2J away".into());
    assert_eq!(view.lines(80, 24)[1], "no answer: the daemon is?[2J away");
}
