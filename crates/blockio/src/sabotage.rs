//! Rules that the simulator can leave out, to prove that it would find their absence.
//!
//! Only a build with debug assertions can leave out a rule, as tests do ([`leave_out`]). In a
//! release [`left_out`] is `false` at compile time.

use std::sync::atomic::{AtomicBool, Ordering};

/// Rules of the design that the simulator can leave out (`docs/invariants.md`).
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
    /// The first uberblock of an import names every leaf outdated that the import does not use.
    UnusedIsNamed,
    /// An import looks for an uberblock of another host before it writes one.
    LookForOthers,
    /// An idle pool keeps announcing that a host uses it.
    SayInUse,
    /// An uberblock fixes the end of the log before anything else happens.
    FixLogEnd,
    /// A commit waits for the writes of its txg, then flushes, then writes the uberblock.
    FlushBeforeUberblock,
    /// A batch is acknowledged only after a flush.
    FlushBeforeAck,
    /// A log segment is reused only behind the head of a root on disk.
    LogReuseBehindRoot,
    /// The record names the current bitmap slot: slots go in turn.
    SlotsInTurn,
    /// COMMIT logs the present content.
    CommitPresentContent,
    /// (place, written) never repeats: a session starts above every txg seen.
    SessionFirstTxg,
    /// Early data of the unproven tail is verified at import.
    VerifyEarlyTail,
    /// Import copies early data of the unproven tail to every main copy.
    LevelEarlyTail,
    /// Import also rewrites it, like its batches, on sides that hold it: their flush may have
    /// failed.
    RewriteTail,
    /// A commit waits for the early writes of its txg.
    CommitWaitsForEarlyWrites,
    /// No place is reused while a reader uses a root that reaches it.
    ReadersHoldReuse,
    /// A log segment is reused only after every write to it has ended.
    LogReuseAfterLanding,
    /// The identity of a call that must not run twice is in its record.
    ReplyInRecord,
    /// It is also in the reply table, in the same txg.
    ReplyInTable,
    /// A repeated reply waits until the changes of its call are durable.
    ReplyAfterDurable,
    /// A call that must not run twice hears "later" only if it changed nothing.
    LaterChangedNothing,
    /// A new chain of the log is named by the root of the txg that was open when the old one ended,
    /// or by a later one.
    NewChainWaitsForItsTxg,
    /// No batch is sealed while the log moves.
    MoveHoldsBatches,
    /// A batch that may lie on the last side of a lost log device alone is not acknowledged before
    /// a root names the new chain.
    LostLogHoldsAcknowledgements,
    /// The last side of a lost log device is not named outdated before a root names the new chain.
    LastLogSideKeepsItsVote,
    /// Before a dataset is logged again, all its unlogged changes are on disk.
    UnloggedOnDiskFirst,
    /// A generation is never given out twice, even if a cut or a rewind takes the file that had it.
    FreshGenerations,
    /// A replay first raises ids above all that the log names.
    ReplayRaisesIds,
    /// While a replay is unfinished nothing is freed in the background, and COMMIT logs nothing of
    /// a file that lost its last name.
    ReplayReapsNothing,
    /// Nothing is read below the roots of a destroyed dataset.
    DestroyedIsNotRead,
    /// The extents that truncations cut off are freed at once only as far as the record of the txg
    /// has room.
    CutsFitTheRecord,
    /// A read error is not taken for damage.
    UnreadableIsNoDamage,
    /// An administrative act is answered when it is on disk: it is not in the log.
    ActsOnDiskFirst,
    /// On a full pool, changes that need no more room get the reserve in turn.
    ReserveInTurn,
    /// The owners of a page are counted in one step: one of them is the last.
    OwnersCountedAtOnce,
    /// The memory of a page becomes another page's only when it has no other owner.
    SharedPageStays,
    /// A reader captures overlay and root in one look.
    RootWithOverlay,
    /// A txg that closes waits for its holds.
    CloseWaitsForHolders,
    /// An admission checks and takes its demand in one look.
    AdmitInOneLook,
    /// A thread that waits for a notice registers before it checks whether it must wait.
    WaitersComeFirst,
    /// A sender of the log that finds nothing to send is gone when the next record comes.
    SenderEndsAtOnce,
    /// Quotas promise their bytes one write at a time.
    PromisesInTurn,
    /// Bytes that reservations still lack are not promised to others.
    ReservationsAreKept,
    /// Content that snapshots show makes no room for what is written over it.
    SnapshotsLeaveNoRoom,
    /// A snapshot of a dataset with a `refreservation` asks for room.
    SnapshotsAskForRoom,
    /// Content that snapshots of files show makes no room either.
    FilesCoverToo,
    /// Content that a rollback brings back is shown by the snapshot.
    RollbackCovers,
    /// How much of a head snapshots show is on disk.
    CoveredIsOnDisk,
    /// The writes of a replay count against quotas and reservations.
    ReplaysCount,
    /// A reservation is released when the disk says so.
    ReleasedOnDiskFirst,
    /// Of two equal calls at once, only one is carried out.
    CallRunsOnce,
    /// A leaf that is to be resilvered gets a mark before anything else.
    MarkFirst,
    /// The uberblocks of a leaf with a newer mark do not count.
    MarkHasNoVote,
    /// A leaf has missed what was written since its own uberblock or mark, not since now.
    MissedFromItsOwn,
    /// The walk of a resilver takes the root of a txg that opened after the leaf came.
    WalkAfterItCame,
    /// A resilvered leaf has labels of the present config.
    ResilveredHasLabels,
    /// A resilvered leaf has the live txg records.
    ResilveredHasRecords,
    /// A resilvered leaf has the slots of space bitmaps.
    ResilveredHasSlots,
    /// A resilvered leaf has the older roots that the uberblock names.
    ResilveredHasOlderRoots,
    /// No place is reused while a piece of a walk is copied or examined.
    PieceHoldsItsRoot,
    /// A piece of a walk shows the nodes on the way to its begin once more.
    WalkShowsThePath,
    /// A scrub reads every copy.
    ScrubReadsEveryCopy,
    /// A scrub mends from a copy that verified.
    MendsFromVerified,
    /// The position of a scrub passes a piece only once it was examined and mended.
    ScrubNotesWhatIsDone,
    /// A leaf is resilvered only after all I/O that it was given before has ended.
    QuietBeforeResilver,
    /// The last side of a mirror never fails because it does not answer.
    LastSideWaits,
    /// A side that does not answer fails before anything is acknowledged without it.
    LateSideFails,
    /// The space of a new vdev is used only after an uberblock carries the config that lists it.
    NewVdevIsListedFirst,
    /// A root has as many copies of records as the vdevs of its txg say, not those that came later.
    CopiesAsOfTheirTxg,
    /// Where there are several data vdevs, what leads to everything lies on two of them.
    RootsOnTwoVdevs,
    /// A vdev that grows keeps the size of its metaslabs.
    MetaslabSizeStays,
    /// A spare that stands for a disk is no spare meanwhile.
    SpareStandsOnce,
    /// A disk that leaves the pool stays named outdated until it is wiped.
    GoneStaysNamed,
    /// Disks that were in use apart from each other are not imported together.
    SplitIsRefused,
    /// Uberblocks that a disk still has, when it is put in as a new one, count for nothing.
    NewLeavesHaveNoPast,
    /// A disk that was being resilvered has no past of its own.
    BroughtIsNoPast,
    /// Labels are scrubbed while no act on disks is under way.
    LabelsAreScrubbedInTurn,
    /// A disk keeps the newest config that it was given.
    NewerConfigStays,
    /// An import refuses a config older than the one that the uberblock names.
    ConfigAsOfItsUberblock,
    /// A disk that lacks an uberblock that counted is outdated, also where nobody names it.
    BehindIsOutdated,
    /// An import writes a second uberblock before anything is acknowledged: a copy from before it
    /// is behind.
    ImportIsOnDiskTwice,
    /// All of the log is levelled on a side that has no uberblock of the newest session.
    OldSessionIsLevelled,
    /// Of two disks of one identity the newer one is the leaf.
    NewestTwin,
    /// A disk with a past of its own is not resilvered unless somebody gave that past up.
    OwnPastIsKept,
    /// An uberblock that names a leaf passes over the number that this leaf, alone, would take for
    /// one that never counted.
    NamingPassesOver,
    /// Imports of sides that are in use apart from each other have different sessions.
    SessionOfItsOwn,
    /// Nothing is written to a leaf that has left the pool while its resilver began.
    LeftLeavesAreLeft,
    /// A piece of a resilver that ends early goes on where it ended.
    PieceGoesOnByPlace,
    /// A resilver writes over sectors between two blocks only if they are free.
    BridgesOnlyWhatIsFree,
    /// A write to sectors that a resilver writes over waits until that has ended.
    WritesWaitForHolds,
    /// Freed space is discarded only when it may be reused.
    DiscardAfterRelease,
    /// Space that is being discarded is not given to a change.
    LentIsNotAllocated,
    /// A block that a snapshot still shows is filed, not freed.
    ShownBlocksAreFiled,
    /// A snapshot is the last of its txg.
    SnapshotsComeLast,
    /// A sweep frees only what was born after the snapshot before.
    SweepsTestTheInterval,
    /// A block that died after the next snapshot was taken is not freed with the one before it.
    SweepsEndAtTheNext,
    /// A block that was born at or below the floor of a line is not freed with that line.
    FloorIsKept,
    /// A block that a rollback brings back leaves the dead tree, and is not freed.
    RollbackRevives,
    /// It does so wherever it stands: also what died after later snapshots.
    RevivesAllLater,
    /// Before any other sweep of the dataset.
    RevivesFirst,
    /// A block that dies meanwhile does not stand among those that come back.
    DeathsPass,
    /// No change is under way while a dataset is rolled back.
    RollbackShutsTheDoor,
    /// The list of objects without a name is rolled back too.
    OrphansAreReadAgain,
    /// A snapshot that has clones is not destroyed.
    PinsAreKept,
    /// A dataset that was woken for a later txg does not go to rest with an earlier one.
    WokenStayAwake,
    /// A dataset is awake as long as syncs free something of it.
    WorkKeepsAwake,
    /// A dataset that an item of a sync names is awake.
    ItemsWake,
    /// The record of a dataset is written after the acts of its txg.
    RecordsFollowActs,
    /// A held snapshot is not destroyed.
    HeldIsKept,
    /// A hold with an end also lasts its time in service, whatever the wall clock says.
    HoldsLastInService,
    /// The mark of a schedule, and the hold that `retain` places, are on disk with the snapshot.
    MarksAreOnDisk,
    /// A promotion is on disk: who lists each snapshot.
    ListersAreOnDisk,
    /// A line of which a snapshot stays outlives its dataset.
    LinesOutliveDatasets,
    /// A destroyed snapshot with which a line begins is hidden, and stays.
    PinnedStaysHidden,
    /// A clone counts what it gives up of its origin.
    GivenUpIsCounted,
    /// Savings of compression in a block are filed with it.
    SavedIsFiled,
    /// The freed part of a tail takes what compression saved off the file's sum.
    TailsGiveSavedBack,
    /// Blocks that a snapshot of a file shows are filed too.
    FilesAreCovered,
    /// The neighbours of a snapshot of a file are snapshots of both kinds.
    NeighboursOfBothKinds,
    /// A sweep among the blocks of a file frees only what was born after the snapshot before.
    FileSweepsTestTheInterval,
    /// The sweep of a dataset's snapshot looks at what snapshots of files show too.
    SweepsTakeAllGroups,
    /// A rollback brings back what snapshots of files showed too.
    RevivesAllGroups,
    /// A snapshot of a file copies the inode that is on disk, not the one in memory.
    InodeFromTheTable,
    /// A snapshot of a file is the last of its txg.
    FileSnapshotsComeLast,
    /// A tail that is cut off a file dies as that file's.
    TailsAreTheirFiles,
    /// Content that a file was rolled back to lives again.
    FileRollbackRevives,
    /// A block that dies of a file that was rolled back does not stand among those that come back.
    FileDeathsPass,
    /// The state of a file before a rollback does not own what it shares with the snapshot.
    OldFilesHaveAFloor,
    /// Nor do the tails that were cut off since the snapshot.
    TailsTakeTheFloor,
    /// No change of a file begins while it is rolled back.
    FileRollbackShutsTheDoor,
    /// A file is not rolled back past snapshots that stay.
    NoRollbackPastSnapshots,
    /// A destroyed snapshot of a file that was rolled back to it stays while a walk is under way.
    RolledBackToIsWalked,
    /// A head that was rolled back comes once more in a walk that has passed it.
    RolledBackHeadIsWalked,
    /// A file is not rolled back to a snapshot that was taken while tails of it were freed.
    SettledSnapshotsOnly,
    /// Content with which a clone of a file began belongs to the file that it was cloned from.
    FileClonesHaveAFloor,
    /// A record names the snapshot with which a clone of a file began.
    FileClonesPin,
    /// And that with which a line of a file began.
    FileLinesPin,
    /// A snapshot of a file from which one was cloned stays.
    FilePinsAreKept,
    /// It stays as long as a snapshot shows the clone.
    FilePinsOutliveHeads,
    /// A node that dies and no snapshot shows stays if a bookmark needs it.
    BookmarksKeepNodes,
    /// So does one that a destroyed snapshot alone showed.
    BookmarksOutliveSnapshots,
    /// Bookmarks of later snapshots go with a rollback.
    RollbackTakesBookmarks,
    /// A bookmark holds the origins of the clones of files that it shows.
    BookmarksPinClones,
    /// And as long as what was cut off the clone is being freed.
    FilePinsOutliveTails,
    /// A snapshot stays as long as a file of another dataset began as it.
    FileClonesPinAcross,
    /// No dataset ends, or goes back, with what files of another one began as.
    NeedsBlockEnds,
    /// A hidden snapshot that no file of another dataset needs any more goes.
    NeedsEnd,
    /// A dataset that goes back has the clones of files that it had, and no others.
    FilePinsGoBack,
    /// A file is rolled back in line on the line that it is on, and not to before that began.
    InLineOnItsLine,
    /// A head that was rolled back past later snapshots owns nothing of what it began again with.
    HeadLinesHaveAFloor,
    /// And that stays.
    HeadLinesPin,
    /// Content of the old head is filed, not freed.
    LeftHeadsAreFiled,
    /// And as what died when the head was left: bookmarks from before need it, and no later ones.
    LeftHeadsDieWhenLeft,
    /// And it counts, until it is filed or free.
    LeftHeadsCount,
    /// A dataset that stands by keeps the snapshots that increments need.
    CopiesKeepTheirSnapshots,
    /// A name in the top directory of a dataset is a dataset's or an entry's.
    NamesMeanOneThing,
    /// An act that waits for what a rollback left gives the turn back.
    WaitersGiveTheTurnBack,
    /// Lists show acts when they are on disk.
    SeenWhenOnDisk,
    /// A dataset is rolled back in line on the line that its head is on.
    InLineOnItsHeadLine,
    /// A file in a clone of a dataset is not rolled back in line.
    FilesOfClonesBeginLines,
    /// A file that is rolled back past later snapshots owns nothing of what it began again with.
    FileLinesHaveAFloor,
    /// A dead block of what was cut off a file is known as that file's.
    TailsAreFiledByFile,
    /// A file's version in a snapshot of the dataset is gathered, if a file began as that.
    DerivedGather,
    /// Before any sweep of the dataset.
    GatheredFirst,
    /// A received dataset gets its name in its last txg.
    ReceivedIsNamedLast,
    /// A received dataset gets its name and its snapshot in one txg.
    ReceivedIsOneTxg,
    /// A record says that a head is half of something, before it is.
    IncrementIsMarked,
    /// An increment that was left half is rolled back.
    IncrementIsRolledBack,
    /// An increment is there with its snapshot, in one txg.
    IncrementIsOneTxg,
    /// The place at which a stream goes on has nothing before it that was not made.
    PlaceFollowsChanges,
    /// The record of that place goes in the txg that ends the receive.
    ResumeEndsWithItsTxg,
    /// An id that comes back waits until what it meant is free.
    IdsAreFreeFirst,
    /// Changes between snapshots are found by pointers, not by births.
    IncrementsComparePointers,
    /// Content from a cache disk counts only if it verifies.
    CachesAreVerified,
    /// The call that asks for an act is in the reply table in the txg of the act.
    ActsKnowTheirCall,
    /// An act does not begin for a caller that gave up.
    NoActForNobody,
    /// A call whose act the sync could not carry out is not in the reply table.
    UndoneActsAreNotKnown,
}

/// The number of rules that there may be.
const RULES_MAX: usize = 256;

static LEFT_OUT: [AtomicBool; RULES_MAX] = [const { AtomicBool::new(false) }; RULES_MAX];

/// Leaves out these rules from now on, and no others.
///
/// # Panics
/// This build keeps all of them.
pub fn leave_out(rules: &[Rule]) {
    let is_able = cfg!(debug_assertions);
    assert!(is_able, "only a build with debug assertions can leave out a rule");
    for (at, left_out) in LEFT_OUT.iter().enumerate() {
        left_out.store(rules.iter().any(|rule| *rule as usize == at), Ordering::SeqCst);
    }
}

/// Whether a rule is left out.
#[inline(always)]
pub fn left_out(rule: Rule) -> bool {
    let left_out = || LEFT_OUT.get(rule as usize).is_some_and(|one| one.load(Ordering::Relaxed));
    cfg!(debug_assertions) && left_out()
}
