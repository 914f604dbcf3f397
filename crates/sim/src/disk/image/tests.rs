use std::collections::BTreeMap;

use aquifer_blockio::Page;

use crate::disk::image::Image;
use crate::rng::Rng;

fn page(value: u64) -> Page {
    Page::with_prefix(&value.to_le_bytes())
}

fn value(image: &Image, sector: u64) -> u64 {
    image.get(sector).map_or(0, |page| u64::from_le_bytes(page[..8].try_into().unwrap()))
}

#[test]
fn an_image_behaves_as_a_map_does_over_clones() {
    for sectors in [1, 31, 32, 33, 1024, 1025, 1 << 20, 1 << 34, u64::MAX] {
        let mut rng = Rng::stream(sectors, "image");
        let mut pairs = vec![(Image::new(sectors), BTreeMap::new())];
        for turn in 0..400u64 {
            if turn % 50 == 49 {
                let copy = pairs[rng.index(pairs.len())].clone();
                pairs.push(copy);
            }
            let chosen = rng.index(pairs.len());
            let (image, model) = &mut pairs[chosen];
            let near = sectors.min(100);
            let sector = if rng.coin() { rng.below(near) } else { sectors - 1 - rng.below(near) };
            let content = if rng.below(4) == 0 { 0 } else { turn + 1 };
            image.set(sector, page(content));
            model.insert(sector, content);
        }
        for (image, model) in &pairs {
            for (sector, content) in model {
                assert_eq!(value(image, *sector), *content);
            }
            let mut seen = Vec::new();
            image.for_each(|sector, page| seen.push((sector, page[0])));
            let expected: Vec<u64> =
                model.iter().filter(|(_, held)| **held != 0).map(|(at, _)| *at).collect();
            assert_eq!(seen.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn zeros_are_holes() {
    let mut image = Image::new(100);
    image.set(5, Page::zeroed());
    assert!(image.get(5).is_none());
    image.set(5, page(1));
    image.set(5, Page::zeroed());
    assert!(image.get(5).is_none());
}

#[test]
fn nothing_lies_past_the_end() {
    let mut image = Image::new(40);
    image.set(40, page(1));
    image.set(u64::MAX, page(1));
    assert!(image.get(40).is_none());
    assert!(image.get(u64::MAX).is_none());
    assert_eq!(image.digest(), Image::new(40).digest());
}

#[test]
fn the_digest_tells_content_and_place_apart() {
    let with = |sector, value| {
        let mut image = Image::new(100);
        image.set(sector, page(value));
        image.digest()
    };
    assert_eq!(with(3, 7), with(3, 7));
    assert_ne!(with(3, 7), with(4, 7));
    assert_ne!(with(3, 7), with(3, 8));
}

#[test]
fn a_clone_shares_the_pages_it_did_not_write() {
    let mut base = Image::new(1 << 16);
    for sector in 0..64 {
        base.set(sector, page(sector + 1));
    }
    let mut copy = base.clone();
    copy.set(3, page(1000));
    assert_eq!(value(&base, 3), 4);
    assert!(base.get(4).unwrap().same(copy.get(4).unwrap()));
}
