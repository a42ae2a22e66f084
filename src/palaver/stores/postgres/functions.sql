-- A change is one call of a function, so that it is one round trip, also where it is refused, and
-- runs on the node that has the family. They are installed with every migration.
--
-- A function that changes something returns a list of numbers, of which the first is the outcome, as
-- in `backend.py`: 0 it was made, 1 it was made before by this attempt, 2 it was made before under
-- this key, 3 the lease went to another worker, 4 others came first, 5 there is no such conversation,
-- 6 there is one already.

-- The node this is, among those of a cluster.
CREATE OR REPLACE FUNCTION palaver.node() RETURNS integer LANGUAGE sql STABLE AS 'SELECT 0';

-- How far the numbers are ahead of those of the transactions: `shift` in `palaver.store`. Every change
-- needs it, so it is a constant in their plans, which are made again when it is another.
CREATE OR REPLACE FUNCTION palaver.define_shift() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'CREATE OR REPLACE FUNCTION palaver.shift() RETURNS bigint LANGUAGE sql STABLE AS '
            || quote_literal('SELECT ' || shift || '::bigint') FROM palaver.store;
END
$$;
SELECT palaver.define_shift();

-- The number of a change: that of the transaction, and of the change among those of the transaction.
CREATE OR REPLACE FUNCTION palaver.next_number(p_index bigint) RETURNS bigint
LANGUAGE sql VOLATILE
AS 'SELECT (pg_current_xact_id()::text::bigint + palaver.shift()) * 4194304 + p_index';

-- Refuse to go on where the family does not lie. A call that was sent to a node just before its shard
-- moved away still runs there, and writes across to the other one. Its number would be drawn here and
-- be older than those of changes that it follows, and a follower would wait for ever for one of them.
-- Who called is told to try again, and finds the family where it lies now.
CREATE OR REPLACE FUNCTION palaver.check_node(p_root text, p_id text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_node integer;
BEGIN
    SELECT palaver.node() INTO v_node FROM palaver.conversations
    WHERE root = p_root AND id = p_id;  -- runs where the row lies
    IF v_node <> palaver.node() THEN
        RAISE EXCEPTION 'the family of % moved to another node', p_id
        USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- The number of the newest change of a conversation, if it was drawn on this node. Its record is the
-- last message itself, or is in the journal.
CREATE OR REPLACE FUNCTION palaver.number_of(
    p_root text, p_id text, p_version bigint, p_length bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
BEGIN
    SELECT number INTO v_number FROM palaver.messages
    WHERE root = p_root AND conversation = p_id AND seq = p_length - 1 AND version = p_version
      AND node = palaver.node();
    IF NOT FOUND THEN
        SELECT number INTO v_number FROM palaver.journal
        WHERE root = p_root AND conversation = p_id AND version = p_version
          AND node = palaver.node();
    END IF;
    RETURN v_number;
END
$$;

-- Add messages from a position on; the counts are those of the messages before it. Returns the counts
-- behind them. A message's mark is a hash of what does not depend on its position. The last five
-- values are given where the one message is its own record of the change.
CREATE OR REPLACE FUNCTION palaver.add_messages(
    p_root text, p_id text, p_first bigint, p_counts bigint[], p_roles bigint[], p_times bigint[],
    p_replaces bigint[], p_marks bigint[], p_ids text[], p_bodies text[],
    p_version bigint DEFAULT NULL, p_node integer DEFAULT NULL, p_number bigint DEFAULT NULL,
    p_at bigint DEFAULT NULL, p_attempt bigint DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_role bigint;
    v_seq bigint := p_first;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_bodies), 0) LOOP
        v_role := p_roles[i];
        INSERT INTO palaver.messages (root, conversation, seq, role, ordinal, n_system, n_user,
                                      n_assistant, time, replaces, hash, id, body, version, node,
                                      number, at, attempt)
        VALUES (p_root, p_id, v_seq, v_role,
                coalesce(p_counts[v_role + 1], v_seq - p_counts[1] - p_counts[2] - p_counts[3]),
                p_counts[1], p_counts[2], p_counts[3], p_times[i], nullif(p_replaces[i], -1),
                p_marks[i] # v_seq, p_ids[i], p_bodies[i], p_version, p_node, p_number, p_at,
                p_attempt);
        IF v_role < 3 THEN
            p_counts[v_role + 1] := p_counts[v_role + 1] + 1;
        END IF;
        v_seq := v_seq + 1;
    END LOOP;
    RETURN p_counts;
END
$$;

-- Store records, or remove those without a value.
CREATE OR REPLACE FUNCTION palaver.put_records(
    p_root text, p_id text, p_kinds text[], p_names text[], p_values bytea[], p_hashes bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_kinds), 0) LOOP
        IF p_values[i] IS NULL THEN
            DELETE FROM palaver.records
            WHERE root = p_root AND conversation = p_id AND kind = p_kinds[i] AND name = p_names[i];
        ELSE
            INSERT INTO palaver.records (root, conversation, kind, name, value, hash)
            VALUES (p_root, p_id, p_kinds[i], p_names[i], p_values[i], p_hashes[i])
            ON CONFLICT (root, conversation, kind, name)
            DO UPDATE SET value = excluded.value, hash = excluded.hash;
        END IF;
    END LOOP;
