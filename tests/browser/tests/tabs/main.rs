//! leasehold in real tabs, by the built npm package. Each scenario runs in each browser, one at a time: they are timed.

mod bad_input;
mod contexts;
mod counting;
mod crowd;
mod fence;
mod insecure;
mod life;
mod page;
mod readme;
mod take_over;
mod versions;
mod world;

macro_rules! tests {
    ($engine:ident: $($part:ident::$scenario:ident,)*) => {$(
        #[test]
        fn $scenario() {
            crate::world::run(leasehold_browser_tests::Engine::$engine, crate::$part::$scenario);
        }
    )*};
}

macro_rules! in_each_browser {
    ($($part:ident::$scenario:ident,)*) => {
        mod chromium {
            // The others have no way to do these over WebDriver, or end as a whole when one process does.
            tests! { Chromium:
                $($part::$scenario,)*
                take_over::a_crashed_holder_is_replaced,
                life::a_frozen_page_gives_its_lease_up,
                take_over::a_holder_whose_process_is_killed_is_replaced,
                contexts::a_stopped_service_worker_is_replaced,
            }
        }
        mod firefox {
            tests! { Firefox: $($part::$scenario,)* }
        }
        mod webkit {
            tests! { WebKit: $($part::$scenario,)* }
        }
    };
}

in_each_browser! {
    counting::two_tabs_lose_no_increment,
    counting::without_the_lease_increments_are_lost,
    crowd::tabs_that_come_and_go_lose_no_increment,
    crowd::given_up_waits_leave_nothing_behind,
    take_over::a_closed_holder_is_replaced,
    take_over::a_reloaded_holder_is_replaced,
    take_over::a_frozen_holder_is_replaced_and_told,
    take_over::a_closed_waiter_does_not_block_the_queue,
    take_over::released_while_others_wait_in_order,
    life::a_page_that_is_left_gives_its_lease_up,
    life::a_page_that_is_left_without_beacon_gives_its_lease_up,
    contexts::a_dedicated_worker_takes_turns_and_is_terminated,
    contexts::an_isolated_worker_takes_turns,
    contexts::a_shared_worker_takes_turns_and_goes_with_its_page,
    contexts::a_shared_worker_whose_maker_goes_keeps_its_lease,
    contexts::a_service_worker_takes_turns,
    contexts::a_frame_takes_turns_and_is_removed,
    contexts::several_managers_of_one_page_take_turns,
    contexts::in_a_sandboxed_frame_open_is_refused,
    fence::each_library_writes_under_a_current_lease,
    fence::after_a_pause_nothing_is_written_under_the_lease_that_another_tab_took,
    fence::a_dexie_upgrade_keeps_the_records,
    fence::without_the_object_store_attach_is_refused,
    fence::what_cannot_be_fenced_is_refused_and_not_written,
    fence::a_busy_writer_needs_no_heartbeat,
    versions::two_builds_lose_no_increment,
    versions::two_builds_hand_over,
    versions::two_builds_fence_each_other,
    insecure::two_tabs_without_web_locks_lose_no_increment,
    insecure::a_silent_holder_without_web_locks_is_replaced,
    page::the_demo_page_works_in_an_insecure_context,
    readme::the_readme_example_runs,
    bad_input::bad_keys_are_refused,
    bad_input::bad_times_are_refused,
    bad_input::a_second_init_with_other_bytes_is_refused,
    bad_input::a_closed_manager_refuses,
    bad_input::without_indexed_db_open_is_refused,
}
