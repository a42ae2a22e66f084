-- A plain append of one message has no row in the journal: the message's own row says which version
-- it made, by which attempt and when. All five are NULL in the other messages.
ALTER TABLE palaver.messages ADD COLUMN version integer, ADD COLUMN node integer,
    ADD COLUMN number bigint, ADD COLUMN at bigint, ADD COLUMN attempt bigint;
CREATE INDEX messages_number ON palaver.messages (node, number) WHERE number IS NOT NULL;

-- The listing is in the order of the last change. An index over that time would be written with every
-- change; this one is over the span of 4 seconds that it lies in, and the server sorts within a span.
-- The column is added and filled while the table is locked.
ALTER TABLE palaver.conversations
    ADD COLUMN span bigint NOT NULL GENERATED ALWAYS AS (updated >> 12) STORED;
DO $$
DECLARE
    old regclass;
BEGIN
    FOR old IN  -- of a partitioned table they have other names
        SELECT i.indexrelid FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = 'palaver.conversations'::regclass AND a.attname = 'updated'
    LOOP
        EXECUTE format('DROP INDEX %s', old);
    END LOOP;
END
$$;
CREATE INDEX conversations_span ON palaver.conversations (span DESC);
CREATE INDEX conversations_owner ON palaver.conversations (owner, span) WHERE owner IS NOT NULL;

-- These have other arguments now. An earlier palaver that is still connected can't append any more: it
-- would not find such appends, and has to be started again.
DROP FUNCTION IF EXISTS palaver.append_message;
DROP FUNCTION IF EXISTS palaver.commit_change;
DROP FUNCTION IF EXISTS palaver.add_messages;
