"""`python -m palaver`: the command, also where no script of that name is on the path."""

from __future__ import annotations

from palaver.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
