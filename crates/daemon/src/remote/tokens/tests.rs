//! Tests of tokens: which texts hold as one, and for how long.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn create(name: &str, role: Role) -> CreateToken {
    let (name, certificates, datasets) = (name.into(), Vec::new(), Vec::new());
    CreateToken { name, role, expires_s: None, certificates, datasets }
}

fn token(name: &str, role: Role) -> Shown {
    Shown::Token { name: name.into(), rights: role.into() }
}

fn expired(name: &str) -> Shown {
    Shown::Expired { name: name.into() }
}

#[test]
fn a_token_holds_over_restarts_until_it_is_revoked_and_is_nowhere_kept() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("api");
    let tokens = Tokens::open(&directory);
    assert!(!directory.exists(), "made before there is anything to keep");
    let made = tokens.create(&create("ci", Role::Read)).unwrap();
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), token("ci", Role::Read));
    let path = directory.join("tokens.json");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    assert!(!fs::read_to_string(&path).unwrap().contains(&made.token));
    assert!(!format!("{made:?}").contains(&made.token));

    let tokens = Tokens::open(&directory);
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), token("ci", Role::Read));
    for other in ["", "x", &made.token[1..], &made.token.to_uppercase(), &Hash::of(b"").text()] {
        assert_eq!(tokens.look(other, Proof::default(), 0), Shown::Nothing, "{other:?}");
    }
    // What is kept of it is no token.
    let hash = Hash::of(made.token.as_bytes()).text();
    assert!(fs::read_to_string(&path).unwrap().contains(&hash));
    assert_eq!(tokens.look(&hash, Proof::default(), 0), Shown::Nothing);

    assert_eq!(tokens.revoke("ci").unwrap().name, "ci");
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), Shown::Nothing);
    assert_eq!(Tokens::open(&directory).look(&made.token, Proof::default(), 0), Shown::Nothing);
    assert!(tokens.revoke("ci").is_err() && tokens.list().is_empty());
}

#[test]
fn a_token_ends_at_its_second() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    let end_s = now_s() + 1000;
    let request = CreateToken { expires_s: Some(end_s), ..create("ci", Role::Admin) };
    let made = tokens.create(&request).unwrap();
    assert_eq!(tokens.look(&made.token, Proof::default(), end_s - 1), token("ci", Role::Admin));
    assert_eq!(tokens.look(&made.token, Proof::default(), end_s), expired("ci"));
    let past = CreateToken { expires_s: Some(now_s()), ..create("late", Role::Admin) };
    assert!(tokens.create(&past).unwrap_err().message.contains("--expires"));
}

#[test]
fn a_rotated_token_holds_as_long_as_is_said_and_never_longer_than_it_would_have() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    let end_s = now_s() + 1000;
    let request = CreateToken { expires_s: Some(end_s), ..create("ci", Role::Operator) };
    let first = tokens.create(&request).unwrap().token;
    let known = token("ci", Role::Operator);

    let keep = RotateToken { keep_s: 100, expires_s: Some(end_s + 5000), certificates: None };
    let second = tokens.rotate("ci", &keep).unwrap();
    let until_s = second.info.earlier_until_s.unwrap();
    let second = second.token;
    assert_eq!(tokens.look(&first, Proof::default(), until_s - 1), known);
    assert_eq!(tokens.look(&first, Proof::default(), until_s), expired("ci"));
    assert_eq!(tokens.look(&second, Proof::default(), end_s + 4999), known);
    assert_eq!(tokens.look(&second, Proof::default(), end_s + 5000), expired("ci"));
    // Over a restart.
    let tokens = Tokens::open(home.path());
    assert_eq!(tokens.look(&first, Proof::default(), until_s - 1), known);

    // At once, and the end stays.
    let third = tokens.rotate("ci", &RotateToken::default()).unwrap();
    assert_eq!((third.info.expires_s, third.info.earlier_until_s), (Some(end_s + 5000), None));
    for gone in [&first, &second] {
        assert_eq!(tokens.look(gone, Proof::default(), 0), Shown::Nothing);
    }
    // Kept for longer than it had: no.
    let long = RotateToken { keep_s: 86_400, expires_s: None, certificates: None };
    let fourth = tokens.rotate("ci", &long).unwrap();
    assert_eq!(fourth.info.earlier_until_s, Some(end_s + 5000));
    let forever = RotateToken { keep_s: KEEP_S_MAX + 1, expires_s: None, certificates: None };
    assert!(tokens.rotate("ci", &forever).is_err());
    assert!(tokens.rotate("other", &long).is_err());
}

