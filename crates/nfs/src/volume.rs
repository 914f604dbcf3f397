//! A pool's files, while clients use them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use aquifer_files::{FileHandle, Files};

/// The files of a pool. Each call in progress holds its volume. So after a volume's exports are
/// removed, the holder can see when no call works on it any more.
pub struct Volume(Arc<Files>);

impl Volume {
    /// The volume of a pool; make one, for as long as the pool is served.
    pub fn new(files: Arc<Files>) -> Arc<Volume> {
        Arc::new(Volume(files))
    }

    /// Whether it belongs to this pool.
    pub fn is_of(&self, files: &Arc<Files>) -> bool {
        Arc::ptr_eq(&self.0, files)
    }

    /// Carries out a part of a call, unless the disks of the pool are silent while it waits for
    /// something: `None` then. The part is dropped halfway, as with a lost connection.
    pub(crate) async fn unless_silent<T>(&self, part: impl Future<Output = T>) -> Option<T> {
        let (mut part, mut silence) = (pin!(part), pin!(self.silence()));
        poll_fn(|context| match part.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => silence.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// The root directory `handle` of a dataset in this volume.
    pub fn root(self: &Arc<Self>, handle: FileHandle) -> Root {
        Root { volume: Arc::clone(self), handle }
    }
}

impl Deref for Volume {
    type Target = Files;
    fn deref(&self) -> &Files {
        &self.0
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Volume")
    }
}

/// The root directory of a dataset.
#[derive(Clone, Debug)]
pub struct Root {
    /// The volume of the dataset.
    pub volume: Arc<Volume>,
    /// Its handle.
    pub handle: FileHandle,
}
