"""Search finds what was said, where it was said, and nothing that is gone; `verify` proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import ValidationError
from palaver.messages import parse_message
from palaver.messages.ids import new_id
from palaver.stores.words import LONGEST, MOST_WORDS, PARTIAL, SEARCHED
from palaver.testing.stores.expecting import expect, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from palaver.stores import Store
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()


def _word() -> str:
    """A word that nobody has said before."""
    return "w" + new_id().replace("-", "")


def _found(store: Store, words: str, conversation: str | None = None) -> set[str]:
    return {hit.message.id for hit in store.search(words, conversation=conversation)}


@CHECKS
def words_are_found_wherever_they_are(trial: Trial) -> None:
    """All words, in any order and any case, over the whole store and within a conversation."""
    word = _word()
    one_talk = trial.store.create([one("u1", f"Green tea, {word}!"), one("a2", f"{word} coffee")])
    other = trial.store.create([one("u3", f"black TEA? ({word})")])
    one_talk.append(one("u4", f"tea again: {word.upper()}"))
    for store in trial.now_and_later():
        expect({"u1", "a2", "u3", "u4"}, _found(store, word), "one word")
        expect({"u1", "u3", "u4"}, _found(store, f"{word} Tea"), "two words")
        expect({"u1", "u4"}, _found(store, f"tea {word}", one_talk.id), "within a conversation")
        expect({"u3"}, _found(store, word, other.id), "within the other")
        expect(set(), _found(store, f"{word} cocoa"), "a word that is not there")
        expect(set(), _found(store, ""), "no word")
        expect(set(), _found(store, ' "" ?! * '), "no word but signs")
    (hit,) = trial.store.search(f"{word} black")
    expect((other.id, 0, "u3"), (hit.conversation, hit.position, hit.message.id), "a hit")
    expect(True, "black TEA" in hit.snippet, "its snippet")  # noqa: FBT003 - the value
    expect(2, len(trial.store.search(word, limit=2)), "no more than asked for")


@CHECKS
def a_phrase_is_found_in_its_order(trial: Trial) -> None:
    """Words in quotes stand one after the other."""
    word = _word()
    trial.store.create(
        [one("u1", f"{word} hot water"), one("u2", f"{word} water, hot"), one("u3", f"hot {word}")]
    )
    expect({"u1"}, _found(trial.store, f'{word} "hot water"'), "a phrase")
    expect({"u1", "u2"}, _found(trial.store, f"{word} hot water"), "without quotes")
    expect({"u2"}, _found(trial.store, f'"water hot" {word}'), "across a comma")
    expect(set(), _found(trial.store, f'"hot {word} water"'), "a phrase that nobody said")


@CHECKS
def a_long_word_is_found_by_its_beginning(trial: Trial) -> None:
    """However long it is, it is one word, and nothing else is lost for its sake."""
    word = _word()
    long = word + "x" * SEARCHED
    trial.store.create(
        [
            one("u1", f"before {long} after"),
            one("u2", f"{word} 茶{'茶' * LONGEST}杯 {word}"),
            one("u3", f"{word} " + "e\u0301" * LONGEST + "e\u0300f"),
        ]
    )
    for store in trial.now_and_later():
        expect({"u1"}, _found(store, f"before {long[: LONGEST + 1]}"), "its beginning and more")
        expect(set(), _found(store, long[: LONGEST - 1]), "less of it")
        expect({"u2"}, _found(store, f"{word} 茶杯"), "the end of a text without spaces")
        expect({"u3"}, _found(store, f"{word} {'é' * LONGEST}"), "a word with accents")
        expect([], list(store.verify()), "problems")


@CHECKS
def the_beginning_of_a_long_message_is_searched(trial: Trial) -> None:
    """Up to a number of characters; `notes` names the messages with more, until they are erased."""
    word, late = _word(), _word()
    filler = "tea " * (SEARCHED // 4)
    history = trial.store.create(
        [one("u1", f"{word} short"), one("u2", f"{word} {filler} {late}"), one("u3", word)]
    )
    note = f"{history.id}: message 1: {PARTIAL}"
    for store in trial.now_and_later():
        expect({"u1", "u2", "u3"}, _found(store, word), "the beginnings")
        expect({"u2"}, _found(store, f"tea {word}", history.id), "the filler")
        expect(set(), _found(store, late), "the end")
        expect([note], list(store.notes(history.id)), "the notes")
        expect(True, note in list(store.notes()), "the notes of all")  # noqa: FBT003 - the value
        expect([], list(store.verify()), "problems")
        (hit,) = store.search(f"{word} tea")
        expect(True, len(hit.snippet) < LONGEST, "a snippet is short")  # noqa: FBT003 - the value
    trial.store.get(history.id).erase("u2")
    expect({"u1", "u3"}, _found(trial.store, word), "after erasing")
    expect([], list(trial.store.notes(history.id)), "the notes after erasing")
    expect([], list(trial.store.verify()), "problems after erasing")


@CHECKS
def a_query_is_as_long_as_its_different_words(trial: Trial) -> None:
    """Repeated words count once; too many are refused, and said to be."""
    word = _word()
    words = [f"{word}{number}" for number in range(MOST_WORDS + 1)]
    trial.store.create([one("u1", " ".join(words)), one("u2", f"{word} {'喝茶' * 100}")])
    store = trial.store
    expect({"u2"}, _found(store, f"{word} " * 10_000), "one word, many times")
    expect({"u1"}, _found(store, " ".join(words[:-1])), "many words")
    expect({"u1"}, _found(store, '"' + " ".join(words[:-1]) + '"'), "a long phrase")
    expect({"u2"}, _found(store, f"{word} {'喝茶' * 100}"), "a phrase without spaces")
    for name in (None, "nowhere"):
        for query in (" ".join(words), '"' + "tea " * (MOST_WORDS + 1) + '"', "x" * 2_000_000):
            with raises(ValidationError, "too much"):
                store.search(query, conversation=name)


@CHECKS
def what_looks_like_a_query_language_is_text(trial: Trial) -> None:
    """Operators, quotes and signs are words or nothing, and never an error."""
    word = _word()
    trial.store.create(
        [one("u1", f"{word} NEAR the OR and NOT"), one("u2", f"{word} foo_bar it's")]
    )
    expect({"u1"}, _found(trial.store, f"{word} NOT"), "NOT")
    expect({"u1"}, _found(trial.store, f"{word} or NEAR"), "OR and NEAR")
    expect({"u2"}, _found(trial.store, f"{word} foo_bar"), "an underscore")
    expect({"u2"}, _found(trial.store, f"{word} it's"), "an apostrophe")
    for odd in ('"', "'", "*", "(", "a*", "text:x", "{a b}", "^a", "-a", "a AND", "\\", "%", ";"):
        trial.store.search(f"{word} {odd}")


@CHECKS
def languages_without_spaces_are_searched(trial: Trial) -> None:
    """Chinese, Japanese and Korean by any stretch of characters."""
    word = _word()
    trial.store.create(
        [
            one("u1", f"{word} 我们喝绿茶吧"),
            one("u2", f"{word} 茶和绿豆"),
            one("u3", f"{word}お茶をください"),
            one("u4", f"{word} 안녕하세요"),
        ]
    )
    expect({"u1"}, _found(trial.store, f"{word} 绿茶"), "绿茶")
    expect({"u1", "u2", "u3"}, _found(trial.store, f"{word} 茶"), "茶")
    expect({"u1", "u2"}, _found(trial.store, f"{word} 茶 绿"), "茶 and 绿")
    expect({"u3"}, _found(trial.store, f"{word} ください"), "ください")
    expect({"u4"}, _found(trial.store, f"{word} 안녕"), "안녕")


@CHECKS
def accents_case_and_width_make_no_other_word(trial: Trial) -> None:
    """However it is written, in the text or in the query: composed, apart, or without."""
    word = _word()
    trial.store.create(
        [
            one("u1", f"{word} Café, Straße"),
            one("u2", f"{word} CAFE\u0301 strasse"),
            one("u3", f"{word} cafes"),
            one("u4", f"{word} ΛΌΓΟΣ ЁЛКА שָׁלוֹם"),
            one("u5", f"{word} हिन्दी ภาษาไทย Tiếng_Việt"),
            one("u6", f"{word} か が \uff76\uff9e \uff34\uff25\uff21"),
        ]
    )
    for written in ("café", "cafe", "CAFÉ", "cafe\u0301", "\uff43\uff41\uff46\uff45"):
        expect({"u1", "u2"}, _found(trial.store, f"{word} {written}"), written)
    expect({"u1", "u2"}, _found(trial.store, f'{word} "CAFE STRASSE"'), "a phrase")
    for written in ("λόγος", "λογοσ", "елка", "שלום"):
        expect({"u4"}, _found(trial.store, f"{word} {written}"), written)
    for written in ("हिन्दी", "ภาษาไทย", "tieng_viet", "Tiê\u0301ng_Viê\u0323t"):
        expect({"u5"}, _found(trial.store, f"{word} {written}"), written)
    for written in ("हिन्द", "हन्दी", "tieng"):
        expect(set(), _found(trial.store, f"{word} {written}"), written)
    for written in ("か", "が", "カ\u3099", "tea"):
        expect({"u6"}, _found(trial.store, f"{word} {written}"), written)
    expect(set(), _found(trial.store, f"{word} き"), "another syllable")
    (hit,) = trial.store.search(f"cafes {word}")
    expect(True, "cafes" in hit.snippet, "a snippet")  # noqa: FBT003 - the value


@CHECKS
def tools_are_searched_too(trial: Trial) -> None:
    """What a tool was asked and what it answered."""
    word = _word()
    call = {"type": "tool_use", "tool_use": {"id": "c", "name": "brew", "input": {"leaf": word}}}
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c", "content": f"{word} done"}}
    messages = [
        {"role": "assistant", "content": [call], "id": "a1"},
        {"role": "tool", "content": [result], "id": "t2"},
    ]
    trial.store.create([parse_message(message) for message in messages])
    expect({"a1", "t2"}, _found(trial.reopen(), word), "both")
    expect({"a1"}, _found(trial.store, f"{word} brew leaf"), "the call")
    expect({"t2"}, _found(trial.store, f"{word} done"), "the result")


@CHECKS
def a_fork_is_searched_with_what_it_inherited(trial: Trial) -> None:
    """Up to where it began, and no further; the whole store names each message once."""
    word = _word()
    parent = trial.store.create([one("u1", f"{word} one")])
    fork = parent.fork()
    deeper = fork.fork()
    parent.append(one("u2", f"{word} two"))
    fork.append(one("u3", f"{word} three"))
    deeper.append(one("u4", f"{word} four"))
    store = trial.reopen()
    expect({"u1", "u2"}, _found(store, word, parent.id), "the parent")
    expect({"u1", "u3"}, _found(store, word, fork.id), "the fork")
    expect({"u1", "u4"}, _found(store, word, deeper.id), "the fork's fork")
    expect(4, len(store.search(word)), "hits in the whole store")
    hits = store.search(word, conversation=fork.id)
    expect({(fork.id, 0), (fork.id, 1)}, {(h.conversation, h.position) for h in hits}, "places")


@CHECKS
def ids_are_found_by_their_beginning(trial: Trial) -> None:
    """In order, and no more than asked for."""
    word = _word()
    for rest in ("", "-b", "-a", "-é", "-\U0001f375x", "x"):
        trial.store.create(id=f"{word}{rest}")
    store = trial.reopen()
    everyone = [word, f"{word}-a", f"{word}-b", f"{word}-é", f"{word}-\U0001f375x", f"{word}x"]
    expect(everyone, store.named(word), "all")
    expect(everyone[1:5], store.named(f"{word}-"), "some")
    expect(everyone[1:3], store.named(f"{word}-", limit=2), "two")
    expect([f"{word}x"], store.named(f"{word}x"), "one")
    expect([], store.named(f"{word}%"), "none")


@CHECKS
def what_is_erased_is_not_found(trial: Trial) -> None:
    """Neither before nor after the index has seen it."""
    word = _word()
    history = trial.store.create([one("u1", f"{word} early"), one("u2", f"{word} stays")])
    expect({"u1", "u2"}, _found(trial.store, word), "before")
    history.append(one("u3", f"{word} late"))
    history.erase("u1")
    history.erase("u3")
    expect({"u2"}, _found(trial.store, word), "after")
    history.append(one("u4", f"{word} more"))
    expect({"u2", "u4"}, _found(trial.reopen(), word), "after reopening")


@CHECKS
def what_left_the_view_is_still_found(trial: Trial) -> None:
    """A search goes over the log: nothing in it is lost."""
    word = _word()
    history = trial.store.create([one("u1", f"{word} one")])
    history.clear(keep_system_message=False)
    history.replace(
        history.insert(0, said("u2")).affected_batch_index - 2, one("u3", f"{word} two")
    )
    expect({"u1", "u3"}, _found(trial.store, word), "hits")


@CHECKS
def a_store_that_is_whole_has_no_problems(trial: Trial) -> None:
    """`verify` finds nothing wrong after everything that can be done."""
    store = trial.store
    history = store.create(said("s1 u2 a3"))
    history.insert(1, said("u4 a5"))
    history.mark(0, "pin")
    fork = history.fork(at=0)
    fork.extend(said("u6 a7"))
    history.merge(fork)
    history.undo()
    history.erase("u2")
    history.truncate(keep_last=1)
    history.rollback(0)
    store.keeper.put(history.id, "draft", "d", b"x")
    store.lease(history.id, "me")
    for now in trial.now_and_later():
        expect([], list(now.verify()), "problems of the store")
        expect([], list(now.verify(fork.id)), "problems of the fork")
        head = now.keeper.head(history.id)
        expect([], list(now.keeper.damaged(history.id, head.base, head.length)), "damaged rows")
        expect([], list(now.keeper.check()), "what the store itself finds")
