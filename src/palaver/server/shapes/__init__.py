"""The bodies of requests and answers, one file a topic: frozen structs, camelCase in JSON."""