#[test]
fn the_file_token_goes_on_as_an_administrators_and_holds_as_it_is_now() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("token");
    let put = |text: &str, mode: u32| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let tokens = Tokens::open(home.path());
    let (one, two) = ("1".repeat(64), "2".repeat(40));
    let known = token("token", Role::Admin);
    assert_eq!(tokens.look(&one, Proof::default(), 0), Shown::Nothing);
    put(&format!("{one}\n"), 0o600);
    assert_eq!(tokens.look(&one, Proof::default(), 0), known);
    assert_eq!(tokens.list().len(), 1);
    put(&two, 0o600);
    assert_eq!(
        [tokens.look(&one, Proof::default(), 0), tokens.look(&two, Proof::default(), 0)],
        [Shown::Nothing, known.clone()]
    );
    // What others can read is no secret; what is short is none either.
    put(&two, 0o640);
    assert_eq!(tokens.look(&two, Proof::default(), 0), Shown::Nothing);
    put("short", 0o600);
    assert_eq!(tokens.look("short", Proof::default(), 0), Shown::Nothing);
    put("", 0o600);
    assert_eq!(tokens.look("", Proof::default(), 0), Shown::Nothing);

    let made = tokens.rotate("token", &RotateToken::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), made.token);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), known);
    let keep = RotateToken { keep_s: 1, expires_s: None, certificates: None };
    assert!(tokens.rotate("token", &keep).is_err());
    assert!(
        tokens.revoke("token").is_err() && tokens.create(&create("token", Role::Read)).is_err()
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), Shown::Nothing);
}

#[test]
fn names_are_plain_and_taken_once() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    for wrong in ["", "a b", "a/b", "\n", "\u{e9}", &"a".repeat(65)] {
        assert!(tokens.create(&create(wrong, Role::Read)).is_err(), "{wrong:?}");
    }
    tokens.create(&create("a.b_c-9", Role::Read)).unwrap();
    let taken = tokens.create(&create("a.b_c-9", Role::Admin)).unwrap_err();
    assert!(taken.message.contains("rotate"), "{taken}");
    for number in 1..TOKENS_MAX {
        tokens.create(&create(&number.to_string(), Role::Read)).unwrap();
    }
    assert!(tokens.create(&create("more", Role::Read)).is_err());
}

#[test]
fn a_list_that_others_can_read_or_nobody_understands_lets_nobody_in() {
    let home = tempfile::tempdir().unwrap();
    let (path, copy) = (home.path().join("tokens.json"), home.path().join("tokens.json~"));
    let made = Tokens::open(home.path()).create(&create("ci", Role::Read)).unwrap();
    let is_known = |tokens: &Tokens| {
        matches!(tokens.look(&made.token, Proof::default(), 0), Shown::Token { .. })
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let tokens = Tokens::open(home.path());
    assert!(tokens.problem().unwrap().contains("chmod 600") && !is_known(&tokens));
    tokens.create(&create("other", Role::Read)).unwrap_err();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    tokens.look_again();
    assert!(tokens.problem().is_none() && is_known(&tokens));
    let whole = fs::read(&path).unwrap();
    for text in ["", "{}", "{\"tokens\": [{}]}", "{\"tokens\": [], \"more\": 1}"] {
        fs::write(&path, text).unwrap();
        let tokens = Tokens::open(home.path());
        assert!(is_known(&tokens), "by the copy");
        assert!(tokens.problem().unwrap().contains("no list of tokens"), "{text}");
        tokens.look_again();
        assert!(tokens.problem().is_none() && fs::read(&path).unwrap() == whole);
        fs::write(&path, text).unwrap();
        fs::write(&copy, text).unwrap();
        let tokens = Tokens::open(home.path());
        assert!(!is_known(&tokens));
        tokens.look_again();
        tokens.create(&create("other", Role::Read)).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), text.as_bytes(), "it is not written over");
        fs::write(&path, &whole).unwrap();
        tokens.look_again();
        assert!(is_known(&tokens), "a list that comes late counts from then on");
        tokens.look_again();
        assert_eq!(fs::read(&copy).unwrap(), whole);
    }
    // In service: what is spoilt is written again.
    let tokens = Tokens::open(home.path());
    for spoil in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "?")] {
        for path in [&path, &copy] {
            spoil(path).unwrap();
            tokens.look_again();
            assert!(tokens.problem().is_none() && fs::read(path).unwrap() == whole);
        }
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    tokens.look_again();
    assert!(tokens.problem().unwrap().contains("tokens.json") && is_known(&tokens));
}

#[test]
fn what_cannot_be_written_has_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    let made = tokens.create(&create("ci", Role::Read)).unwrap();
    // A directory stands where the new list is to be written.
    fs::create_dir(home.path().join("tokens.new")).unwrap();
    assert!(tokens.revoke("ci").unwrap_err().message.contains("nothing has changed"));
    assert!(tokens.rotate("ci", &RotateToken::default()).is_err());
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), token("ci", Role::Read));
}

