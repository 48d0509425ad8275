//! Runs the models: some thousands of interleavings each, in a few seconds together.

use llgtrt_interleavings::{delivery, places, pool};

#[test]
fn all_output_arrives() {
    delivery::all_output_arrives();
}

#[test]
fn a_connection_gets_whole_chunks_in_order() {
    delivery::a_connection_gets_whole_chunks_in_order();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    delivery::a_signal_that_is_lowered_too_late();
}

#[test]
fn two_threads_announce_two_requests() {
    delivery::two_threads_announce_two_requests();
}

#[test]
fn a_request_ends_once() {
    delivery::a_request_ends_once();
}

#[test]
fn a_reader_may_leave_at_any_time() {
    delivery::a_reader_may_leave_at_any_time();
}

#[test]
fn the_gate_is_never_overbooked() {
    places::the_gate_is_never_overbooked();
}

#[test]
fn lexers_are_counted_truly() {
    pool::lexers_are_counted_truly();
}

#[test]
fn a_tally_is_seen_whole_by_who_comes_after() {
    pool::a_tally_is_seen_whole_by_who_comes_after();
}
