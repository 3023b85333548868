//! leasehold in real tabs, by the built npm package. Each scenario runs in each browser, two at a time.

mod bad_input;
mod browsers;
mod clocks;
mod contexts;
mod counting;
mod crowd;
mod examples;
mod face;
mod fence;
mod files;
mod frames;
mod frozen;
mod guides;
mod hidden;
mod insecure;
mod killed;
mod left;
mod locks;
mod locks_left;
mod manners;
mod many;
mod page;
mod prerendered;
mod room;
#[path = "../../../processes/skipped.rs"]
mod skipped;
mod storage;
mod take_over;
mod versions;
mod world;

use std::process::ExitCode;

use leasehold_browser_tests::Engine;
use libtest_mimic::{Arguments, Trial};

macro_rules! trials {
    ($trials:ident, $engine:ident: $($part:ident::$scenario:ident,)*) => {$(
        let name = format!("{}::{}", Engine::$engine.name(), stringify!($scenario));
        $trials.push(Trial::test(name, || browsers::run(Engine::$engine, $part::$scenario)));
    )*};
}

macro_rules! in_the_browsers {
    (
        everywhere { $($part:ident::$scenario:ident,)* }
        chromium_and_firefox { $($two_part:ident::$two:ident,)* }
        chromium { $($one_part:ident::$one:ident,)* }
        firefox { $($fox_part:ident::$fox:ident,)* }
    ) => {
        fn scenarios() -> Vec<Trial> {
            let mut trials = Vec::from(examples::reading::trials());
            trials!(trials, Chromium: $($part::$scenario,)* $($two_part::$two,)* $($one_part::$one,)*);
            trials!(trials, Firefox: $($part::$scenario,)* $($two_part::$two,)* $($fox_part::$fox,)*);
            trials!(trials, WebKit: $($part::$scenario,)*);
            trials
        }
    };
}

fn main() -> ExitCode {
    let outcome = libtest_mimic::run(&Arguments::from_args(), scenarios());
    browsers::end();
    outcome.exit_code()
}

