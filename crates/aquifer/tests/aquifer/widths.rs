//! Tables fit a screen of 80 columns, with names as people give them.

use crate::eyes::client::Client;
use crate::support::Place;
use crate::top::Terminal;

const COLUMNS: usize = 80;

/// Commands whose tables have names and numbers.
const TABLES: [&[&str]; 23] = [
    &["pool", "list"],
    &["list", "-r"],
    &["list", "-r", "-t", "snapshot"],
    &["list", "-r", "-t", "all", "-o", "name,used,refer,creation"],
    &["iostat"],
    &["iostat", "-v"],
    &["iostat", "-l"],
    &["iostat", "-vl"],
    &["iostat", "-w"],
    &["arcstat"],
    &["arcstat", "-v"],
    &["nfsstat"],
    &["nfsiostat"],
    &["nfsiostat", "-c"],
    &["nfsiostat", "-l"],
    &["pool", "status", "-v", "tank"],
    &["nfsiostat", "-d", "0.2", "2"],
    &["holds", "-r", "tank"],
    &["get", "all", "tank/vms"],
    &["locks"],
    &["alerts"],
    &["token", "list"],
    &["pool", "status", "tank"],
];

fn bed(place: &Place) -> Client {
    let disks = ["sdb", "sdc"].map(|name| place.image(name));
    place.must(&["pool", "create", "tank", "mirror", &disks[0], &disks[1]]);
    place.must(&["create", "-o", "sharenfs=insecure,rw=@127.0.0.0/8:@10.1.0.0/24", "tank/vms"]);
    place.must(&["create", "-o", "quota=100M", "tank/vms/web"]);
    place.must(&["snapshot", "tank/vms@auto-hourly-2026-11-26T07:00Z"]);
    place.must(&["snapshot", "tank/vms@before-upgrade"]);
    place.must(&["hold", "--until", "1h", "backup", "tank/vms@before-upgrade"]);
    let mut client = Client::new(place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let dir = client.mkdir(&root, "web01");
    let file = client.create(&dir, "disk-0.qcow2");
    (0..64).for_each(|at| client.write(&file, at * 65_536, &[at as u8; 65_536], true));
    assert_eq!(client.read(&file, 0, 4096), Ok(4096));
    client
}

fn widest(text: &str) -> (usize, &str) {
    let lines = text.lines().map(|line| (line.replace('\t', "        ").chars().count(), line));
    lines.max_by_key(|(width, _)| *width).unwrap_or_default()
}

#[test]
fn tables_fit_a_screen() {
    let place = Place::new();
    let _daemon = place.serve();
    let _client = bed(&place);
    let mut wide = Vec::new();
    for words in TABLES {
        let text = place.must(words);
        let (mut width, line) = widest(&text);
        // Disks are called /dev/sdb, not as images of a test.
        if text.contains(&place.text("")) {
            width -= place.text("").len() - "/dev/".len();
        }
        if width > COLUMNS {
            wide.push(format!("{words:?}: {width} columns: {line}"));
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
    // A long name makes the table wider, and no column of it crooked.
    let long = "tank/vms/".to_string() + &"web-server-".repeat(8);
    place.must(&["create", &long]);
    let text = place.must(&["list", "-r"]);
    let mut lines = text.lines();
    let at = lines.next().and_then(|head| head.find("NFS PATH")).unwrap();
    assert!(lines.all(|line| line.is_char_boundary(at) && line[..at].ends_with("  ")), "{text}");
}

/// Checks that events are shown in full length: a screen shows their text below its own column, a
/// pipe in one line.
#[test]
fn events_go_on_below_their_column() {
    let place = Place::new();
    let _daemon = place.serve();
    let _client = bed(&place);
    let piped = place.must(&["events"]);
    let (_, longest) = widest(&piped);
    let last_word = longest.split_whitespace().last().unwrap();
    let mut shown = Terminal::run(&place, &["events"]);
    let text = shown.all_it_says().replace('\r', "");
    let at = text.lines().next().and_then(|head| head.find("WHAT")).unwrap();
    let (column, rest) = (at, text.lines().skip(1));
    let folded: Vec<&str> = rest.filter(|line| line.starts_with(' ')).collect();
    assert!(!folded.is_empty(), "{text}");
    for line in &folded {
        assert_eq!(line.len() - line.trim_start().len(), column, "{text}");
        let is_word = !line.trim_start().contains(' ');
        assert!(line.chars().count() <= COLUMNS || is_word, "{line}");
    }
    assert!(text.contains(last_word), "{text}");
}
