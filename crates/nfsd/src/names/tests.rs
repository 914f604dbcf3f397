//! Lookups at a DNS server in this process, on a loopback port of its own.

mod server;

use std::net::UdpSocket as StdSocket;
use std::time::Instant as StdInstant;

use tokio::time::sleep;

use super::*;
use server::{Dns, Mood};

const SECOND: Duration = Duration::from_secs(1);

/// Followed names, and the last addresses in the export table.
struct Followed {
    names: Names,
    told: Arc<Mutex<Addresses>>,
    files: tempfile::TempDir,
}

impl Followed {
    fn start(dns: &[&Dns], ttl_min: Duration) -> Followed {
        Followed::start_with(dns, ttl_min, 30 * SECOND)
    }

    fn start_with(dns: &[&Dns], ttl_min: Duration, age_max: Duration) -> Followed {
        let files = tempfile::tempdir().unwrap();
        let config = NamesConfig {
            servers: dns.iter().map(|dns| dns.address).collect(),
            resolv_conf: files.path().join("resolv.conf"),
            hosts: files.path().join("hosts"),
            ttl_min,
            ttl_max: Duration::from_secs(4),
            retry: Duration::from_millis(200),
            age_max,
        };
        let told = Arc::new(Mutex::new(Addresses::new()));
        let tell = Arc::clone(&told);
        let names = Names::start(config, move |addresses| *tell.lock() = addresses);
        Followed { names, told, files }
    }

    fn follow(&self, names: &[&str]) {
        self.names.follow(&set(names));
    }

    /// The table's knowledge: the addresses with spaces between them.
    fn told(&self, name: &str) -> Option<String> {
        let told = self.told.lock();
        let host = told.get(name).filter(|host| **host != HostAddresses::default())?;
        let texts = host.all().map(|address| address.to_string());
        Some(texts.collect::<Vec<_>>().join(" "))
    }

    async fn until_told(&self, name: &str, addresses: &str) -> Duration {
        let start = StdInstant::now();
        while self.told(name).as_deref() != Some(addresses) {
            let waited = start.elapsed();
            assert!(waited < 20 * SECOND, "{name}: {:?}, not {addresses}", self.told(name));
            sleep(Duration::from_millis(5)).await;
        }
        start.elapsed()
    }

    fn problem(&self, name: &str) -> Option<String> {
        let known = self.names.known();
        known.into_iter().find(|host| host.name == name).unwrap().problem
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn names_have_all_their_addresses_also_behind_aliases() {
    let dns = Dns::start().await;
    dns.set("hv1.example", &["10.0.0.1", "fd00::1", "10.0.0.11"], 300);
    dns.set("hv.example", &["deep.example"], 300);
    dns.set("deep.example", &["hv1.example"], 300);
    let followed = Followed::start(&[&dns], SECOND);
    followed.follow(&["hv1.example", "hv.example"]);
    followed.until_told("hv1.example", "10.0.0.1 10.0.0.11 fd00::1").await;
    followed.until_told("hv.example", "10.0.0.1 10.0.0.11 fd00::1").await;
    assert_eq!(followed.problem("hv.example"), None);
    followed.follow(&["hv1.example"]);
    assert_eq!(followed.told("hv.example"), None, "nobody names it any more");
}

#[tokio::test]
async fn an_answer_holds_as_long_as_it_says_between_floor_and_ceiling() {
    let dns = Dns::start().await;
    for (name, ttl) in [("floor", 0), ("says", 2), ("ceiling", 100_000)] {
        dns.set(name, &["10.0.0.1"], ttl);
    }
    let followed = Followed::start(&[&dns], Duration::from_millis(600));
    followed.follow(&["floor", "says", "ceiling"]);
    for name in ["floor", "says", "ceiling"] {
        followed.until_told(name, "10.0.0.1").await;
    }
    let start = StdInstant::now();
    for (name, ttl) in [("floor", 0), ("says", 2), ("ceiling", 100_000)] {
        dns.set(name, &["10.0.0.2"], ttl);
    }
    let (floor, says, ceiling) = tokio::join!(
        followed.until_told("floor", "10.0.0.2"),
        followed.until_told("says", "10.0.0.2"),
        followed.until_told("ceiling", "10.0.0.2"),
    );
    assert!(floor >= Duration::from_millis(400), "{floor:?}");
    assert!(says >= Duration::from_millis(1700), "{says:?}");
    assert!(ceiling >= Duration::from_millis(3700), "{ceiling:?}");
    // For each name, two questions at first and two each time that it was due.
    let floors = start.elapsed().as_millis() / 600;
    let most = 6 + 2 * (usize::try_from(floors).unwrap() + 4) + 4;
    assert!(dns.questions() <= most, "{} questions, at most {most}", dns.questions());
}

/// But not for ever: another host may have the address by then.
#[tokio::test]
async fn an_old_answer_is_none_after_a_while() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 0);
    let followed = Followed::start_with(&[&dns], Duration::from_millis(100), SECOND);
    followed.follow(&["hv1"]);
    followed.until_told("hv1", "10.0.0.1").await;
    dns.mood(Mood::Fails);
    let start = StdInstant::now();
    while followed.told("hv1").is_some() {
        assert!(start.elapsed() < 20 * SECOND);
        sleep(Duration::from_millis(5)).await;
    }
    assert!(start.elapsed() > Duration::from_millis(700), "{:?}", start.elapsed());
    dns.mood(Mood::Answers);
    followed.until_told("hv1", "10.0.0.1").await;
}

