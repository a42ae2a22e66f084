"""The standard door: OpenAI's Responses, Conversations and Chat Completions over a palaver store.

A response is a change of an ordinary conversation: its input is appended, a model answers, and the
record of the response stands beside the log. `ids` says how clients name things, `shapes` what they
may send and what they get, `items` how messages become items and back, `events` what a stream says,
`responses` runs them, `routes` are the paths under `/v1`.
"""
