use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn start(&self, text: &str, words: &[&str]) -> Result<Usable, String> {
        let path = self.0.path().join("aquifer.toml");
        std::fs::write(&path, text).unwrap();
        let state = self.0.path().to_str().unwrap();
        let own = ["serve", "--config", path.to_str().unwrap(), "--state-dir", state];
        let line = Line::try_parse_from(own.iter().chain(words)).unwrap();
        usable(&line.serve).map_err(|error| format!("{error:?}"))
    }

    #[track_caller]
    fn starts(&self, text: &str) -> (Settings, String, Severity) {
        let Usable { settings, problem } = self.start(text, &[]).unwrap();
        let problem = problem.unwrap();
        assert_eq!(problem.code, "settings-unusable");
        (settings, problem.status, problem.severity)
    }
}

/// A good configuration that has every kind of key.
const GOOD: &str = "wait_for_disks_s = 7\n[nfs]\nlisten = [\"10.0.0.1:2049\"]\nthreads = 3\n\
                    [portmap]\nenabled = false\n[[alerts.command]]\nrun = [\"/bin/true\"]\n\
                    [peers.backup]\nurl = \"https://10.0.0.6:9443\"\ncertificate = \"/c\"\n\
                    token = \"/t\"\n";

/// Every key of the schema, of the wrong type: a new key is tried too.
#[test]
fn each_setting_may_be_wrong_and_only_it_goes_back() {
    let place = Place::new();
    assert!(place.start(GOOD, &[]).unwrap().problem.is_none());
    let all = Table::try_from(Settings::default()).unwrap();
    let mut all = units(&all);
    all.iter_mut().for_each(|unit| unit.index = None);
    all.dedup_by(|a, b| a.path == b.path);
    assert!(all.len() > 15, "{all:?}");
    let good: Table = toml::from_str(GOOD).unwrap();
    for unit in all {
        for wrong in [Value::Datetime("1979-05-27".parse().unwrap()), Value::Table(Table::new())] {
            let mut table = good.clone();
            let (name, above) = unit.path.split_last().unwrap();
            let mut at = &mut table;
            for name in above {
                let inner = at.entry(name.clone()).or_insert(Value::Table(Table::new()));
                at = inner.as_table_mut().unwrap();
            }
            at.insert(name.clone(), wrong.clone());
            // A table is right for one that is a map.
            if Settings::deserialize(table.clone()).is_ok() {
                continue;
            }
            let (settings, status, severity) = place.starts(&toml::to_string(&table).unwrap());
            assert!(status.contains(&unit.key()), "{status}");
            assert_eq!(severity, Severity::Error);
            assert_eq!(settings.nfs.listen, ["10.0.0.1:2049".parse().unwrap()], "{status}");
            let had = ["wait_for_disks_s", "nfs.threads"].contains(&&*unit.key());
            assert!(had || (settings.wait_for_disks_s, settings.nfs.threads) == (7, 3));
        }
    }
}

#[test]
fn values_that_make_no_sense_go_back_and_the_rest_stays() {
    let place = Place::new();
    place.start(GOOD, &[]).unwrap();
    for (line, part) in [
        ("memory = \"500T\"\n", "memory: 500T"),
        ("recordsize = 4096\n", "recordsize: unknown field"),
        ("log = \"inof\"\n", "is no level"),
        ("[api]\nnames = [\"bad name\"]\n", "no name of a host"),
        ("[api]\nlisten = [\"here\"]\n", "api.listen"),
        ("[nfs.tls]\ncertificate = \"/c\"\n", "nfs.tls"),
        ("[peers.\"a b\"]\nurl = \"x\"\ncertificate = \"/c\"\ntoken = \"/t\"\n", "a b"),
        ("[peers.other]\nurl = 5\n", "peers.other"),
        ("[[alerts.mail]]\nserver = \"s\"\n", "alerts.mail"),
        ("[alerts]\ncapacity_warning_percent = 200\n", "capacity"),
    ] {
        let text = match line.starts_with('[') {
            true => GOOD.to_string() + line,
            false => line.to_string() + GOOD,
        };
        let text = text.replace("[[alerts.command]]\nrun = [\"/bin/true\"]\n", "");
        let (settings, status, severity) = place.starts(&text);
        assert!(status.contains(part), "{part}: {status}");
        assert_eq!(settings.nfs.listen, ["10.0.0.1:2049".parse().unwrap()]);
        assert!(settings.memory_bytes() < 1 << 45);
        let is_unknown = line.starts_with("recordsize");
        assert_eq!(severity == Severity::Warning, is_unknown, "{status}");
        assert!(settings.peers.contains_key("backup"), "{status}");
    }
}

#[test]
fn where_nfs_listens_is_never_guessed() {
    let place = Place::new();
    for text in
        ["[nfs]\nlisten = 5\n", "nfs = 5\n", "[nfs]\nlisten = [\"x\"]\n", "?", "nfs.listen = []"]
    {
        let refused = place.start(text, &[]).map(|usable| usable.settings.nfs.listen);
        // The state directory is known, so a file that is spoilt as a whole is no better.
        assert!(refused.is_err(), "{text}: {refused:?}");
        let told = place.start(text, &["--nfs-addr", "10.0.0.3:1"]).unwrap();
        assert_eq!(told.settings.nfs.listen, ["10.0.0.3:1".parse().unwrap()]);
        assert_eq!(told.problem.is_none(), text == "nfs.listen = []", "{text}");
    }
    std::fs::remove_file(place.0.path().join(FILE_NAME)).unwrap();
    place.start(GOOD, &[]).unwrap();
    for text in ["[nfs]\nlisten = 5\n", "nfs = 5\n", "[nfs]\nlisten = [\"x\"]\n", "?", "\0\0"] {
        let (settings, ..) = place.starts(text);
        assert_eq!(settings.nfs.listen, ["10.0.0.1:2049".parse().unwrap()], "{text}");
    }
    // Of several, those that are addresses stay.
    let (settings, status, _) =
        place.starts("nfs.listen = [\"10.0.0.9:2049\", \"10.0.0.9\", \"10.0.0.8:2049\"]");
    assert_eq!(settings.nfs.listen.len(), 2, "{status}");
    // A copy that is spoilt itself helps nobody, and hurts nobody.
    std::fs::write(place.0.path().join(FILE_NAME), "nfs = 3").unwrap();
    assert!(place.start("?", &[]).is_err());
    assert!(place.start(GOOD, &[]).unwrap().problem.is_none());
}