END
$$;

-- Commit a change. The lock of the head's row is the queue of the writers of a conversation. Behind the
-- outcome stand the version, the position of the first message, and the numbers of the head.
--
-- An append that may stand anywhere follows whatever was committed first, if that ends with the log;
-- `p_first`, `p_stop` and `p_size` are those of the version it was made for, and not used then. Its
-- transaction may be older than that of the change it waited for: its number is then the next after
-- that one's. What came since `p_after` is searched for the attempt, so whoever comes behind more than
-- 1,000 others is told to look again. Under a key the first try need not (not `p_again`): the key is
-- found, also by a first try that is run after the second.
--
-- `p_mark` is the hash of what the journal's row has that does not depend on its place. Without one
-- the change is a plain append of one message, and that message's row is the record of it.
CREATE OR REPLACE FUNCTION palaver.commit_change(
    p_root text, p_id text, p_after bigint, p_anywhere boolean, p_first bigint, p_stop bigint,
    p_size bigint, p_kind text, p_at bigint, p_key text, p_token bigint, p_attempt bigint,
    p_index bigint, p_mark bigint, p_roles bigint[], p_times bigint[], p_marks bigint[],
    p_ids text[], p_bodies text[], p_replaces bigint[] DEFAULT NULL, p_data text DEFAULT NULL,
    p_frame bytea DEFAULT NULL, p_kinds text[] DEFAULT NULL, p_names text[] DEFAULT NULL,
    p_values bytea[] DEFAULT NULL, p_hashes bigint[] DEFAULT NULL, p_again boolean DEFAULT true
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_head record;
    v_last bigint;  -- the version up to which the attempt is searched for
    v_stop bigint;  -- the position behind the message of that version
    v_made bigint;
    v_first bigint;
    v_version bigint;
    v_count bigint := coalesce(cardinality(p_bodies), 0);
    v_counts bigint[];
    v_number bigint;
BEGIN
    SELECT version, stop, length, n_system, n_user, n_assistant, framed, size, erased, lease_token,
           palaver.node() AS node
    INTO v_head
    FROM palaver.conversations WHERE root = p_root AND id = p_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN ARRAY[5];
    END IF;
    IF v_head.node <> palaver.node() THEN
        PERFORM palaver.check_node(p_root, p_id);
    END IF;
    IF v_head.version <> p_after AND p_again THEN
        v_last := p_after + CASE WHEN p_anywhere THEN 1000 ELSE 1 END;
        SELECT version, first INTO v_made, v_first FROM palaver.journal
        WHERE root = p_root AND conversation = p_id AND version > p_after AND version <= v_last
          AND attempt = p_attempt;
        IF NOT FOUND AND p_mark IS NULL THEN
            SELECT first + count + v_last - version INTO v_stop FROM palaver.journal
            WHERE root = p_root AND conversation = p_id AND version <= v_last
            ORDER BY version DESC LIMIT 1;
            SELECT version, seq INTO v_made, v_first FROM palaver.messages
            WHERE root = p_root AND conversation = p_id AND seq >= p_first AND seq < v_stop
              AND version > p_after AND attempt = p_attempt;
        END IF;
        IF FOUND THEN
            RETURN ARRAY[1, v_made, v_first, v_head.version, v_head.stop, v_head.length,
                         v_head.n_system, v_head.n_user, v_head.n_assistant, v_head.framed,
                         v_head.size, v_head.erased];
        END IF;
    END IF;
    IF p_key IS NOT NULL THEN
        SELECT version INTO v_made FROM palaver.journal
        WHERE root = p_root AND conversation = p_id AND key = p_key;
        IF FOUND THEN
            RETURN ARRAY[2, v_made];
        END IF;
    END IF;
    IF p_token <> v_head.lease_token THEN
        RETURN ARRAY[3];
    END IF;
    IF v_head.version <> p_after AND p_anywhere AND v_head.stop = v_head.length
       AND v_head.version > p_after AND v_head.version <= p_after + 1000 THEN
        p_first := v_head.length;
        p_stop := v_head.length + v_count;
        p_size := v_head.size + v_count;
        v_number := palaver.number_of(p_root, p_id, v_head.version, v_head.length) + 1;
    ELSIF v_head.version <> p_after OR v_head.length <> p_first THEN
        RETURN ARRAY[4];
    END IF;
    p_size := coalesce(p_size, v_head.size + v_count);
    v_version := v_head.version + 1;
    v_number := greatest(v_number, palaver.next_number(p_index));
    v_counts := ARRAY[v_head.n_system, v_head.n_user, v_head.n_assistant];
    IF p_mark IS NULL THEN
        v_counts := palaver.add_messages(
            p_root, p_id, p_first, v_counts, p_roles, p_times, p_replaces, p_marks, p_ids, p_bodies,
            v_version, palaver.node(), v_number, p_at, p_attempt);
    ELSE
        v_counts := palaver.add_messages(
            p_root, p_id, p_first, v_counts, p_roles, p_times, p_replaces, p_marks, p_ids,
            p_bodies);
    END IF;
    IF p_frame IS NOT NULL THEN
        v_head.framed := v_version;
    END IF;
    UPDATE palaver.conversations
    SET version = v_version, stop = p_stop, length = p_first + v_count, n_system = v_counts[1],
        n_user = v_counts[2], n_assistant = v_counts[3], framed = v_head.framed, size = p_size,
        updated = greatest(updated, p_at)
    WHERE root = p_root AND id = p_id;
    IF p_mark IS NOT NULL THEN
        INSERT INTO palaver.journal (root, conversation, version, node, number, kind, at, first,
                                     count, stop, data, key, attempt, frame, hash)
        VALUES (p_root, p_id, v_version, palaver.node(), v_number, p_kind, p_at, p_first, v_count,
                p_stop, p_data, p_key, p_attempt, p_frame,
                p_mark # (v_version | (p_first << 32)));
    END IF;
    IF p_kinds IS NOT NULL THEN
        PERFORM palaver.put_records(p_root, p_id, p_kinds, p_names, p_values, p_hashes);
    END IF;
    RETURN ARRAY[0, v_version, p_first, v_version, p_stop, p_first + v_count, v_counts[1],
                 v_counts[2], v_counts[3], v_head.framed, p_size, v_head.erased];
END
$$;

-- Append one message behind whatever was committed first, if that ends with the log: what
-- `commit_change` does, in three statements. The answer is the same, and what can't be done here is
-- left to it: the lease went to another, the change was sent before, others edited.
--
-- A first try may come after the second: its connection was lost, and a busy server runs it later. It
-- finds its attempt among the messages since, now that it has the lock. Nobody waits for its answer.
CREATE OR REPLACE FUNCTION palaver.append_behind_others(
    p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_first bigint,
    p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint, p_time bigint,
    p_hash bigint, p_message text, p_body text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_head record;
    v_seq bigint;
    v_previous bigint;  -- the number of the change before it
    v_made boolean;
BEGIN
    UPDATE palaver.conversations AS c
    SET version = c.version + 1, length = c.length + 1, stop = c.length + 1, size = c.size + 1,
        n_system = c.n_system + (p_role = 0)::integer, n_user = c.n_user + (p_role = 1)::integer,
        n_assistant = c.n_assistant + (p_role = 2)::integer, updated = greatest(c.updated, p_at)
    WHERE c.root = p_root AND c.id = p_id AND p_anywhere AND NOT p_again AND c.stop = c.length
      AND (c.version > p_after AND c.version <= p_after + 1000
           OR c.version = p_after AND c.length = p_first)
      AND (p_token < 0 OR c.lease_token = p_token)
    RETURNING c.xmin, c.version, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
              c.erased INTO v_head;
    IF NOT FOUND THEN
        RETURN palaver.commit_change(
            p_root, p_id, p_after, p_anywhere, p_first, p_first + 1, NULL, 'append', p_at, NULL,
            nullif(p_token, -1), p_attempt, p_index, NULL, ARRAY[p_role], ARRAY[p_time],
            ARRAY[p_hash], ARRAY[p_message], ARRAY[p_body]);
    END IF;
    IF v_head.xmin <> pg_current_xact_id()::xid THEN  -- another node wrote the row
        PERFORM palaver.check_node(p_root, p_id);
    END IF;
    v_seq := v_head.length - 1;
    SELECT max(number) FILTER (WHERE seq = v_seq - 1 AND version = v_head.version - 1
                                     AND node = palaver.node()),
           bool_or(attempt = p_attempt)
    INTO v_previous, v_made
    FROM palaver.messages
    WHERE root = p_root AND conversation = p_id AND seq >= least(p_first, v_seq - 1);
    IF v_made THEN
        RAISE EXCEPTION 'an append to % was made by a later try', p_id
        USING ERRCODE = 'serialization_failure';
    END IF;
    v_previous := coalesce(v_previous, palaver.number_of(p_root, p_id, v_head.version - 1, v_seq));
    INSERT INTO palaver.messages (root, conversation, seq, role, ordinal, n_system, n_user,
                                  n_assistant, time, hash, id, body, version, node, number, at,
                                  attempt)
    VALUES (p_root, p_id, v_seq, p_role,
            CASE p_role WHEN 0 THEN v_head.n_system - 1 WHEN 1 THEN v_head.n_user - 1
                        WHEN 2 THEN v_head.n_assistant - 1
                        ELSE v_seq - v_head.n_system - v_head.n_user - v_head.n_assistant END,
            v_head.n_system - (p_role = 0)::integer, v_head.n_user - (p_role = 1)::integer,
            v_head.n_assistant - (p_role = 2)::integer, p_time, p_hash # v_seq, p_message, p_body,
            v_head.version, palaver.node(),
            greatest(v_previous + 1, palaver.next_number(p_index)), p_at, p_attempt);
    RETURN ARRAY[0, v_head.version, v_seq, v_head.version, v_head.length, v_head.length,
                 v_head.n_system, v_head.n_user, v_head.n_assistant, v_head.framed, v_head.size,
                 v_head.erased];
END
$$;

-- Append one message at the end of the log, and nothing more, in two statements. Most of the time of
-- an append is the time that a statement takes to begin and to end.
--
-- It makes the change if the conversation stands where it was made for: the counts and the position
-- that came with it are right then. Everything else is left to `append_behind_others`. The version
-- alone stands behind the outcome. `p_token` is -1 where there is no lease.
--
-- Whoever waits for the lock of a row is overtaken by those who come while it is free, so that among
-- many writers some would wait many times as long as others. Where there are many (`p_in_turn`), an
-- append first waits for a lock that is given in the order of asking. The caller holds no other then.
CREATE OR REPLACE FUNCTION palaver.append_message(
    p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_in_turn boolean,
    p_first bigint, p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint,
    p_system bigint, p_user bigint, p_assistant bigint, p_time bigint, p_hash bigint,
    p_message text, p_body text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_xmin xid;
BEGIN
    IF p_in_turn THEN  -- and most probably comes behind another
        PERFORM pg_advisory_xact_lock(hashtextextended(p_id, 0));
    ELSE
        UPDATE palaver.conversations AS c
        SET version = p_after + 1, length = p_first + 1, stop = p_first + 1, size = c.size + 1,
            n_system = p_system + (p_role = 0)::integer, n_user = p_user + (p_role = 1)::integer,
            n_assistant = p_assistant + (p_role = 2)::integer, updated = greatest(c.updated, p_at)
        WHERE c.root = p_root AND c.id = p_id AND c.version = p_after AND c.length = p_first
          AND (p_token < 0 OR c.lease_token = p_token)
        RETURNING c.xmin INTO v_xmin;
    END IF;
    IF v_xmin IS NULL THEN
        RETURN palaver.append_behind_others(
            p_root, p_id, p_after, p_anywhere, p_again, p_first, p_at, p_token, p_attempt, p_index,
            p_role, p_time, p_hash, p_message, p_body);
    END IF;
    IF v_xmin <> pg_current_xact_id()::xid THEN  -- another node wrote the row
        PERFORM palaver.check_node(p_root, p_id);
    END IF;
    INSERT INTO palaver.messages (root, conversation, seq, role, ordinal, n_system, n_user,
                                  n_assistant, time, hash, id, body, version, node, number, at,
                                  attempt)
    VALUES (p_root, p_id, p_first, p_role,
            CASE p_role WHEN 0 THEN p_system WHEN 1 THEN p_user WHEN 2 THEN p_assistant
                        ELSE p_first - p_system - p_user - p_assistant END,
            p_system, p_user, p_assistant, p_time, p_hash # p_first, p_message, p_body,
            p_after + 1, palaver.node(), palaver.next_number(p_index), p_at, p_attempt);
    RETURN ARRAY[0, p_after + 1];
END
$$;

-- Append one message under a key. Its record is in the journal, with the hash `p_mark`.
CREATE OR REPLACE FUNCTION palaver.append_with_key(
    p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_in_turn boolean,
    p_first bigint, p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint,
    p_time bigint, p_hash bigint, p_message text, p_body text, p_key text, p_mark bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF p_in_turn THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_id, 0));
    END IF;
    RETURN palaver.commit_change(
        p_root, p_id, p_after, p_anywhere, p_first, p_first + 1, NULL, 'append', p_at, p_key,
        nullif(p_token, -1), p_attempt, p_index, p_mark, ARRAY[p_role], ARRAY[p_time],
        ARRAY[p_hash], ARRAY[p_message], ARRAY[p_body], p_again => p_again);
END
$$;

-- Create a conversation. The name of a fork lies elsewhere, and is written beside this call, which
-- raises what is against it, so that neither stays. A fork as its parent must have the parent's title,
-- tags and owner, which are in its hash. The head comes before the messages: where row security is on,
-- it tells whose they are.
CREATE OR REPLACE FUNCTION palaver.create_conversation(
    p_root text, p_id text, p_parent text, p_base bigint, p_origin bigint, p_title text,
    p_tags text[], p_created bigint, p_updated bigint, p_hash bigint, p_first bigint, p_stop bigint,
    p_size bigint, p_counts bigint[], p_kind text, p_at bigint, p_key text, p_attempt bigint,
    p_index bigint, p_mark bigint, p_data text, p_frame bytea, p_roles bigint[], p_times bigint[],
    p_marks bigint[], p_ids text[], p_bodies text[], p_replaces bigint[], p_kinds text[],
    p_names text[], p_values bytea[], p_hashes bigint[], p_as_parent boolean, p_owner text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_attempt bigint;
    v_parent record;
    v_count bigint := coalesce(cardinality(p_bodies), 0);
BEGIN
    IF p_root = p_id THEN
        INSERT INTO palaver.names (id, root) VALUES (p_id, p_root) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT attempt INTO v_attempt FROM palaver.journal
            WHERE root = p_root AND conversation = p_id AND version = 0;
            RETURN ARRAY[CASE WHEN v_attempt = p_attempt THEN 1 ELSE 6 END, 0];
        END IF;
    ELSE
        SELECT title, tags, owner INTO v_parent FROM palaver.conversations
        WHERE root = p_root AND id = p_parent FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no conversation has the id %', p_parent USING ERRCODE = 'PV005';
        END IF;
        IF p_as_parent AND (v_parent.title, v_parent.tags, v_parent.owner)
                           IS DISTINCT FROM (p_title, p_tags, p_owner) THEN
            RAISE EXCEPTION '% has another title or owner, or other tags', p_parent USING ERRCODE = 'PV007';
        END IF;
    END IF;
    INSERT INTO palaver.conversations (
        root, id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base,
        origin, title, tags, created, updated, hash, owner)
    VALUES (p_root, p_id, 0, p_stop, p_first + v_count,
            p_counts[1] + cardinality(array_positions(p_roles, 0)),
            p_counts[2] + cardinality(array_positions(p_roles, 1)),
            p_counts[3] + cardinality(array_positions(p_roles, 2)), 0,
            p_size, p_parent, p_base, p_origin, p_title, p_tags, p_created, p_updated, p_hash,
            p_owner);
    PERFORM palaver.check_node(p_root, p_id);
    PERFORM palaver.add_messages(p_root, p_id, p_first, p_counts, p_roles, p_times, p_replaces,
                                 p_marks, p_ids, p_bodies);
    INSERT INTO palaver.journal (root, conversation, version, node, number, kind, at, first, count,
                                 stop, data, key, attempt, frame, hash)
    VALUES (p_root, p_id, 0, palaver.node(), palaver.next_number(p_index), p_kind, p_at, p_first,
            v_count, p_stop, p_data, p_key, p_attempt, p_frame, p_mark # (p_first << 32));
    PERFORM palaver.put_records(p_root, p_id, p_kinds, p_names, p_values, p_hashes);
    RETURN ARRAY[0, 0];
END
$$;

-- Store records beside the log, under a lease or without.
CREATE OR REPLACE FUNCTION palaver.keep_records(
    p_root text, p_id text, p_token bigint, p_kinds text[], p_names text[], p_values bytea[],
    p_hashes bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_token bigint;
BEGIN
    IF p_token IS NULL THEN
        SELECT lease_token INTO v_token FROM palaver.conversations
        WHERE root = p_root AND id = p_id FOR KEY SHARE;
    ELSE  -- nobody takes the lease meanwhile
        SELECT lease_token INTO v_token FROM palaver.conversations
        WHERE root = p_root AND id = p_id FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RETURN ARRAY[5];
    END IF;
    IF p_token <> v_token THEN
        RETURN ARRAY[3];
    END IF;
    PERFORM palaver.put_records(p_root, p_id, p_kinds, p_names, p_values, p_hashes);
    RETURN ARRAY[0];
END
$$;

-- Take or renew a lease. Leases go by the server's clock, in milliseconds since 1970; it is read when
-- the row is at hand. Returns who holds it now, the token, when it ends and how long that is.
CREATE OR REPLACE FUNCTION palaver.take_lease(
    p_root text, p_id text, p_holder text, p_lasts bigint,
    OUT holder text, OUT token bigint, OUT expires bigint, OUT remaining bigint
) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
BEGIN
    SELECT lease_holder, lease_token, lease_expires INTO holder, token, expires
    FROM palaver.conversations WHERE root = p_root AND id = p_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    IF holder IS NULL OR holder = p_holder OR expires <= v_now THEN
        IF holder IS DISTINCT FROM p_holder OR expires <= v_now THEN
            token := token + 1;
        END IF;
        holder := p_holder;
        expires := v_now + p_lasts;
        UPDATE palaver.conversations
        SET lease_token = token, lease_holder = p_holder, lease_expires = expires
        WHERE root = p_root AND id = p_id;
    END IF;
    remaining := expires - v_now;
END
$$;

-- Everything that a history begins with: the head, its line of ancestors (the first is last), all
-- frames, the records of merges, and the last messages of the view's end; not more than 8 MB of them.
-- `o_root` is NULL where there is no such conversation, `o_ids` where it has too many ancestors.
CREATE OR REPLACE FUNCTION palaver.open_conversation(
    p_id text, p_last bigint, OUT o_root text, OUT o_version bigint, OUT o_stop bigint,
    OUT o_length bigint, OUT o_system bigint, OUT o_user bigint, OUT o_assistant bigint,
    OUT o_framed bigint, OUT o_size bigint, OUT o_parent text, OUT o_base bigint,
    OUT o_origin bigint, OUT o_title text, OUT o_tags text[], OUT o_created bigint,
    OUT o_updated bigint, OUT o_erased bigint, OUT o_ids text[], OUT o_bases bigint[],
    OUT o_origins bigint[], OUT o_versions bigint[], OUT o_frames bytea[], OUT o_names text[],
    OUT o_values bytea[], OUT o_first bigint, OUT o_bodies text[], OUT o_owner text
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_id text := p_id;
    v_parent text;
    v_base bigint;
    v_origin bigint;
    v_message record;
    v_bytes bigint := 0;
    v_start bigint;
BEGIN
    SELECT root INTO o_root FROM palaver.names WHERE id = p_id;
    SELECT version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
           title, tags, created, updated, erased, owner
    INTO o_version, o_stop, o_length, o_system, o_user, o_assistant, o_framed, o_size, o_parent,
         o_base, o_origin, o_title, o_tags, o_created, o_updated, o_erased, o_owner
    FROM palaver.conversations WHERE root = o_root AND id = p_id;
    IF NOT FOUND THEN
        o_root := NULL;
        RETURN;
    END IF;
    SELECT array_agg(version ORDER BY version), array_agg(frame ORDER BY version)
    INTO o_versions, o_frames
    FROM palaver.journal
    WHERE root = o_root AND conversation = p_id AND frame IS NOT NULL AND version <= o_framed;
    SELECT array_agg(name), array_agg(value) INTO o_names, o_values
    FROM palaver.records WHERE root = o_root AND conversation = p_id AND kind = 'names';
    v_start := greatest(o_stop - p_last, 0);
    o_first := o_stop;
    v_parent := o_parent;
    v_base := o_base;
    v_origin := o_origin;
    LOOP
        o_ids := o_ids || v_id;
        o_bases := o_bases || v_base;
        o_origins := o_origins || v_origin;
        IF o_first > v_start AND o_first > v_base THEN
            FOR v_message IN
                SELECT seq, body FROM palaver.messages
                WHERE root = o_root AND conversation = v_id AND seq < o_first
                  AND seq >= greatest(v_start, v_base)
                ORDER BY seq DESC
            LOOP
                v_bytes := v_bytes + octet_length(v_message.body);
                IF v_bytes > 8000000 OR v_message.seq <> o_first - 1 THEN
                    v_start := o_first;
                    EXIT;
                END IF;
                o_first := v_message.seq;
                o_bodies := v_message.body || o_bodies;
            END LOOP;
        END IF;
        EXIT WHEN v_parent IS NULL;
        SELECT id, parent, base, origin INTO v_id, v_parent, v_base, v_origin
        FROM palaver.conversations WHERE root = o_root AND id = v_parent;
        IF NOT FOUND OR cardinality(o_ids) = 100 THEN
            o_ids := NULL;
            EXIT;
        END IF;
    END LOOP;
END
$$;
