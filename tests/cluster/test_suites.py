"""What every store promises, on a cluster: the conformance suite, changes, programs, writers."""

from __future__ import annotations

from tests.stores.postgres.test_changes import (
    test_a_fork_is_found_by_a_process_that_has_never_seen_it,
    test_a_fork_made_by_the_same_attempt_is_not_refused,
    test_a_listener_is_told_where_the_messages_stand,
    test_a_refusal_says_why,
    test_an_append_follows_an_edit_that_ends_with_the_log,
    test_an_append_is_not_refused_because_others_appended,
    test_an_append_sent_again_is_found_behind_the_changes_of_others,
    test_ids_are_unique_whatever_the_family,
    test_what_must_follow_a_version_is_refused,
    test_writers_of_one_conversation_are_not_refused,
)
from tests.stores.postgres.test_search import (
    test_hits_that_are_none_do_not_hide_those_that_are,
    test_two_feed_the_index_at_once,
)
from tests.stores.test_conformance import test_a_store_keeps_every_promise
from tests.stores.test_encryption import (
    test_a_database_is_encrypted_its_key_changed_and_made_plain_again,
    test_an_encrypted_store_on_a_server_keeps_every_promise_but_search,
    test_others_read_and_write_while_the_key_of_a_database_is_changed,
    word,
)
from tests.stores.test_erase import test_another_message_with_the_same_id_stays
from tests.stores.test_programs import (
    test_every_store_does_what_a_history_in_memory_does,
    test_writers_that_are_behind_fare_alike_in_every_store,
)
from tests.stores.test_prune import test_pruning_changes_nothing_that_can_be_seen
from tests.stores.test_writers import (
    test_eight_threads_lose_nothing,
    test_one_handle_serves_many_threads,
)

# collected here, with the fixtures of this folder
__all__ = [
    "test_a_database_is_encrypted_its_key_changed_and_made_plain_again",
    "test_a_fork_is_found_by_a_process_that_has_never_seen_it",
    "test_a_fork_made_by_the_same_attempt_is_not_refused",
    "test_a_listener_is_told_where_the_messages_stand",
    "test_a_refusal_says_why",
    "test_a_store_keeps_every_promise",
    "test_an_append_follows_an_edit_that_ends_with_the_log",
    "test_an_append_is_not_refused_because_others_appended",
    "test_an_append_sent_again_is_found_behind_the_changes_of_others",
    "test_an_encrypted_store_on_a_server_keeps_every_promise_but_search",
    "test_another_message_with_the_same_id_stays",
    "test_eight_threads_lose_nothing",
    "test_every_store_does_what_a_history_in_memory_does",
    "test_hits_that_are_none_do_not_hide_those_that_are",
    "test_ids_are_unique_whatever_the_family",
    "test_one_handle_serves_many_threads",
    "test_others_read_and_write_while_the_key_of_a_database_is_changed",
    "test_pruning_changes_nothing_that_can_be_seen",
    "test_two_feed_the_index_at_once",
    "test_what_must_follow_a_version_is_refused",
    "test_writers_of_one_conversation_are_not_refused",
    "test_writers_that_are_behind_fare_alike_in_every_store",
    "word",
]