#[tokio::test]
async fn the_last_good_answer_holds_while_nobody_answers() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 0);
    let followed = Followed::start(&[&dns], Duration::from_millis(100));
    followed.follow(&["hv1"]);
    followed.until_told("hv1", "10.0.0.1").await;
    for mood in [Mood::Fails, Mood::Silent, Mood::Lies, Mood::Garbage] {
        dns.set("hv1", &["10.0.0.2"], 0);
        dns.mood(mood);
        // A question that was under way is answered.
        sleep(Duration::from_millis(50)).await;
        dns.set("hv1", &["10.0.0.3"], 0);
        let start = StdInstant::now();
        while !followed.problem("hv1").is_some_and(|why| why.ends_with("the last answer holds")) {
            assert!(start.elapsed() < 20 * SECOND, "{mood:?}: {:?}", followed.problem("hv1"));
            sleep(Duration::from_millis(5)).await;
        }
        let held = followed.told("hv1").unwrap();
        assert!(["10.0.0.1", "10.0.0.2"].contains(&held.as_str()), "{mood:?}: {held}");
        dns.set("hv1", &["10.0.0.1"], 0);
        dns.mood(Mood::Answers);
        followed.until_told("hv1", "10.0.0.1").await;
        while followed.problem("hv1").is_some() {
            assert!(start.elapsed() < 40 * SECOND);
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// That a name does not exist (any more) is an answer: a host that left the DNS is no longer
/// admitted.
#[tokio::test]
async fn a_name_that_is_gone_has_no_address() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 0);
    let followed = Followed::start(&[&dns], Duration::from_millis(100));
    followed.follow(&["hv1", "never"]);
    followed.until_told("hv1", "10.0.0.1").await;
    followed.until_told("never", "").await;
    assert_eq!(followed.problem("never").as_deref(), Some("it has no address"));
    dns.zone.lock().records.clear();
    followed.until_told("hv1", "").await;
}

#[tokio::test]
async fn what_is_no_answer_to_the_question_is_passed_over() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 300);
    dns.mood(Mood::LiesFirst);
    let followed = Followed::start(&[&dns], SECOND);
    followed.follow(&["hv1"]);
    followed.until_told("hv1", "10.0.0.1").await;
    assert_eq!(followed.problem("hv1"), None);
}

#[tokio::test]
async fn what_does_not_fit_into_a_datagram_comes_over_tcp() {
    let dns = Dns::start().await;
    let many: Vec<String> = (1..=100).map(|last| format!("10.0.0.{last}")).collect();
    dns.set("hv1", &many.iter().map(String::as_str).collect::<Vec<_>>(), 300);
    dns.mood(Mood::Truncates);
    let followed = Followed::start(&[&dns], SECOND);
    followed.follow(&["hv1"]);
    followed.until_told("hv1", &many.join(" ")).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_passed_over() {
    let (dead, dns) = (Dns::start().await, Dns::start().await);
    let closed = StdSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    dead.mood(Mood::Silent);
    dns.set("hv1", &["10.0.0.1"], 300);
    let mut gone = dead.clone();
    gone.address = closed;
    let followed = Followed::start(&[&gone, &dead, &dns], SECOND);
    followed.follow(&["hv1"]);
    let took = followed.until_told("hv1", "10.0.0.1").await;
    assert!(took < 5 * SECOND, "{took:?}");
    assert_eq!(followed.problem("hv1"), None);
}

/// Setting a property waits for its names, but not for long; a late answer counts when it comes.
#[tokio::test]
async fn a_slow_answer_is_waited_for_no_longer_than_patience() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 300);
    dns.set("hv2", &["10.0.0.2"], 300);
    let followed = Followed::start(&[&dns], SECOND);
    let found = followed.names.look_up(&set(&["hv1"]), 2 * SECOND).await;
    let known = KnownHost {
        name: "hv1".into(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        problem: None,
    };
    assert_eq!(found, [known]);
    dns.mood(Mood::Slow(600));
    let start = StdInstant::now();
    let found = followed.names.look_up(&set(&["hv2"]), Duration::from_millis(300)).await;
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert_eq!(found[0].problem.as_deref(), Some("it is being looked up"));
    followed.follow(&["hv1", "hv2"]);
    followed.until_told("hv2", "10.0.0.2").await;
}

