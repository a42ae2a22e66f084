"""`palaver encrypt`: encrypt what a store contains, change its key, or go back to plain text."""

from __future__ import annotations

import click

from palaver.cli.app import Refused, json_option, print_line, styled
from palaver.cli.options import keys_from_environment, store_option, use_store
from palaver.cli.output import print_json, progress_bar
from palaver.stores import Key

__all__ = ["encrypt"]


@click.command(short_help="Encrypt a store, or change its key.")
@click.option("--off", is_flag=True, help="Decrypt it: back to plain text.")
@click.option("--new-key", is_flag=True, help="Print a new random key, and do nothing else.")
@store_option
@json_option
def encrypt(address: str | None, *, off: bool, new_key: bool, as_json: bool) -> None:
    """Encrypt what the conversations of a store say, or change the key that they have.

    The keys are given in PALAVER_KEY, or by lines in the file PALAVER_KEY_FILE: the first encrypts,
    and all of them decrypt. So the new key comes first, and the old one after it. It may be
    interrupted: run it again with the same keys. A search is off afterwards. Title and messages
    are encrypted; ids, roles, times, sizes and tags stay readable.
    """
    if new_key:
        print_line(Key.generate().text)
        return
    keys = keys_from_environment()
    if not keys:
        msg = (
            "give the key in PALAVER_KEY, or a file with it in PALAVER_KEY_FILE; "
            "`palaver encrypt --new-key` makes one"
        )
        raise Refused(msg)
    doing = "decrypting" if off else "encrypting"
    with use_store(address, keys=keys if off else []) as store, progress_bar(doing) as bar:
        count = store.decrypt(progress=bar) if off else store.encrypt(keys, progress=bar)
    if as_json:
        key = None if off else keys[0].id
        print_json({"encrypted": not off, "key": key, "rows": count})
        return
    what = "plain text" if off else f"encrypted with the key {keys[0].id}"
    print_line(f"{styled(what, bold=True)}: {count:,} rows rewritten")
