use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

fn layout(text: &str) -> Result<Vec<(VdevKind, usize)>, String> {
    let Vdevs { data, logs, spares, caches } = vdevs(&words(text))?;
    assert!(logs.is_empty() && spares.is_empty() && caches.is_empty(), "{text}");
    Ok(data.iter().map(|vdev| (vdev.kind, vdev.disks.len())).collect())
}

#[test]
fn disks_are_striped_or_mirrored() {
    use VdevKind::{Mirror, Single};
    assert_eq!(layout("/a"), Ok(vec![(Single, 1)]));
    assert_eq!(layout("/a /b"), Ok(vec![(Single, 1), (Single, 1)]));
    assert_eq!(layout("mirror /a /b"), Ok(vec![(Mirror, 2)]));
    assert_eq!(layout("mirror a b c mirror d e"), Ok(vec![(Mirror, 3), (Mirror, 2)]));
    assert_eq!(layout("a mirror b c"), Ok(vec![(Single, 1), (Mirror, 2)]));
}

#[test]
fn what_stands_behind_log_is_the_logs() {
    use VdevKind::{Mirror, Single};
    let both = |text: &str| {
        let Vdevs { data, logs, .. } = vdevs(&words(text)).unwrap();
        [data, logs].map(|vdevs| {
            vdevs.into_iter().map(|vdev| (vdev.kind, vdev.disks.join(" "))).collect::<Vec<_>>()
        })
    };
    let one = |disk: &str| (Single, disk.to_string());
    let two = |disks: &str| (Mirror, disks.to_string());
    assert_eq!(both("mirror a b log c"), [vec![two("a b")], vec![one("c")]]);
    assert_eq!(both("a log c d"), [vec![one("a")], vec![one("c"), one("d")]]);
    assert_eq!(both("a log mirror c d"), [vec![one("a")], vec![two("c d")]]);
    assert_eq!(both("mirror a b log c mirror d e"), [vec![two("a b")], vec![one("c"), two("d e")]]);
    assert_eq!(both("log c"), [vec![], vec![one("c")]]);
}

#[test]
fn what_stands_behind_spare_are_spares() {
    let wanted = vdevs(&words("mirror a b log c spare d e")).unwrap();
    assert_eq!((wanted.data.len(), wanted.logs.len()), (1, 1));
    assert_eq!(wanted.spares, ["d", "e"]);
    assert_eq!(vdevs(&words("spare d")).unwrap().spares, ["d"]);
}

#[test]
fn what_stands_behind_cache_are_cache_disks_before_spares_or_after_them() {
    let wanted = vdevs(&words("mirror a b cache c d spare e")).unwrap();
    assert_eq!(
        (wanted.data.len(), wanted.caches, wanted.spares.len()),
        (1, ["c", "d"].map(Into::into).to_vec(), 1)
    );
    assert_eq!(vdevs(&words("a spare e cache c")).unwrap().caches, ["c"]);
}

#[test]
fn layouts_that_cannot_be_say_why() {
    for (text, part) in [
        ("mirror", "at least two"),
        ("mirror a", "at least two"),
        ("mirror mirror a b", "at least two"),
        ("raidz a b c", "raidz is not offered"),
        ("mirror a log b c", "at least two"),
        ("a log mirror b", "at least two"),
        ("a log", "needs a disk"),
        ("a log b log c", "given twice"),
        ("a log raidz b c d", "raidz is not offered"),
        ("a special b", "special devices"),
        ("a cache", "needs a disk"),
        ("a cache b cache c", "given twice"),
        ("a cache b mirror c d", "come last"),
        ("a cache b log c", "come last"),
        ("a spare", "needs a disk"),
        ("a spare b spare c", "given twice"),
        ("a spare mirror b c", "come last"),
        ("a spare b log c", "come last"),
    ] {
        let error = layout(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn sizes_have_units() {
    assert_eq!(bytes("1.5K"), Ok(1536));
}
