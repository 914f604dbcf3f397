use aquifer_blockio::Page;

use crate::disk::image::Image;
use crate::disk::platter::Platter;

fn page(value: u8) -> Page {
    Page::with_prefix(&[value; 4096])
}

fn newest(platter: &Platter, sector: u64) -> u8 {
    platter.newest(sector)[0]
}

#[test]
fn a_view_joins_cache_and_durable_content() {
    let mut platter = Platter::new(Image::new(10));
    platter.store_durable(0, (1..=5).map(page).collect());
    platter.store(1, 1, [page(11)]);
    platter.store(2, 3, [page(13), page(14), page(15)]);
    let seen: Vec<u8> = platter.view(0, 7).iter().map(|page| page[0]).collect();
    assert_eq!(seen, [1, 11, 3, 13, 14, 15, 0]);
}

#[test]
fn a_flush_of_an_earlier_number_leaves_later_versions_in_the_cache() {
    let mut platter = Platter::new(Image::new(10));
    platter.store(1, 0, [page(1)]);
    let covered = platter.completed();
    platter.store(2, 0, [page(2)]);
    platter.store(3, 5, [page(3)]);
    platter.flush(covered);
    assert_eq!(platter.durable(0)[0], 1);
    assert_eq!(newest(&platter, 0), 2);
    assert_eq!(platter.durable(5)[0], 0);
    assert_eq!(platter.cache.len(), 2);
    platter.flush(platter.completed());
    assert_eq!((platter.durable(0)[0], platter.durable(5)[0]), (2, 3));
    assert!(platter.cache.is_empty());
}

#[test]
fn two_flushes_may_complete_in_the_other_order() {
    let mut platter = Platter::new(Image::new(10));
    platter.store(1, 0, [page(1)]);
    let first = platter.completed();
    platter.store(2, 0, [page(2)]);
    let second = platter.completed();
    platter.flush(second);
    platter.flush(first);
    assert_eq!(platter.durable(0)[0], 2, "an older flush takes nothing back");
}

#[test]
fn what_reaches_past_the_end_falls_away() {
    let mut platter = Platter::new(Image::new(2));
    platter.store(1, 1, [page(1), page(2)]);
    assert_eq!(platter.cache.len(), 1);
    platter.store_durable(1, vec![page(3), page(4)]);
    assert_eq!(newest(&platter, 1), 3);
    assert_eq!(newest(&platter, 2), 0);
}
