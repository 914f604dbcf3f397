//! The history of a pool: across restarts and power cuts, its bounds, and with a damaged tree.

use aquifer_dataset::history::{Asked, HistoryChange, Noted, Outcome};
use aquifer_files::{Service, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::history::{
    HISTORY_ACTS_MAX, HISTORY_ATTEMPTS_MAX, HISTORY_EVENTS_MAX, HISTORY_OF_HOSTS_MAX,
};
use aquifer_pool::PoolError;

use crate::bed::{Bed, make, noise, root, settle, write};
use crate::full::full;

fn asked(act: &str) -> Asked {
    Asked { who: "uid 0".into(), host: "store".into(), act: act.into() }
}

fn set(property: &str) -> Vec<HistoryChange> {
    vec![HistoryChange { what: property.into(), before: "off".into(), after: "on".into() }]
}

fn act(service: &Service, words: &str, outcome: Outcome) {
    let history = service.datasets.history();
    let begun = history.begin(asked(words));
    history.finish(begun, outcome, String::new(), set("readonly"));
}

async fn all(service: &Service) -> Vec<Noted> {
    service.datasets.history().list().await.unwrap()
}

fn told(noted: &[Noted]) -> Vec<(u64, &str, Outcome, bool)> {
    let each = noted.iter().map(|Noted { record, running }| {
        (record.order, record.act.as_str(), record.outcome, *running)
    });
    each.collect()
}

#[test]
fn history_is_kept_over_restarts_and_numbers_go_on() {
    let mut bed = Bed::new(1, 65536);
    let before = bed.life(async |service| {
        act(&service, "create tank/a", Outcome::Done);
        act(&service, "create tank/a", Outcome::Failed);
        service.pool.sync().await.unwrap();
        act(&service, "set readonly=on tank", Outcome::Done);
        all(&service).await
    });
    bed.assert_clean();
    let expected = [
        (1, "create tank/a", Outcome::Done, false),
        (2, "create tank/a", Outcome::Failed, false),
        (3, "set readonly=on tank", Outcome::Done, false),
    ];
    assert_eq!(told(&before), expected);
    assert_eq!(before[2].record.changes, set("readonly"));
    let after = bed.life(async |service| {
        assert_eq!(all(&service).await, before);
        act(&service, "destroy tank/a", Outcome::Forbidden);
        all(&service).await
    });
    assert_eq!(told(&after)[3], (4, "destroy tank/a", Outcome::Forbidden, false));
    bed.assert_clean();
}

/// An act is on disk no later than its effect; the note of its end may be later.
#[test]
fn history_has_what_was_cut_off_in_the_middle() {
    let mut bed = Bed::new(2, 65536);
    bed.cut_life(async |service| {
        act(&service, "create tank/a", Outcome::Done);
        let begun = service.datasets.history().begin(asked("create tank/b"));
        let seen = all(&service).await;
        assert_eq!(told(&seen)[1], (2, "create tank/b", Outcome::Begun, true));
        service.datasets.create("tank/b", &[]).await.unwrap();
        service.datasets.history().finish(begun, Outcome::Done, String::new(), Vec::new());
        act(&service, "create tank/c", Outcome::Done);
    });
    bed.life(async |service| {
        let seen = all(&service).await;
        let expected = [
            (1, "create tank/a", Outcome::Done, false),
            (2, "create tank/b", Outcome::Begun, false),
        ];
        assert_eq!(told(&seen), expected);
        assert!(service.datasets.by_name("tank/b").is_some());
    });
    bed.assert_clean();
}

#[test]
fn history_is_bounded_and_what_failed_pushes_out_nothing_that_was_done() {
    // A small pool keeps fewer.
    let mut bed = Bed::new(1, 1 << 20);
    let acts = HISTORY_ACTS_MAX + 100;
    bed.life(async |service| {
        for at in 0..acts {
            act(&service, &format!("act {at}"), Outcome::Done);
        }
        // Waiting acts are written little by little, without a request.
        for _ in 0..acts {
            service.pool.sync().await.unwrap();
            if !service.datasets.has_background_work() {
                break;
            }
        }
        for at in 0..10 * HISTORY_ATTEMPTS_MAX {
            act(&service, &format!("attempt {at}"), Outcome::Failed);
            if at % 100 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
    });
    bed.assert_clean();
    bed.life(async |service| {
        let seen = all(&service).await;
        let of = |outcome| seen.iter().filter(move |noted| noted.record.outcome == outcome);
        assert_eq!(of(Outcome::Done).count() as u64, HISTORY_ACTS_MAX);
        assert_eq!(of(Outcome::Done).next().unwrap().record.act, "act 100");
        assert_eq!(of(Outcome::Failed).count() as u64, HISTORY_ATTEMPTS_MAX);
        assert_eq!(seen.len() as u64, HISTORY_ACTS_MAX + HISTORY_ATTEMPTS_MAX);
        assert!(seen.is_sorted_by_key(|noted| noted.record.order));
    });
}

#[test]
fn a_damaged_history_keeps_nobody_from_serving() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        for at in 0..100 {
            act(&service, &format!("set quota={at}G tank"), Outcome::Done);
        }
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
    });
    let node = bed.find_history_leaf();
    bed.rot(node);
    bed.life(async |service| {
        let history = service.datasets.history();
        let failed = history.list().await.unwrap_err();
        assert!(matches!(failed, PoolError::Read(_) | PoolError::Corrupt(_)), "{failed}");
        act(&service, "set readonly=on tank", Outcome::Done);
        service.datasets.set("tank", "readonly", Some("on")).await.unwrap();
    });
    bed.assert_only(&[Kind::NodeUnreadable, Kind::LeakUnknown, Kind::CopyBad]);
    bed.life(async |service| {
        let own = service.datasets.by_name("tank").unwrap();
        assert!(own.properties().readonly);
    });
}

