-- Messages are in order of their times, whoever made their ids; only those that are not stand in the
-- index by time (see `order.py`). `to_latest` was `behind`. It is below 0 now for a message that is in
-- order of time but not of ids: the latest one in both lies so many positions before it, at -1 where
-- there is none. What is there stays in both indexes.
ALTER TABLE messages RENAME COLUMN behind TO to_latest;
DROP INDEX messages_time;
CREATE INDEX messages_time ON messages (cid, time) WHERE coalesce(to_latest, 1) > 0;

-- Which process took a lease, where that process alone can go on with it: once it has ended, so has
-- the lease.
ALTER TABLE leases ADD COLUMN process TEXT;
