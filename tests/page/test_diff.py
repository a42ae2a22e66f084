"""The difference between two versions, as a reader goes through it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import pytest
from playwright.sync_api import expect

from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import said, story

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()
_TEXT_DIFF = "/page/scripts/panel/text-diff.js"


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with a past, which no other test knows."""
    conversation = f"diff-{next(_numbers)}"
    story(server.store, conversation)
    return conversation


def test_a_replaced_message_is_compared_word_by_word(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/8..9")
    step = page.locator(".d-step.replaced")
    expect(step).to_contain_text("message 3")
    assert [" and wind", "heavy "] == sorted(step.locator("ins").all_inner_texts())
    expect(step.locator("del")).to_have_count(0)


def test_what_came_and_went_is_counted_and_shown(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/11..12")
    expect(page.locator(".d-sum")).to_contain_text("8 removed")
    expect(page.locator(".d-step.removed")).to_have_count(8)
    expect(page.locator(".d-kept")).to_contain_text("2 messages unchanged")


def test_what_stayed_is_folded_until_it_is_opened(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/8..9")
    folded = page.locator(".d-kept").first
    expect(folded.locator("li")).to_have_count(0)
    folded.get_by_text("3 messages unchanged").click()
    expect(folded.locator("li")).to_have_count(3)
    expect(folded).to_contain_text("You pour tea, and you are brief.")


def test_other_versions_are_chosen_by_number_and_one_by_one(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/8..9")
    page.get_by_label("The change after").click()
    page.wait_for_url(f"**/#/c/{name}/diff/9..10**")
    expect(page.locator(".d-step.added")).to_contain_text("Never say coffee.")
    page.get_by_label("The change before").click()
    expect(page.locator(".d-step.replaced")).to_have_count(1)
    page.get_by_label("From").fill("0")
    page.get_by_label("From").press("Tab")
    page.wait_for_url(f"**/#/c/{name}/diff/0..9**")
    expect(page.locator(".d-step.added")).to_have_count(8)


def test_versions_that_are_alike_say_so(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/9..15")
    expect(page.get_by_text("Both versions have the same messages.")).to_be_visible()


def test_a_large_difference_comes_in_portions(open_page: OpenPage, server: PageServer) -> None:
    history = server.store.create(id="large-diff", title="Large")
    history.extend(said("user", f"line {number}") for number in range(450))
    page = open_page("#/c/large-diff/diff/0..1")
    expect(page.locator(".d-step")).to_have_count(200)
    page.get_by_role("button", name="Show 250 more steps").click()
    expect(page.locator(".d-step")).to_have_count(400)


def test_a_difference_beyond_what_is_listed_is_told_by_its_size(
    open_page: OpenPage, server: PageServer
) -> None:
    history = server.store.create(id="huge-diff", title="Huge")
    history.extend(said("user", f"line {number}") for number in range(300))
    page = open_page("#/c/huge-diff/history")
    page.route("**/diff?*", lambda route: route.continue_(url=f"{route.request.url}&limit=40"))
    page.goto(page.url.replace("/history", "/diff/0..1"))
    expect(page.locator(".d-sum")).to_contain_text("+300 added")
    expect(page.locator(".d-step")).to_have_count(40)
    expect(page.locator(".d-kept")).to_have_count(0)
    expect(page.get_by_text("and 260 more differences")).to_be_visible()


def test_the_way_back_to_the_history(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/diff/8..9")
    page.get_by_label("Back to the history").click()
    expect(page.locator("pv-history")).to_be_visible()


PAIRS: list[tuple[str, str, list[list[str]]]] = [
    ("", "", []),
    ("tea", "tea", [["same", "tea"]]),
    ("tea", "", [["gone", "tea"]]),
    ("", "tea", [["new", "tea"]]),
    ("hot tea now", "cold tea now", [["gone", "hot"], ["new", "cold"], ["same", " tea now"]]),
    ("a b c", "a c", [["same", "a "], ["gone", "b "], ["same", "c"]]),
    ("我喜欢红茶", "我喜欢绿茶", [["same", "我喜欢"], ["gone", "红茶"], ["new", "绿茶"]]),
]


def test_the_difference_of_two_texts(page: Page) -> None:
    texts = [[before, after] for before, after, _ in PAIRS]
    assert [expected for _, _, expected in PAIRS] == _between(page, texts)


def test_the_difference_of_any_two_texts_spells_both(page: Page) -> None:
    words, numbers = ["tea ", "rain ", "snow ", "and ", "茶"], range(0, 3_000, 97)
    texts = ["".join(words[number // 5**place % 5] for place in range(5)) for number in numbers]
    pairs = list(itertools.pairwise(texts))
    for (before, after), spans in zip(pairs, _between(page, pairs), strict=True):
        assert before == "".join(text for kind, text in spans if kind != "new")
        assert after == "".join(text for kind, text in spans if kind != "gone")


def test_texts_that_share_nothing_are_replaced_as_a_whole_in_good_time(page: Page) -> None:
    before = " ".join(f"a{number}" for number in range(6_000))
    after = " ".join(f"b{number}" for number in range(6_000))
    found = _between(page, [[before, after]])[0]
    assert [before, after] == [text for _, text in found]


def _between(page: Page, pairs: list[Any]) -> Any:  # noqa: ANN401 - JSON
    return page.evaluate(
        """async ([module, pairs]) => {
            const { diffText } = await import(module);
            return pairs.map(([before, after]) =>
                diffText(before, after).map(({ kind, text }) => [kind, text]));
        }""",
        [_TEXT_DIFF, pairs],
    )


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page = open_page(f"#/c/{name}/diff/8..16", size=size, scheme=scheme)
    expect(page.locator("pv-head")).to_contain_text("version")  # what is drawn now stays
    page.locator(".d-kept summary").first.click()
    expect(page.locator(".d-kept li").first).to_be_visible()
    assert violations(page, "pv-diff") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
