//! Any bytes: a well-formed reply or none, never a panic.

use proptest::prelude::*;

use super::*;

/// Answers `record` and checks the form of the reply.
async fn check(nfs: &Nfs, record: &[u8]) {
    let mut out = EncodeBuf::new();
    let announced = nfs.reply_bytes_max(record);
    let answered = nfs.answer(client(1), record, &mut out).await;
    let reply = out.to_vec();
    assert!(reply.len() <= announced);
    if answered.is_err() {
        assert!(reply.is_empty());
        return;
    }
    let mark = u32::try_from(reply.len() - 4).unwrap() | 0x8000_0000;
    assert_eq!(reply[..4], mark.to_be_bytes());
    assert_eq!(reply[4..8], record[..4], "the call's xid");
    Reply::decode(&mut Decoder::new(&reply[4..])).unwrap();
}

fn some_call() -> impl Strategy<Value = Vec<u8>> {
    let name = proptest::collection::vec(any::<u8>(), 0..300);
    (name, 0..40usize, 1..4u8).prop_map(|(name, which, guid)| {
        let mut all = looks(handle(guid), &name);
        all.extend(changes(handle(guid), &name));
        let which = which % all.len();
        nfs3(&all[which])
    })
}

fn damaged_call() -> impl Strategy<Value = Vec<u8>> {
    let index = any::<prop::sample::Index>;
    let damage = proptest::collection::vec((index(), any::<u8>()), 1..6);
    let cut = proptest::option::of(index());
    (some_call(), damage, cut).prop_map(|(mut record, damage, cut)| {
        for (place, value) in damage {
            let place = place.index(record.len());
            record[place] = value;
        }
        if let Some(cut) = cut {
            record.truncate(cut.index(record.len()));
        }
        record
    })
}

fn random_arguments() -> impl Strategy<Value = Vec<u8>> {
    let program = prop_oneof![Just(100_003_u32), Just(100_005), Just(100_000)];
    let args = proptest::collection::vec(any::<u8>(), 0..300);
    (program, 0..5_u32, 0..24_u32, args).prop_map(|(program, version, procedure, args)| {
        let mut record = call(program, version, procedure, &());
        record.extend(args);
        record
    })
}

/// One pool for all cases: the effects of damaged calls on its files do not matter.
fn for_all(records: impl Strategy<Value = Vec<u8>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nfs = runtime.block_on(nfs());
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(&records, |record| {
        runtime.block_on(check(&nfs, &record));
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn random_bytes() {
    for_all(proptest::collection::vec(any::<u8>(), 0..600));
}

#[test]
fn calls_with_random_arguments() {
    for_all(random_arguments());
}

#[test]
fn damaged_calls() {
    for_all(damaged_call());
}
