"""Two servers on one PostgreSQL: what one reader does, the other sees without asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import palaver
from tests.page.stand import standing
from tests.stores.postgres import serving

if TYPE_CHECKING:
    from tests.page.conftest import Look


def test_an_edit_in_one_browser_appears_in_the_other(look: Look) -> None:
    """It takes well under a second; the limit is for busy machines."""
    with (
        serving() as server,
        server.database() as address,
        palaver.open(address) as one,
        palaver.open(address) as other,
        standing(one) as here,
        standing(other) as there,
    ):
        said = [{"role": "user", "content": f"message {number}"} for number in range(4)]
        name = one.create(said, id="shared", title="Shared").id
        first, second = look(f"#/c/{name}", at=here), look(f"#/c/{name}", at=there)
        expect(second.locator("pv-message")).to_have_count(4)

        one.get(name).execute({"operation": "TRUNCATE", "keepLast": 2})
        expect(first.locator("pv-message")).to_have_count(2)
        expect(second.locator("pv-message")).to_have_count(2)
        first.keyboard.press("u")
        expect(first.locator("pv-message")).to_have_count(4)
        expect(second.locator("pv-message")).to_have_count(4)
        first.close()
        second.close()
