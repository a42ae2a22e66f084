-- Every statement the SQLite store makes, by name. Values are bound, never written in.

-- name: head
SELECT c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.cid, c.erased
FROM conversations AS c LEFT JOIN conversations AS p ON p.cid = c.parent
WHERE c.id = ?;

-- name: list
SELECT c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.cid, c.erased
FROM conversations AS c LEFT JOIN conversations AS p ON p.cid = c.parent
WHERE (c.updated, c.id) < (?, ?)
  AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = ?3))
ORDER BY c.updated DESC, c.id DESC
LIMIT ?4;

-- name: insert_conversation
INSERT INTO conversations (id, version, stop, length, n_system, n_user, n_assistant, framed, size,
                           parent, base, origin, title, tags, created, updated)
VALUES (?, 0, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: advance
UPDATE conversations
SET version = version + 1, stop = ?, length = length + ?, n_system = n_system + ?,
    n_user = n_user + ?, n_assistant = n_assistant + ?, framed = coalesce(?, framed), size = ?,
    updated = max(updated, ?)
WHERE cid = ? AND version = ?
RETURNING length, n_system, n_user, n_assistant;

-- name: insert_message
INSERT INTO messages (cid, seq, role, ordinal, n_system, n_user, n_assistant, time, replaces, hash,
                      id, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_journal
INSERT INTO journal (cid, version, kind, at, first, count, stop, data, key, frame)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: version_of_key
SELECT version FROM journal WHERE cid = ? AND key = ?;

-- name: bodies
SELECT body FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- name: before
SELECT n_system, n_user, n_assistant FROM messages WHERE cid = ? AND seq = ?;

-- name: select
SELECT seq FROM messages WHERE cid = ? AND role = ? AND ordinal >= ? AND ordinal < ? AND seq < ?
ORDER BY ordinal;

-- name: positions_of
SELECT seq FROM messages WHERE id = ? AND cid = ? AND seq < ? ORDER BY seq;

-- name: between_times
SELECT seq FROM messages WHERE cid = ? AND seq < ? AND time >= ? AND time < ? ORDER BY seq;

-- name: replaced
SELECT replaces FROM messages WHERE cid = ? AND seq = ?;

-- name: stop
SELECT stop FROM journal WHERE cid = ? AND version = ?;

-- name: frames
SELECT version, frame FROM journal
WHERE cid = ? AND frame IS NOT NULL AND version > ? AND version <= ? ORDER BY version;

-- name: journal
SELECT c.id, j.version, j.kind, j.at, j.first, j.count, j.data, j.number
FROM journal AS j JOIN conversations AS c ON c.cid = j.cid
WHERE j.cid = ? AND j.version > ? ORDER BY j.version LIMIT ?;

-- name: journal_of_all
SELECT c.id, j.version, j.kind, j.at, j.first, j.count, j.data, j.number
FROM journal AS j JOIN conversations AS c ON c.cid = j.cid
WHERE j.number > ? ORDER BY j.number LIMIT ?;

-- name: describe
UPDATE conversations SET title = ?, tags = ? WHERE cid = ?;

-- name: lease
SELECT holder, token, expires FROM leases WHERE cid = ?;

-- name: put_lease
INSERT INTO leases (cid, holder, token, expires) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (cid) DO UPDATE SET holder = ?2, token = ?3, expires = ?4;

-- name: end_lease
UPDATE leases SET expires = 0 WHERE cid = ? AND token = ?;

-- name: put_record
INSERT INTO records (cid, kind, name, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (cid, kind, name) DO UPDATE SET value = ?4;

-- name: drop_record
DELETE FROM records WHERE cid = ? AND kind = ? AND name = ?;

-- name: records
SELECT name, value FROM records WHERE cid = ? AND kind = ? ORDER BY name;

-- name: a_fork_of
SELECT id FROM conversations WHERE parent = ? LIMIT 1;

-- name: family
WITH RECURSIVE
    up (cid, parent) AS (
        SELECT cid, parent FROM conversations WHERE cid = ?
        UNION ALL
        SELECT c.cid, c.parent FROM conversations AS c JOIN up ON c.cid = up.parent
    ),
    down (cid, id) AS (
        SELECT c.cid, c.id FROM conversations AS c JOIN up ON up.cid = c.cid WHERE up.parent IS NULL
        UNION ALL
        SELECT c.cid, c.id FROM conversations AS c JOIN down ON c.parent = down.cid
    )
SELECT id FROM down;

-- name: all_rows
SELECT number, body FROM messages WHERE cid = ?;

-- name: rows_of
SELECT number, seq, body FROM messages WHERE id = ? AND cid = ?;

-- name: bury
UPDATE messages SET body = ?, hash = ? WHERE number = ?;

-- name: note_erasure
UPDATE conversations SET erased = erased + 1 WHERE cid = ?;

-- name: newest
SELECT coalesce(max(number), 0) FROM journal;

-- name: hashes
SELECT seq, hash, body FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;
