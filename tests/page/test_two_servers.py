"""Two servers on one PostgreSQL: what one reader does, the other sees without asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import palaver
from tests.page.server import running_server
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from tests.page.conftest import OpenPage


def test_an_edit_in_one_browser_appears_in_the_other(open_page: OpenPage) -> None:
    """It takes well under a second; the limit is for busy machines."""
    with (
        serving() as server,
        server.database() as address,
        palaver.open(address) as one,
        palaver.open(address) as other,
        running_server(one) as here,
        running_server(other) as there,
    ):
        said = [{"role": "user", "content": f"message {number}"} for number in range(4)]
        name = one.create(said, id="shared", title="Shared").id
        first, second = open_page(f"#/c/{name}", at=here), open_page(f"#/c/{name}", at=there)
        expect(second.locator("pv-message")).to_have_count(4)

        one.get(name).execute({"operation": "TRUNCATE", "keepLast": 2})
        expect(first.locator("pv-message")).to_have_count(2)
        expect(second.locator("pv-message")).to_have_count(2)
        first.keyboard.press("u")
        expect(first.locator("pv-message")).to_have_count(4)
        expect(second.locator("pv-message")).to_have_count(4)
        first.close()
        second.close()
