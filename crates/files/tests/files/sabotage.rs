//! Rules left out: the test beside each rule must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use aquifer_blockio::sabotage::{Rule, leave_out};

use crate::{
    across, bookmarks, clones, control_file, damage, destroy, file_clones, file_lines,
    file_returns, file_rollback, file_versions, full, handles, head_lines, increments, l2arc,
    large, places, quota, refreserved, replay, rollback, roots, scrub, seen, turns, version_acts,
    walk,
};

type Scenario = fn();

const FOUND_BY: [(Rule, Scenario); 48] = [
    (
        Rule::ReplayRaisesIds,
        replay::a_tail_cut_off_in_a_replay_takes_no_id_that_the_log_still_names,
    ),
    (
        Rule::ReplayReapsNothing,
        replay::a_commit_overtaken_by_a_removal_leaves_a_log_that_can_be_replayed,
    ),
    (
        Rule::ReplayReapsNothing,
        replay::what_a_replay_still_names_of_a_destroyed_dataset_stays_until_it_is_done,
    ),
    (Rule::FreshGenerations, handles::a_rewind_gives_no_handle_out_again),
    (Rule::FreshGenerations, handles::a_file_seen_before_it_was_durable_leaves_no_handle_behind),
    (Rule::FreshGenerations, handles::a_handle_cannot_be_guessed_from_others),
    (
        Rule::DestroyedIsNotRead,
        destroy::what_waits_while_its_dataset_goes_reads_nothing_of_what_comes_after,
    ),
    (Rule::CutsFitTheRecord, large::truncations_of_many_files_fit_the_records),
    (Rule::ReserveInTurn, full::attributes_are_set),
    (Rule::ReplaysCount, quota::what_a_replay_writes_counts),
    (
        Rule::ReleasedOnDiskFirst,
        quota::others_wait_until_the_disk_knows_that_a_reservation_is_given_up,
    ),
    (Rule::SnapshotsLeaveNoRoom, refreserved::all_is_written_over_after_snapshots),
    (Rule::SnapshotsAskForRoom, refreserved::a_snapshot_without_room_is_refused),
    (Rule::CoveredIsOnDisk, refreserved::two_disks_are_written_over_after_a_restart),
    (Rule::ReservationsAreKept, refreserved::all_is_written_over_after_snapshots),
    (Rule::UnreadableIsNoDamage, damage::a_read_error_that_passes_costs_nothing),
    (Rule::UnreadableIsNoDamage, damage::a_read_error_that_stays_keeps_what_was_acknowledged),
    (Rule::WalkShowsThePath, walk::a_walk_in_pieces_misses_nothing_that_stays),
    (Rule::TailsTakeTheFloor, file_rollback::what_was_cut_off_comes_back),
    (Rule::FileRollbackShutsTheDoor, file_rollback::writes_meanwhile_come_before_or_after),
    (Rule::RollbackShutsTheDoor, file_rollback::writes_beside_a_rollback_of_the_dataset_do_too),
    (Rule::SettledSnapshotsOnly, file_rollback::what_cannot_be_done_is_refused),
    (Rule::RolledBackToIsWalked, walk::what_comes_back_to_a_file_is_met),
    (Rule::RolledBackHeadIsWalked, walk::what_comes_back_to_a_dataset_is_met),
    (
        Rule::RollbackTakesBookmarks,
        bookmarks::a_rollback_takes_later_bookmarks_away_and_leaves_others,
    ),
    (Rule::FileClonesPin, file_clones::what_a_clone_began_with_stays_until_it_is_gone),
    (Rule::FileClonesPinAcross, across::what_a_clone_elsewhere_began_with_stays_until_it_is_gone),
    (Rule::FilePinsOutliveHeads, file_clones::what_a_snapshot_shows_of_a_clone_stays),
    (Rule::FilePinsOutliveTails, file_clones::a_part_of_a_clone_keeps_what_it_began_with),
    (Rule::FilePinsGoBack, file_clones::a_dataset_goes_back),
    (Rule::GatheredFirst, file_versions::one_file_stays_when_the_snapshot_goes),
    (Rule::InLineOnItsLine, file_lines::a_file_that_left_a_line_begins_another),
    (
        Rule::CachesAreVerified,
        l2arc::a_cache_disk_that_rotted_or_is_of_another_time_gives_nobody_a_wrong_byte,
    ),
    (Rule::RootsOnTwoVdevs, roots::a_mirror_that_loses_all_takes_no_names),
    (Rule::ScrubReadsEveryCopy, scrub::a_scrub_goes_on_over_restarts_and_pauses),
    (Rule::MendsFromVerified, scrub::a_scrub_mends_a_side_that_has_rotted),
    (Rule::IdsAreFreeFirst, increments::made::an_id_that_comes_back_waits_until_it_is_free),
    (Rule::IdsAreFreeFirst, file_returns::a_removed_file_has_its_handle_again),
    (Rule::UndoneActsAreNotKnown, version_acts::a_file_that_goes_in_the_same_txg_is_not_taken),
    (Rule::NoActForNobody, control_file::a_line_is_not_carried_out_for_a_caller_that_gave_up),
    (Rule::LeftHeadsDieWhenLeft, head_lines::a_later_bookmark_keeps_nothing_of_an_old_head),
    (Rule::LeftHeadsCount, head_lines::an_old_head_counts_until_it_is_filed),
    (Rule::NamesMeanOneThing, places::no_dataset_is_made_over_an_entry),
    (Rule::NamesMeanOneThing, seen::a_name_is_given_up_on_disk_first),
    (Rule::WaitersGiveTheTurnBack, turns::an_act_that_waits_for_a_rollback_holds_none_up),
    (Rule::SeenWhenOnDisk, seen::what_was_seen_is_there_after_a_power_cut),
    (Rule::CopiesKeepTheirSnapshots, clones::a_clone_of_a_copy_is_not_promoted),
    (Rule::OrphansAreReadAgain, rollback::what_waited_to_be_freed_waits_again),
];

/// `AQUIFER_RULE` names one.
#[test]
#[ignore = "make sabotage"]
fn a_rule_left_out_is_found() {
    let only = std::env::var("AQUIFER_RULE").unwrap_or_default();
    for (rule, scenario) in FOUND_BY {
        if !only.is_empty() && only != format!("{rule:?}") {
            continue;
        }
        leave_out(&[rule]);
        let found = catch_unwind(AssertUnwindSafe(scenario)).is_err();
        leave_out(&[]);
        assert!(found, "{rule:?} left out: nothing fails");
        println!("{rule:?}: found");
    }
}