#[tokio::test]
async fn a_name_that_was_only_asked_for_is_forgotten() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 0);
    let followed = Followed::start(&[&dns], Duration::from_millis(300));
    assert_eq!(followed.names.look_up(&set(&["hv1"]), SECOND).await.len(), 1);
    let start = StdInstant::now();
    while !followed.names.known().is_empty() {
        assert!(start.elapsed() < 20 * SECOND);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(dns.questions(), 2, "one for each family");
}

/// The file is read again: a later entry is valid, without DNS and before it.
#[tokio::test]
async fn the_static_file_goes_before_dns() {
    let dns = Dns::start().await;
    dns.set("hv1", &["10.0.0.1"], 0);
    dns.mood(Mood::Silent);
    let followed = Followed::start(&[&dns], Duration::from_millis(100));
    let hosts = followed.files.path().join("hosts");
    std::fs::write(&hosts, "10.9.0.1 hv1.example HV1\nfd00::9 hv1\n").unwrap();
    followed.follow(&["hv1"]);
    followed.until_told("hv1", "10.9.0.1 fd00::9").await;
    assert_eq!(dns.questions(), 0);
    std::fs::write(&hosts, "10.9.0.2 hv1\n").unwrap();
    followed.until_told("hv1", "10.9.0.2").await;
    std::fs::write(&hosts, "").unwrap();
    dns.mood(Mood::Answers);
    followed.until_told("hv1", "10.0.0.1").await;
}

#[tokio::test]
async fn a_short_name_is_looked_for_in_the_systems_domains() {
    let dns = Dns::start().await;
    dns.set("hv1.b.example", &["10.0.0.1"], 300);
    dns.set("hv2", &["10.0.0.2"], 300);
    dns.set("hv1.c.example.b.example", &["10.0.0.3"], 300);
    let followed = Followed::start(&[&dns], SECOND);
    let resolv_conf = followed.files.path().join("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 192.0.2.1\nsearch a.example b.example\n").unwrap();
    followed.follow(&["hv1", "hv2", "hv1.c.example"]);
    followed.until_told("hv1", "10.0.0.1").await;
    followed.until_told("hv2", "10.0.0.2").await;
    followed.until_told("hv1.c.example", "").await;
}

/// Any bytes give an answer or none.
#[test]
fn bytes_that_are_no_message_are_refused() {
    let question = dns::Question::new("hv1.example", dns::Kind::A).unwrap();
    let mut right = question.bytes().to_vec();
    right[2] |= 0x80;
    right[7] = 1;
    right.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1]);
    let answer = Answer { addresses: vec![[10, 0, 0, 1].into()], ttl: Duration::from_secs(60) };
    assert_eq!(question.reply(&right), Some(dns::Reply::Answer(answer)));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..200_000 {
        let mut bytes = right.clone();
        for _ in 0..=random() % 4 {
            let at = random() % bytes.len();
            bytes[at] = u8::try_from(random() % 256).unwrap();
        }
        bytes.truncate(random() % (bytes.len() + 8));
        question.reply(&bytes);
    }
    // A name that points at itself, or at a later byte.
    let head = question.bytes().len();
    for to in [head, head + 2, 0x3fff] {
        let mut bytes = right.clone();
        let pointer = 0xc000 | u16::try_from(to).unwrap();
        bytes[head..head + 2].copy_from_slice(&pointer.to_be_bytes());
        assert!(matches!(question.reply(&bytes), Some(dns::Reply::Failed(_))), "{to}");
    }
    // Or at another pointer, and so on: as many as there may be labels, and one more.
    for (pointers, is_read) in [(127, true), (128, false)] {
        let mut bytes = right.clone();
        bytes[7] = 2;
        bytes.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, 254]);
        let first = bytes.len();
        let chain = (0..127).map(|at| if at == 0 { 12 } else { first + 2 * (at - 1) });
        chain.for_each(|to| bytes.extend((0xc000 | u16::try_from(to).unwrap()).to_be_bytes()));
        // The name of a third record is one pointer more, or leads to the one before the last.
        let last = first + 2 * (pointers - 2);
        bytes[7] = 3;
        bytes.extend((0xc000 | u16::try_from(last).unwrap()).to_be_bytes());
        bytes.extend([0, 16, 0, 1, 0, 0, 0, 60, 0, 0]);
        let answered = matches!(question.reply(&bytes), Some(dns::Reply::Answer(_)));
        assert_eq!(answered, is_read, "{pointers}");
    }
}
