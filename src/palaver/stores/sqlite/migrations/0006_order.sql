-- An append writes two trees fewer: messages that come in order are found by bisection, and only the
-- others stand in the indexes by id and by time (see `search.py`). `behind` tells how many positions
-- before a message the latest one in order lies: 0 for itself, NULL where there is none before. What
-- is there has NULL, and stays in the indexes.
DROP INDEX messages_role;
DROP INDEX messages_id;
DROP INDEX messages_time;
ALTER TABLE messages ADD COLUMN behind INTEGER;
CREATE INDEX messages_id ON messages (id) WHERE behind IS NOT 0;
CREATE INDEX messages_time ON messages (cid, time) WHERE behind IS NOT 0;

-- An earlier palaver that has the file open can't write any more: its rows would have no `behind`.
ALTER TABLE messages RENAME COLUMN ordinal TO rank;
