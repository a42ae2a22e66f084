"""palaver inside other frameworks: each adapter is a module of its own, and imports its framework.

Nothing is imported from here, so `import palaver.adapters` costs nothing and needs no framework.
What a framework writes through its adapter is an ordinary conversation in a store: to be queried,
searched, edited and rolled back; what was edited is what the framework reads next.
"""

__all__: tuple[str, ...] = ()
