//! Why what changed cannot be received.

/// What changed cannot be received.
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
        /// What the newest one is.
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
