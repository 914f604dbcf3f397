//! A call that comes twice at once, on two connections: it runs once, and both are answered alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_files::{Begun, CallId, CreateHow, Credentials, SetAttributes};
use aquifer_threads::bed::{Bed, DATASET};
use aquifer_threads::block_on;
use aquifer_threads::run::permute;

use crate::clients::BASE;

const CALLS: u32 = 4;

pub fn send_twice() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let root = bed.service.files.root(DATASET).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let thread = |_| {
            let (service, ran) = (bed.service.clone(), ran.clone());
            bed.world.thread(async move || {
                let mut answers = Vec::new();
                for xid in 0..CALLS {
                    let call = CallId::new([1; 16], xid, (100_003, 8), b"");
                    let replies = service.datasets.replies();
                    match replies.begin(call).await.unwrap() {
                        Begun::New(running) => {
                            ran.fetch_add(1, Ordering::SeqCst);
                            let cred = Credentials { call: Some(call), ..Credentials::root() };
                            let how = CreateHow::Guarded(SetAttributes::default());
                            let name = format!("f{xid}");
                            let made = service
                                .files
                                .create(&cred, root, name.as_bytes(), how)
                                .await
                                .kept()
                                .await
                                .0;
                            let made = made.unwrap().handle;
                            running.answered(0, &made.object.0.to_le_bytes());
                            answers.push(made.object);
                        }
                        Begun::Answered(answer) => answers.push(answer.entry.object),
                    }
                }
                answers
            })
        };
        let threads: Vec<_> = (0..3).map(thread).collect();
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
        assert_eq!(ran.load(Ordering::SeqCst), u64::from(CALLS));
        bed.close().await;
    });
}

#[test]
fn a_call_runs_once() {
    permute(&[&BASE], send_twice, 40);
}

/// Each within some ten times the schedules that it took.
#[test]
fn calls_that_run_twice_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[&BASE], Rule::CallRunsOnce, send_twice, 500);
}
