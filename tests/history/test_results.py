"""What operations answer, lazily and as the documents' JSON."""

from __future__ import annotations

from palaver.messages import to_dict
from tests.history.samples import begin, line, one, talk


def test_a_result_is_spelled_as_in_the_documents() -> None:
    history = begin("u1 a2")
    result = history.insert(1, [one("u9")])
    spelled = {message.id: to_dict(message) for message in history}
    assert {
        "state": {
            "messages": [spelled["u1"], spelled["u9"], spelled["a2"]],
            "batchSnapshots": [
                {
                    "batchIndex": 0,
                    "timestamp": 1_000,
                    "messages": [spelled["u1"], spelled["a2"]],
                    "messageCount": 2,
                    "description": "Before INSERT at position 1",
                }
            ],
            "currentBatchIndex": 1,
            "totalMessageCount": 3,
        },
        "stats": {
            "totalMessages": 3,
            "currentBatchMessages": 3,
            "totalBatches": 2,
            "currentBatchIndex": 1,
        },
        "affectedBatchIndex": 1,
    } == result.to_dict()


def test_snapshots_can_come_without_their_messages() -> None:
    history = begin("u1")
    spelled = history.clear().to_dict(snapshots=False)
    assert [
        {"batchIndex": 0, "timestamp": 1_000, "messageCount": 1, "description": "Before CLEAR"}
    ] == spelled["state"]["batchSnapshots"]


def test_a_result_stays_as_it_was() -> None:
    history = begin("u1")
    result = history.extend(talk("a2"))
    history.clear()
    history.append(one("u3"))
    assert "u1 a2" == line(result.state.messages)
    assert 0 == result.state.current_batch_index
    assert 2 == result.state.total_message_count == result.stats.total_messages
    assert [] == result.state.batch_snapshots
    assert "<Result: 2 messages, batch 0>" == repr(result)


def test_the_mark_map_is_spelled_as_in_the_documents() -> None:
    history = begin("s1 u2 a3")
    history.insert(1, [one("u9")])
    assert {
        "originalIndices": [0, 3, 1, 2],
        "typeIndices": {"system": [0], "user": [3, 1], "assistant": [2], "tool": []},
        "batchBoundaries": [0, 3],
        "boundaryToBatch": [0, 1],
        "currentBatch": 1,
    } == to_dict(history.mark_map())