#[test]
fn a_token_is_bound_also_over_restarts_and_rotations() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    let [first, second] = [Hash::of(b"first"), Hash::of(b"second")];
    let of = |hash: &Hash| Proof::with(*hash);
    let unproven = Shown::Unproven { name: "ci".into() };
    let request = CreateToken { certificates: vec![first.text()], ..create("ci", Role::Receive) };
    let made = tokens.create(&request).unwrap();
    assert_eq!(made.info.certificates, [first.text()]);
    drop(tokens);
    let tokens = Tokens::open(home.path());
    assert_eq!(tokens.list()[0].certificates, [first.text()]);
    let known = token("ci", Role::Receive);
    let look = |text: &str, proof| tokens.look(text, proof, 0);
    assert_eq!(look(&made.token, of(&first)), known);
    assert_eq!(look(&made.token, of(&second)), unproven);
    assert_eq!(look(&made.token, Proof::default()), unproven);
    // Rotated, each text keeps its certificates; bound, both have the new ones.
    let certificates = Some(vec![second.text().to_uppercase()]);
    let keep = RotateToken { keep_s: 100, certificates, ..RotateToken::default() };
    let rotated = tokens.rotate("ci", &keep).unwrap().token;
    assert_eq!(
        (look(&made.token, of(&first)), look(&rotated, of(&second))),
        (known.clone(), known)
    );
    assert_eq!(
        (look(&made.token, of(&second)), look(&rotated, of(&first))),
        (unproven.clone(), unproven.clone())
    );
    let keep = RotateToken { keep_s: 100, ..RotateToken::default() };
    let again = tokens.rotate("ci", &keep).unwrap();
    assert_eq!(again.info.certificates, [second.text()]);
    assert!(tokens.are_bound());
    tokens.bind("ci", &BindToken { certificates: vec![first.text()] }).unwrap();
    assert_eq!(
        [look(&rotated, of(&second)), look(&again.token, of(&second))],
        [unproven.clone(), unproven]
    );
    tokens.bind("ci", &BindToken::default()).unwrap();
    assert_eq!(look(&again.token, Proof::default()), token("ci", Role::Receive));
    assert!(!tokens.are_bound());
}

#[test]
fn what_is_no_fingerprint_binds_nothing() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    tokens.create(&create("ci", Role::Read)).unwrap();
    let bind = |name: &str, all: &[&str]| {
        let certificates = all.iter().map(ToString::to_string).collect();
        tokens.bind(name, &BindToken { certificates }).map_err(|error| error.message)
    };
    let good = "ab".repeat(32);
    for wrong in ["", "ab", &"g".repeat(64), &"a".repeat(63), &"\u{e9}".repeat(32)] {
        assert!(bind("ci", &[&good, wrong]).unwrap_err().contains("fingerprint"), "{wrong}");
    }
    assert!(bind("ci", &vec![good.as_str(); CERTIFICATES_MAX + 1]).unwrap_err().contains("16"));
    assert!(bind("nobody", &[&good]).unwrap_err().contains("no token"));
    assert!(bind(FIRST_TOKEN, &[&good]).unwrap_err().contains("token of a file"));
    assert!(tokens.list()[0].certificates.is_empty());
    // As openssl writes it.
    let colons = vec!["AB"; 32].join(":");
    assert_eq!(bind("ci", &[&colons]).unwrap().certificates, [good]);
}

/// Bounds of a token stay with it: over restarts, and when it is rotated.
#[test]
fn a_token_counts_for_the_datasets_that_it_was_made_for() {
    let home = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(home.path());
    let datasets: Vec<DatasetName> = ["tank/vms", "b"].map(|name| name.parse().unwrap()).into();
    let scoped = |name, role| CreateToken { datasets: datasets.clone(), ..create(name, role) };
    for role in [Role::Metrics, Role::Admin] {
        let refused = tokens.create(&scoped("ci", role)).unwrap_err();
        assert!(refused.message.contains("leave out --dataset"), "{refused}");
    }
    let many = vec![datasets[0].clone(); DATASETS_MAX + 1];
    let many = CreateToken { datasets: many, ..create("ci", Role::Read) };
    assert!(tokens.create(&many).is_err() && tokens.list().is_empty());
    let made = tokens.create(&scoped("ci", Role::Operator)).unwrap();
    assert_eq!(made.info.datasets, datasets);
    let rights = Rights { role: Role::Operator, scope: Scope::of(&datasets) };
    let shown = Shown::Token { name: "ci".into(), rights };
    assert_eq!(tokens.look(&made.token, Proof::default(), 0), shown);
    let keep = RotateToken { keep_s: 60, ..RotateToken::default() };
    let rotated = tokens.rotate("ci", &keep).unwrap();
    let tokens = Tokens::open(home.path());
    for text in [&made.token, &rotated.token] {
        assert_eq!(tokens.look(text, Proof::default(), 0), shown);
    }
    assert_eq!(tokens.bind("ci", &BindToken::default()).unwrap().datasets, datasets);
    assert_eq!(tokens.list()[0].datasets, datasets);
    // A list with what is no name of a dataset lets nobody in.
    for name in ["tokens.json", "tokens.json~"] {
        let path = home.path().join(name);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        fs::write(&path, text.replace("tank/vms", "tank/vms,tank")).unwrap();
    }
    let tokens = Tokens::open(home.path());
    assert_eq!(tokens.look(&rotated.token, Proof::default(), 0), Shown::Nothing);
}