// Why some run in some browsers only stands in tests/README.md.
in_the_browsers! {
    everywhere {
        counting::two_tabs_lose_no_increment,
        counting::without_the_lease_increments_are_lost,
        crowd::tabs_that_come_and_go_lose_no_increment,
        crowd::given_up_waits_leave_nothing_behind,
        take_over::a_closed_holder_is_replaced,
        take_over::a_closed_holder_is_replaced_when_its_code_has_stopped,
        take_over::a_reloaded_holder_is_replaced,
        take_over::a_frozen_holder_is_replaced_and_told,
        take_over::a_page_that_hangs_inside_a_transaction_is_waited_out,
        take_over::a_closed_waiter_does_not_block_the_queue,
        take_over::released_while_others_wait_in_order,
        left::a_page_that_is_left_gives_its_lease_up,
        left::a_waiter_behind_a_page_without_cure_gets_its_turn,
        left::an_idle_page_is_kept_for_the_way_back,
        left::a_page_that_was_written_anew_gives_its_lease_up,
        left::an_event_of_an_element_does_not_suspend_the_page,
        hidden::alarms_do_not_set_one_another,
        storage::cleared_site_data_is_told_and_tokens_grow,
        storage::old_and_new_pages_take_turns_after_site_data_is_cleared,
        storage::a_deleted_database_is_told_and_tokens_grow,
        storage::who_releases_just_after_the_database_was_deleted_is_told,
        storage::a_closed_connection_is_opened_again_unseen,
        storage::a_newer_database_is_made_way_for,
        storage::a_blocked_database_does_not_open_for_ever,
        storage::a_newer_format_is_told_to_the_holder,
        storage::a_newer_format_is_refused,
        clocks::a_clock_that_is_set_brings_doubt_and_nothing_else,
        clocks::a_waiter_whose_clock_is_set_takes_nothing,
        many::many_tabs_that_come_and_go_count_exactly,
        contexts::a_dedicated_worker_takes_turns_and_is_terminated,
        contexts::an_isolated_worker_takes_turns,
        contexts::a_shared_worker_takes_turns_and_goes_with_its_page,
        contexts::a_shared_worker_whose_maker_goes_keeps_its_lease,
        contexts::a_service_worker_takes_turns,
        contexts::a_frame_takes_turns_and_is_removed,
        contexts::several_managers_of_one_page_take_turns,
        contexts::in_a_sandboxed_frame_open_is_refused,
        frames::thirty_frames_in_a_queue_write_one_small_row_each_heartbeat,
        face::stolen_work_is_told_and_left_behind,
        face::of_two_tabs_that_try_one_runs,
        face::several_keys_are_had_by_one_tab_at_a_time,
        face::a_closed_leader_is_followed,
        face::a_reader_becomes_the_writer_when_the_other_readers_have_gone,
        face::leases_are_deleted_when_nobody_holds_any,
        fence::each_library_writes_under_a_current_lease,
        fence::after_a_pause_nothing_is_written_under_the_lease_that_another_tab_took,
        fence::a_dexie_upgrade_keeps_the_records,
        fence::without_the_object_store_attach_is_refused,
        fence::a_database_goes_from_manager_to_manager_and_still_closes,
        fence::a_refused_fence_leaves_the_transaction_without_an_error,
        fence::when_the_object_store_is_cleared_the_holder_writes_nothing_and_is_told,
        fence::what_cannot_be_fenced_is_refused_and_not_written,
        fence::two_copies_of_the_package_fence_one_transaction,
        fence::a_busy_writer_needs_no_heartbeat,
        locks::the_rules_hold_by_both,
        locks::the_rules_hold_in_frames_and_workers,
        locks::random_programs_run_alike_by_both,
        locks::other_random_programs_do_so_too,
        locks::the_sample_runs_unchanged_on_both,
        locks::installed_where_there_are_none_the_rules_hold,
        locks_left::locks_of_a_page_that_is_left_are_free_and_its_requests_queue_again,
        locks_left::locks_of_a_store_that_was_deleted_are_lost,
        locks_left::installed_in_a_sandboxed_frame_locks_say_that_first,
        versions::two_builds_lose_no_increment,
        versions::two_builds_hand_over,
        insecure::two_tabs_without_web_locks_lose_no_increment,
        insecure::a_silent_holder_without_web_locks_is_replaced,
        insecure::a_manager_that_closes_without_web_locks_tells_the_next_holder,
        manners::everybody_can_read_the_page,
        manners::the_page_is_worked_by_keyboard,
        manners::the_page_works_without_a_network,
        page::the_timeline_shows_a_freeze_and_the_loss,
        page::the_inspector_shows_all_tabs_and_a_take_over,
        page::the_demo_page_works_in_an_insecure_context,
        guides::every_example_prints_what_its_text_says,
        guides::every_example_in_the_types_runs,
        bad_input::bad_keys_are_refused,
        bad_input::bad_times_are_refused,
        bad_input::a_second_init_with_other_bytes_is_refused,
        bad_input::a_closed_manager_refuses,
        bad_input::without_indexed_db_open_is_refused,
    }
    chromium_and_firefox {
        files::a_worker_opens_the_file_that_its_predecessor_had_open,
        versions::two_builds_fence_each_other,
        hidden::a_hidden_page_keeps_nothing_that_it_does_not_use,
        hidden::a_lease_is_in_doubt_when_its_page_is_hidden_or_shown,
        left::a_waiting_page_that_is_left_queues_again,
        left::a_wait_ends_in_time_although_its_page_is_away,
        left::a_page_that_nobody_waits_behind_leaves_its_key_free,
        left::a_page_that_is_left_without_beacon_gives_its_lease_up,
        locks_left::locks_of_a_page_that_is_left_without_beacon_are_free_too,
        killed::a_closed_holder_without_beacon_is_replaced,
        killed::a_killed_holder_is_replaced,
        bad_input::where_the_user_blocks_cookies_open_is_refused,
    }
    chromium {
        killed::a_killed_holder_without_beacon_is_replaced,
        fence::a_page_frozen_in_the_middle_of_its_work_writes_nothing,
        fence::a_page_frozen_inside_a_fenced_write_lets_go_of_it,
        frozen::a_frozen_page_gives_its_lease_up,
        frozen::a_frozen_waiter_is_passed_over_and_queues_again,
        locks_left::locks_of_a_frozen_page_are_free_and_its_requests_queue_again,
        prerendered::a_prerendered_page_is_granted_nothing_before_somebody_goes_to_it,
        storage::a_full_disk_is_told,
        manners::the_page_is_silent_in_the_console,
        take_over::a_crashed_holder_is_replaced,
        contexts::a_stopped_service_worker_is_replaced,
    }
    firefox {
        room::a_full_site_is_told,
        room::a_write_that_finds_no_room_costs_no_lease,
    }
}
