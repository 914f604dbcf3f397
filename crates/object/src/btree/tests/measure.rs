//! The cost of single steps, without a store around them.
//! `cargo test --release -p aquifer-object -- --ignored --nocapture cost_of` prints the figures.

use std::hint::black_box;
use std::time::Instant;

use aquifer_ondisk::tree_node::{Directory, Extents, Namespace, Node, NodeBody, Objects};

use super::{Sample, Twin};
use crate::btree::view::View;
use crate::mem_store::{MemStore, Rng};

fn cost<F: Sample>(name: &str) {
    let mut rng = Rng::new(1);
    let mut twin = Twin::<F>::new(MemStore::instant());
    for _ in 0..20 {
        let some: Vec<u64> = (0..5000).map(|_| rng.below(1 << 30)).collect();
        twin.apply_unchecked(twin.ops(some, &mut rng, 0));
    }
    let mut pointer = twin.root.unwrap();
    let mut inner = None;
    while pointer.level > 0 {
        let page = twin.store.sector(&pointer);
        let view = View::<F>::open(page.as_slice(), &pointer).unwrap();
        inner = Some((pointer, page.clone()));
        pointer = view.child(view.count() / 2).unwrap().1;
    }
    let leaf = twin.store.sector(&pointer);
    let NodeBody::Leaf(entries) = Node::<F>::decode(leaf.as_slice(), &pointer).unwrap().body else {
        panic!("a leaf");
    };
    let node = Node::<F>::decode(leaf.as_slice(), &pointer).unwrap();
    let keys: Vec<F::Key> = entries.iter().map(F::key).collect();
    let rounds = 20_000;
    let time = |what: &str, step: &mut dyn FnMut(usize)| {
        let start = Instant::now();
        (0..rounds).for_each(&mut *step);
        println!("{name}: {what}: {} ns", start.elapsed().as_nanos() / rounds as u128);
    };
    println!("{name}: {} entries in the leaf", entries.len());
    time("find in a leaf", &mut |at| {
        let view = View::<F>::open(leaf.as_slice(), &pointer).unwrap();
        black_box(view.find(keys[at % keys.len()]).unwrap());
    });
    let (upper, page) = inner.unwrap();
    time("step down", &mut |at| {
        let view = View::<F>::open(page.as_slice(), &upper).unwrap();
        black_box(view.child_for::<crate::mem_store::MemError>(keys[at % keys.len()]).unwrap());
    });
    time("decode a leaf", &mut |_| {
        black_box(Node::<F>::decode(leaf.as_slice(), &pointer).unwrap());
    });
    time("encode a leaf", &mut |_| drop(black_box(node.encode().unwrap())));
    time("decode an inner node", &mut |_| {
        black_box(Node::<F>::decode(page.as_slice(), &upper).unwrap());
    });
    assert!(entries.iter().all(|entry| F::entry_bytes(entry) > 0));
}

#[test]
#[ignore = "a measurement: run it in a release build"]
fn cost_of_steps() {
    cost::<Extents>("extents");
    cost::<Objects>("objects");
    cost::<Directory>("directory");
    cost::<Namespace>("namespace");
}
