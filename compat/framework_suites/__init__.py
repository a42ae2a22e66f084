"""The frameworks' own tests, with palaver's classes in place of the frameworks' stores.

    python -m compat.framework_suites CHECKOUTS

`CHECKOUTS` is a folder with the frameworks' sources; nothing is fetched, and what is imported is
the installed release. Each suite runs twice: as it is, which shows what passes at all, and with
palaver's class. What can't pass with that stands beside the suite, with the reason; any other
difference is an error. A module for each framework says which tests and which classes.
"""
