"""Types are read for the first time by one thread alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

RACE = """
import sys, threading
from palaver.messages import parse_message, parse_messages

sys.setswitchinterval(1e-6)
ID = "00000000-0000-7000-8000-000000000001"
part = {"type": "text", "id": ID, "sessionID": ID, "messageID": ID, "text": "hi"}
message = {"role": "assistant", "content": [part], "id": "m1", "timestamp": 5}
together = threading.Barrier(8)

def read(reader, value):
    together.wait()
    reader(value)

import json
ways = [(parse_message, json.dumps(message)), (parse_message, message),
        (parse_messages, json.dumps([message])), (parse_messages, [message])] * 2
threads = [threading.Thread(target=read, args=way) for way in ways]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("attempt", range(6))
def test_threads_may_all_read_their_first_message_at_once(attempt: int) -> None:
    """PT-06: in a fresh process; where types are not had alone, two of three of these crash."""
    del attempt
    done = subprocess.run([sys.executable, "-c", RACE], check=False, capture_output=True)
    assert (0, b"") == (done.returncode, done.stderr)
