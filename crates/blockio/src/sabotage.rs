//! Rules that the simulator can leave out, to prove that it would find their absence.
//!
//! Only a build with `--cfg sabotage` can leave out anything; elsewhere [`left_out`] is `false` at
//! compile time, and the daemon refuses to be built with that cfg.

/// The rules of DESIGN section 7 that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// Frees are held back for `REWIND_TXGS` further txgs, and again at import.
    HoldBackFrees,
    /// Early data that log records name is kept from allocation at import.
    ClaimLoggedPlaces,
    /// A batch is acknowledged only with all before it.
    ContiguousPrefix,
    /// The floor stays that of the import while a replay spans several txgs.
    ReplayFloor,
    /// A batch header carries the checksum of the one before.
    PreviousChecksum,
    /// A side that dropped out is named outdated before the next acknowledgement.
    NameOutdated,
    /// Import makes durable what it read before it acts on it.
    ImportFlush,
    /// The uberblock's slot is chosen by its own sequence.
    UberblockSlot,
    /// A leaf that another names outdated has no vote at import.
    OutdatedNoVote,
    /// A leaf that an import does not take into use is named outdated by its first uberblock.
    UnusedIsNamed,
    /// An uberblock of another host is looked for before one is written.
    LookForOthers,
    /// An idle pool keeps saying that a host uses it.
    SayInUse,
    /// The end of the log is fixed by an uberblock before anything else.
    FixLogEnd,
    /// A commit waits for the writes of its txg, then flushes, then writes the uberblock.
    FlushBeforeUberblock,
    /// A batch is acknowledged only after a flush.
    FlushBeforeAck,
    /// A log segment is reused only behind the head of a root on disk.
    LogReuseBehindRoot,
    /// The current bitmap slot is named by the record: slots go in turn.
    SlotsInTurn,
    /// COMMIT logs the present content.
    CommitPresentContent,
    /// (place, written) never repeats: a session starts above every txg seen.
    SessionFirstTxg,
    /// Early data of the unproven tail is verified at import.
    VerifyEarlyTail,
    /// Early data of the unproven tail is copied to every main copy.
    LevelEarlyTail,
    /// And written again, like its batches, on sides that hold it: their flush may have failed.
    RewriteTail,
    /// A commit waits for the early writes of its txg.
    CommitWaitsForEarlyWrites,
    /// No place is reused while somebody reads under a root that reaches it.
    ReadersHoldReuse,
    /// A log segment is reused only after every write to it has ended.
    LogReuseAfterLanding,
    /// What identifies a call that must not run twice is in its record.
    ReplyInRecord,
    /// And in the reply table, in the same txg.
    ReplyInTable,
    /// A reply that is given again waits until what it tells is durable.
    ReplyAfterDurable,
    /// A new chain of the log is named by the root of the txg that was open when the old one ended,
    /// or by a later one.
    NewChainWaitsForItsTxg,
    /// While the log is on its way elsewhere no batch is sealed.
    MoveHoldsBatches,
    /// A batch that may lie on the last side of a lost log device alone is not acknowledged before
    /// a root names the new chain.
    LostLogHoldsAcknowledgements,
    /// The last side of a lost log device is not named outdated before a root names the new chain.
    LastLogSideKeepsItsVote,
    /// Before a dataset is logged again, all that was not logged is on disk.
    UnloggedOnDiskFirst,
    /// A generation is never given out again, though a cut or a rewind takes the file that had it.
    FreshGenerations,
    /// Before a replay ids are raised above all that the log names.
    ReplayRaisesIds,
    /// While a replay is unfinished nothing is freed in the background; and COMMIT logs nothing of
    /// a file that lost its last name.
    ReplayReapsNothing,
    /// Nothing is read below the roots of a destroyed dataset.
    DestroyedIsNotRead,
    /// What files are cut short by is freed at once only as far as the record of the txg holds it.
    CutsFitTheRecord,
    /// What cannot be read at the moment is not taken for damaged.
    UnreadableIsNoDamage,
    /// An administrative act is answered when it is on disk: it is not in the log.
    ActsOnDiskFirst,
    /// On a full pool, what needs no more room than there was gets it in turn.
    ReserveInTurn,
    /// The owners of a page are counted in one step: one of them is the last.
    OwnersCountedAtOnce,
    /// The memory of a page becomes another page's only when nobody else has it.
    SharedPageStays,
    /// A reader looks at overlay and root in one look.
    RootWithOverlay,
    /// A txg that closes waits for those who hold it.
    CloseWaitsForHolders,
    /// What an admission asks for and what it takes are one look.
    AdmitInOneLook,
    /// A thread that waits for a notice is known before it looks whether it must wait.
    WaitersComeFirst,
    /// A sender of the log that finds nothing to send is gone when the next record comes.
    SenderEndsAtOnce,
    /// Quotas promise their bytes one write at a time.
    PromisesInTurn,
    /// What reservations still lack is not promised to others.
    ReservationsAreKept,
    /// What a replay writes counts against quotas and reservations.
    ReplaysCount,
    /// A reservation is given up when the disk says so.
    ReleasedOnDiskFirst,
    /// Of a call that comes twice at once, one is carried out.
    CallRunsOnce,
}

/// Rules that there may be.
#[cfg(sabotage)]
const RULES_MAX: usize = 128;

#[cfg(sabotage)]
static LEFT_OUT: [std::sync::atomic::AtomicBool; RULES_MAX] =
    [const { std::sync::atomic::AtomicBool::new(false) }; RULES_MAX];

/// Leaves out these rules from now on, and no others.
#[cfg(sabotage)]
pub fn leave_out(rules: &[Rule]) {
    for (at, left_out) in LEFT_OUT.iter().enumerate() {
        let now = rules.iter().any(|rule| *rule as usize == at);
        left_out.store(now, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Whether a rule is left out.
#[cfg(sabotage)]
pub fn left_out(rule: Rule) -> bool {
    let left_out = LEFT_OUT.get(rule as usize);
    left_out.is_some_and(|left_out| left_out.load(std::sync::atomic::Ordering::Relaxed))
}

/// Whether a rule is left out: never, in this build.
#[cfg(not(sabotage))]
#[inline(always)]
pub const fn left_out(_rule: Rule) -> bool {
    false
}
