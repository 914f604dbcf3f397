//! Why what changed cannot be received.

/// Reason why changes since a snapshot cannot be received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncrementError {
    /// There is no such dataset.
    #[error(
        "the stream has only what changed since {from:?}, and there is no dataset {name:?}: send \
         {from:?} without -i, and receive that first"
    )]
    NoCopy {
        /// The dataset.
        name: String,
        /// The full name of the snapshot where it comes from.
        from: String,
    },
    /// Clients use it.
    #[error(
        "{0:?} is in service: set standby=on on it, so that no client sees half of what is received"
    )]
    InService(String),
    /// It is a copy of something else.
    #[error(
        "the stream is of {sent:?}, whose file handles are not those of {name:?}: receive it into \
         a copy that has them (received without --new-handles)"
    )]
    OtherHandles {
        /// The dataset.
        name: String,
        /// The full name of the one that was sent.
        sent: String,
    },
    /// Its newest snapshot is another one.
    #[error(
        "the stream has what changed since {from:?}, and {newest}: {}",
        if *.is_there {
            "roll back with `aquifer rollback -r`, which destroys the later ones, or send what \
             changed since the newest one"
        } else {
            "send what changed since a snapshot that both have"
        }
    )]
    NotNewest {
        /// The full name of the snapshot where it comes from.
        from: String,
        /// Words that say what the newest one is.
        newest: String,
        /// The dataset has it, and later ones.
        is_there: bool,
    },
    /// It was changed.
    #[error("{0:?} was changed since its newest snapshot: -F drops these changes")]
    Changed(String),
    /// Something is being received into it.
    #[error("{0:?} is being received into: wait until that has ended, or end it")]
    Busy(String),
    /// Part of a stream waits in it.
    #[error(
        "{0:?} has part of a stream that broke off: go on with it (`aquifer get \
         receive_resume_token {0}` says the TOKEN for `aquifer send -t`), or give it up with \
         `aquifer receive -A {0}`"
    )]
    Partial(String),
    /// There are too many.
    #[error(
        "{0} streams broke off and wait in this pool: go on with some or give them up (`aquifer \
         list -t receiving`)"
    )]
    ManyPartials(usize),
    /// Nothing waits there.
    #[error(
        "nothing of a stream waits in {0:?}: it came to its end, or was given up. Send the \
         snapshot as a whole, or what changed since the newest one there"
    )]
    NoPartial(String),
    /// Part of another stream waits there.
    #[error(
        "what waits in {name:?} is of another stream, of {has:?}: go on with that one, or give it \
         up with `aquifer receive -A {name}`"
    )]
    OtherStream {
        /// The dataset.
        name: String,
        /// The snapshot of the stream that waits.
        has: String,
    },
    /// Another one brings its increments.
    #[error(
        "{name:?} is a copy that another one feeds: {snapshot:?}, its newest snapshot, is \
         {mark:?}. If its source has another token now, an administrator lets that one in with \
         `aquifer release {mark:?} {name}@{snapshot}`"
    )]
    OtherFeeder {
        /// The dataset.
        name: String,
        /// Its newest snapshot, behind the '@'.
        snapshot: String,
        /// The hold on that, which says who brought it.
        mark: String,
    },
    /// It leaves something out.
    #[error(
        "the stream goes on behind what {0:?} has: make it again with the token that `aquifer get \
         receive_resume_token {0}` says now"
    )]
    BehindPlace(String),
    /// Its old snapshot is not what the record says.
    #[error(
        "what was received into {0:?} has no snapshot to go back to: its record is damaged. Clone \
         an older snapshot, and destroy the dataset"
    )]
    NoWayBack(String),
    /// An id is not free yet.
    #[error(
        "what {name:?} had as object {object} was removed, and is not freed yet: receive it again \
         later"
    )]
    NotFreed {
        /// The dataset.
        name: String,
        /// The object.
        object: u64,
    },
}