/// No dataset is charged for the history: it must fit into the reserve of a full pool.
#[test]
fn history_of_a_full_pool_goes_on_and_takes_no_more_than_is_kept_back() {
    let long = "x".repeat(2000);
    for sides in [1, 2] {
        let mut bed = Bed::new(sides, 65536);
        bed.life(async |service| {
            let ((file, pages), _) = full(&service).await;
            for at in 0..2000 {
                let outcome = if at % 4 == 0 { Outcome::Failed } else { Outcome::Done };
                let history = service.datasets.history();
                let begun = history.begin(asked(&format!("{at} {long}")));
                history.finish(begun, outcome, long.clone(), set(&long));
                if at % 10 == 0 {
                    service.pool.sync().await.unwrap();
                }
            }
            while service.datasets.has_background_work() {
                service.pool.sync().await.unwrap();
            }
            let records = service.pool.slop_sectors() as usize / 4;
            assert_eq!(all(&service).await.len(), records * 3 / 4 + records / 4);

            for page in 0..100 {
                let data = noise(page, 1);
                write(&service, file, page * 7 % pages, &data, Stability::FileSync).await.unwrap();
            }
            let top = service.files.root("tank").unwrap();
            service.files.remove(&root(), top, b"large").await.kept().await.0.unwrap();
            make(&service, top, "new").await;
        });
        bed.assert_clean();
    }
}

