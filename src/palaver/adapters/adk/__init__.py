"""The Agent Development Kit (ADK): its session service, over conversations in a store.

    service = PalaverSessionService(palaver.open("chat.db"))
    runner = Runner(app_name="tea", agent=agent, session_service=service)

An event is a message, and what was not edited comes back to ADK exactly as it was written. The
state of a session is what the events in its view say: an event and its state delta are one change,
and an edit, a rollback or a fork takes the state along. The state of an app or a user belongs to
all of their sessions, and stays.

A `Session` object that appends holds the conversation's lease until its task ends or goes on to
another session. Another run waits for that, so that two runs never mix their events. A run that
lost the lease is refused with `StaleSessionError` once another has written. An edit needs no lease:
the run that is under way sees it before its next request.

`session_service` holds the service; `convert` the events as messages, both ways; `event_cache` the
events that were read before.
"""

from palaver.errors import needs_extra

with needs_extra("adk"):
    from palaver.adapters.adk.convert import from_event, repair_request, to_event
    from palaver.adapters.adk.session_service import PalaverSessionService

__all__ = ["PalaverSessionService", "from_event", "repair_request", "to_event"]