#[test]
fn events_are_bounded_push_out_no_act_and_outlive_the_daemon() {
    let mut bed = Bed::new(1, 1 << 20);
    let events = 3 * HISTORY_EVENTS_MAX;
    bed.life(async |service| {
        act(&service, "create tank/vms", Outcome::Done);
        for at in 0..events {
            let fields = vec![("leaf".to_string(), format!("/dev/{at}"))];
            service.datasets.history().happened("disk.failed", "error", "a disk", fields);
            if at % 8 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
        // Of what waits for a disk that does not answer, the first are kept.
        for _ in 0..events {
            service.datasets.history().happened("pool.silent", "error", "no disk", Vec::new());
        }
        let waiting = service.datasets.history().events().await.unwrap();
        let waiting = waiting.iter().filter(|event| event.who == "pool.silent").count();
        assert!((100..400).contains(&waiting), "{waiting}");
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
    });
    bed.assert_clean();
    bed.life(async |service| {
        let seen = service.datasets.history().events().await.unwrap();
        assert!(seen.len() as u64 <= HISTORY_EVENTS_MAX, "{}", seen.len());
        assert!(seen.is_sorted_by_key(|event| event.order));
        let failed = seen.iter().rfind(|event| event.who == "disk.failed").unwrap();
        assert_eq!((failed.result.as_str(), failed.act.as_str()), ("error", "a disk"));
        assert_eq!(failed.changes[0].after, format!("/dev/{}", events - 1));
        let acts = all(&service).await;
        assert_eq!(acts.len(), 1, "{acts:?}");
        assert_eq!(acts[0].record.act, "create tank/vms");
    });
}

/// Acts of hosts, completed or refused, push out nothing of others: no acts, no refused ones, no
/// events.
#[test]
fn a_host_wipes_nothing_out_of_the_history() {
    let mut bed = Bed::new(1, 1 << 20);
    let asked_by_host = |number: u64| Asked {
        who: "host 10.0.0.7".into(),
        host: "store".into(),
        act: format!("snapshot tank@{number}"),
    };
    let many = HISTORY_OF_HOSTS_MAX + 100;
    let flood = async |service: &Service, from: u64| {
        let history = service.datasets.history();
        for number in from..from + many {
            let begun = history.begin_of_host(asked_by_host(number));
            let outcome = if number % 2 == 0 { Outcome::Done } else { Outcome::Failed };
            history.finish(begun, outcome, String::new(), Vec::new());
            if number % 5 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        settle(service, 2).await;
    };
    let of_hosts = |noted: &[Noted]| {
        let of_hosts = noted.iter().filter(|noted| noted.record.who.starts_with("host"));
        of_hosts.map(|noted| noted.record.act.clone()).collect::<Vec<_>>()
    };
    bed.life(async |service| {
        act(&service, "create tank/a", Outcome::Done);
        act(&service, "destroy tank", Outcome::Forbidden);
        service.datasets.history().happened("disk.failed", "error", "gone", Vec::new());
        flood(&service, 0).await;
        act(&service, "create tank/b", Outcome::Done);
        settle(&service, 2).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let noted = all(&service).await;
        let words: Vec<&str> = noted.iter().map(|noted| noted.record.act.as_str()).collect();
        assert_eq!(words[..2], ["create tank/a", "destroy tank"]);
        assert_eq!(words.last(), Some(&"create tank/b"));
        let kept = of_hosts(&noted);
        assert_eq!(kept.len() as u64, HISTORY_OF_HOSTS_MAX);
        assert_eq!(kept.last(), Some(&format!("snapshot tank@{}", many - 1)));
        assert!(noted.iter().all(|noted| !noted.running));
        assert_eq!(service.datasets.history().events().await.unwrap().len(), 1);
        // Their numbers go on.
        flood(&service, many).await;
        let kept = of_hosts(&all(&service).await);
        assert_eq!(
            kept.first(),
            Some(&format!("snapshot tank@{}", 2 * many - HISTORY_OF_HOSTS_MAX))
        );
    });
    bed.assert_clean();
}

/// An act that is forgotten leaves nothing, whether it was on disk or not.
#[test]
fn what_is_forgotten_is_in_no_history() {
    let mut bed = Bed::new(1, 1 << 20);
    bed.life(async |service| {
        act(&service, "create tank/a", Outcome::Done);
        let history = service.datasets.history();
        let one = history.begin(asked("create tank/a"));
        settle(&service, 2).await;
        assert_eq!(all(&service).await.len(), 2);
        let other = history.begin(asked("create tank/a"));
        history.forget(one);
        history.forget(other);
        assert_eq!(all(&service).await.len(), 1);
        settle(&service, 2).await;
        assert_eq!(all(&service).await.len(), 1);
    });
    bed.assert_clean();
    bed.life(async |service| assert_eq!(all(&service).await.len(), 1));
}

/// A host's act that was cut off is in the history, as begun.
#[test]
fn history_has_what_a_host_began() {
    let mut bed = Bed::new(1, 65536);
    bed.cut_life(async |service| {
        let history = service.datasets.history();
        let asked = Asked { who: "host 10.0.0.7".into(), ..asked("snapshot tank@a") };
        let _begun = history.begin_of_host(asked);
        service.pool.sync().await.unwrap();
        assert!(all(&service).await[0].running);
    });
    bed.life(async |service| {
        assert_eq!(told(&all(&service).await), [(0, "snapshot tank@a", Outcome::Begun, false)]);
        act(&service, "create tank/a", Outcome::Done);
        assert_eq!(all(&service).await.len(), 2);
    });
    bed.assert_clean();
}
