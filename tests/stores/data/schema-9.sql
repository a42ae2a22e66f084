--
-- PostgreSQL database dump
--


-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: palaver; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA palaver;


--
-- Name: add_messages(text, text, bigint, bigint[], bigint[], bigint[], bigint[], bigint[], text[], text[], bigint, integer, bigint, bigint, bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.add_messages(p_root text, p_id text, p_first bigint, p_counts bigint[], p_roles bigint[], p_times bigint[], p_replaces bigint[], p_marks bigint[], p_ids text[], p_bodies text[], p_version bigint DEFAULT NULL::bigint, p_node integer DEFAULT NULL::integer, p_number bigint DEFAULT NULL::bigint, p_at bigint DEFAULT NULL::bigint, p_attempt bigint DEFAULT NULL::bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: append_behind_others(text, text, bigint, boolean, boolean, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, text, text); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.append_behind_others(p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_first bigint, p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint, p_time bigint, p_hash bigint, p_message text, p_body text) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_head record;
    v_seq bigint;
    v_previous bigint;  -- the number of the change before it
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
            ARRAY[p_hash], ARRAY[p_message], ARRAY[p_body], p_again => p_again);
    END IF;
    IF v_head.xmin <> pg_current_xact_id()::xid THEN  -- another node wrote the row
        PERFORM palaver.check_node(p_root, p_id);
    END IF;
    v_seq := v_head.length - 1;
    v_previous := palaver.number_of(p_root, p_id, v_head.version - 1, v_seq);
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


--
-- Name: append_message(text, text, bigint, boolean, boolean, boolean, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, text, text); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.append_message(p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_in_turn boolean, p_first bigint, p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint, p_system bigint, p_user bigint, p_assistant bigint, p_time bigint, p_hash bigint, p_message text, p_body text) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: append_with_key(text, text, bigint, boolean, boolean, boolean, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, text, text, text, bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.append_with_key(p_root text, p_id text, p_after bigint, p_anywhere boolean, p_again boolean, p_in_turn boolean, p_first bigint, p_at bigint, p_token bigint, p_attempt bigint, p_index bigint, p_role bigint, p_time bigint, p_hash bigint, p_message text, p_body text, p_key text, p_mark bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: check_node(text, text); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.check_node(p_root text, p_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: commit_change(text, text, bigint, boolean, bigint, bigint, bigint, text, bigint, text, bigint, bigint, bigint, bigint, bigint[], bigint[], bigint[], text[], text[], bigint[], text, bytea, text[], text[], bytea[], bigint[], boolean); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.commit_change(p_root text, p_id text, p_after bigint, p_anywhere boolean, p_first bigint, p_stop bigint, p_size bigint, p_kind text, p_at bigint, p_key text, p_token bigint, p_attempt bigint, p_index bigint, p_mark bigint, p_roles bigint[], p_times bigint[], p_marks bigint[], p_ids text[], p_bodies text[], p_replaces bigint[] DEFAULT NULL::bigint[], p_data text DEFAULT NULL::text, p_frame bytea DEFAULT NULL::bytea, p_kinds text[] DEFAULT NULL::text[], p_names text[] DEFAULT NULL::text[], p_values bytea[] DEFAULT NULL::bytea[], p_hashes bigint[] DEFAULT NULL::bigint[], p_again boolean DEFAULT true) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: create_conversation(text, text, text, bigint, bigint, text, text[], bigint, bigint, bigint, bigint, bigint, bigint, bigint[], text, bigint, text, bigint, bigint, bigint, text, bytea, bigint[], bigint[], bigint[], text[], text[], bigint[], text[], text[], bytea[], bigint[], boolean, text); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.create_conversation(p_root text, p_id text, p_parent text, p_base bigint, p_origin bigint, p_title text, p_tags text[], p_created bigint, p_updated bigint, p_hash bigint, p_first bigint, p_stop bigint, p_size bigint, p_counts bigint[], p_kind text, p_at bigint, p_key text, p_attempt bigint, p_index bigint, p_mark bigint, p_data text, p_frame bytea, p_roles bigint[], p_times bigint[], p_marks bigint[], p_ids text[], p_bodies text[], p_replaces bigint[], p_kinds text[], p_names text[], p_values bytea[], p_hashes bigint[], p_as_parent boolean, p_owner text) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: define_shift(); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.define_shift() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    EXECUTE 'CREATE OR REPLACE FUNCTION palaver.shift() RETURNS bigint LANGUAGE sql STABLE AS '
            || quote_literal('SELECT ' || shift || '::bigint') FROM palaver.store;
END
$$;


--
-- Name: keep_records(text, text, bigint, text[], text[], bytea[], bigint[]); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.keep_records(p_root text, p_id text, p_token bigint, p_kinds text[], p_names text[], p_values bytea[], p_hashes bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: next_number(bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.next_number(p_index bigint) RETURNS bigint
    LANGUAGE sql
    AS $$SELECT (pg_current_xact_id()::text::bigint + palaver.shift()) * 4194304 + p_index$$;


--
-- Name: node(); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.node() RETURNS integer
    LANGUAGE sql STABLE
    AS $$SELECT 0$$;


--
-- Name: number_of(text, text, bigint, bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.number_of(p_root text, p_id text, p_version bigint, p_length bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: open_conversation(text, bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.open_conversation(p_id text, p_last bigint, OUT o_root text, OUT o_version bigint, OUT o_stop bigint, OUT o_length bigint, OUT o_system bigint, OUT o_user bigint, OUT o_assistant bigint, OUT o_framed bigint, OUT o_size bigint, OUT o_parent text, OUT o_base bigint, OUT o_origin bigint, OUT o_title text, OUT o_tags text[], OUT o_created bigint, OUT o_updated bigint, OUT o_erased bigint, OUT o_ids text[], OUT o_bases bigint[], OUT o_origins bigint[], OUT o_versions bigint[], OUT o_frames bytea[], OUT o_names text[], OUT o_values bytea[], OUT o_first bigint, OUT o_bodies text[], OUT o_owner text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
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


--
-- Name: put_records(text, text, text[], text[], bytea[], bigint[]); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.put_records(p_root text, p_id text, p_kinds text[], p_names text[], p_values bytea[], p_hashes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: shift(); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.shift() RETURNS bigint
    LANGUAGE sql STABLE
    AS $$SELECT 0::bigint$$;


--
-- Name: take_lease(text, text, text, bigint); Type: FUNCTION; Schema: palaver; Owner: -
--

CREATE FUNCTION palaver.take_lease(p_root text, p_id text, p_holder text, p_lasts bigint, OUT holder text, OUT token bigint, OUT expires bigint, OUT remaining bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: conversations; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.conversations (
    size bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    lease_token bigint DEFAULT 0 NOT NULL,
    lease_expires bigint DEFAULT 0 NOT NULL,
    version integer NOT NULL,
    stop integer NOT NULL,
    length integer NOT NULL,
    n_system integer NOT NULL,
    n_user integer NOT NULL,
    n_assistant integer NOT NULL,
    framed integer NOT NULL,
    base integer NOT NULL,
    origin integer NOT NULL,
    erased integer DEFAULT 0 NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    parent text COLLATE pg_catalog."C",
    title text,
    lease_holder text,
    tags text[] NOT NULL,
    hash bigint,
    root text NOT NULL COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    span bigint GENERATED ALWAYS AS ((updated >> 12)) STORED NOT NULL
);


--
-- Name: indexing; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.indexing (
    indexed bigint NOT NULL,
    node integer DEFAULT 0 NOT NULL,
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: journal; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.journal (
    number bigint NOT NULL,
    at bigint NOT NULL,
    attempt bigint NOT NULL,
    version integer NOT NULL,
    first integer NOT NULL,
    count integer NOT NULL,
    stop integer NOT NULL,
    conversation text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    key text COLLATE pg_catalog."C",
    data text,
    frame bytea,
    hash bigint,
    root text NOT NULL COLLATE pg_catalog."C",
    node integer DEFAULT 0 NOT NULL
);


--
-- Name: messages; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.messages (
    "time" bigint NOT NULL,
    hash bigint NOT NULL,
    seq integer NOT NULL,
    ordinal integer NOT NULL,
    n_system integer NOT NULL,
    n_user integer NOT NULL,
    n_assistant integer NOT NULL,
    replaces integer,
    role smallint NOT NULL,
    conversation text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    root text NOT NULL COLLATE pg_catalog."C",
    version integer,
    node integer,
    number bigint,
    at bigint,
    attempt bigint
);


--
-- Name: names; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.names (
    id text NOT NULL COLLATE pg_catalog."C",
    root text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: records; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.records (
    conversation text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    hash bigint,
    root text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: store; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.store (
    version integer NOT NULL,
    shift bigint NOT NULL
);


--
-- Name: words; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.words (
    "time" bigint NOT NULL,
    seq integer NOT NULL,
    conversation text NOT NULL COLLATE pg_catalog."C",
    words tsvector NOT NULL,
    reason text,
    root text NOT NULL COLLATE pg_catalog."C"
);


--
-- Data for Name: conversations; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.conversations VALUES (13, 1700000000001, 1700000000040, 2, 1795124333473, 24, 17, 17, 2, 8, 6, 23, 0, 0, 2, 'talk', NULL, 'Tea or coffee? ☕', 'worker 2', '{kitchen,茶}', 3457753554763734911, 'talk', NULL, DEFAULT);
INSERT INTO palaver.conversations VALUES (0, 1700000000042, 1700000000042, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'empty', NULL, NULL, NULL, '{}', -6161011622388920170, 'empty', NULL, DEFAULT);
INSERT INTO palaver.conversations VALUES (2, 1700000000000, 1700000000000, 0, 0, 0, 2, 2, 0, 1, 1, 0, 0, 0, 0, 'imported', NULL, NULL, NULL, '{}', 3690492660488778828, 'imported', NULL, DEFAULT);
INSERT INTO palaver.conversations VALUES (13, 1700000000025, 1700000000026, 0, 0, 1, 14, 14, 2, 6, 5, 0, 13, 1, 2, 'deeper', 'fork', NULL, NULL, '{deep}', 6894060852897379680, 'talk', NULL, DEFAULT);
INSERT INTO palaver.conversations VALUES (12, 1700000000020, 1700000000024, 0, 0, 2, 14, 14, 2, 6, 5, 2, 12, 15, 2, 'fork', 'talk', 'Tea or coffee? ☕', NULL, '{kitchen,茶}', -4729355458782276431, 'talk', NULL, DEFAULT);


--
-- Data for Name: indexing; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.indexing VALUES (3225419776, 0, '');


--
-- Data for Name: journal; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.journal VALUES (3162505216, 1700000000001, 6055206204258629167, 0, 0, 2, 2, 'talk', 'create', NULL, NULL, '\x7b2267223a327d', 2784462108122861886, 'talk', 0);
INSERT INTO palaver.journal VALUES (3170893824, 1700000000003, 4703441153442404729, 2, 3, 1, 4, 'talk', 'append', 'first key', NULL, NULL, 6462729390530834186, 'talk', 0);
INSERT INTO palaver.journal VALUES (3179282432, 1700000000005, 9091390842239239292, 4, 5, 3, 8, 'talk', 'append', 'second key', NULL, NULL, -5594799773164441100, 'talk', 0);
INSERT INTO palaver.journal VALUES (3187671040, 1700000000008, 372583414249968932, 6, 9, 2, 11, 'talk', 'insert', NULL, NULL, '\x7b2272223a5b302c362c345d2c2273223a31312c226c223a5b302c365d2c226f223a392c2267223a31312c2262223a352c226e223a5b5b302c312c312c302c305d2c5b392c31312c302c312c315d2c5b5b302c362c305d2c5b302c362c315d5d2c5b312c392c302c342c335d2c5b5b302c362c325d2c5b302c362c335d5d5d2c2265223a5b302c6e756c6c2c6e756c6c2c6e756c6c2c302c392c302c313730303030303030303030372c22494e53455254222c312c7b7d2c6e756c6c5d7d', -7009164178781088922, 'talk', 0);
INSERT INTO palaver.journal VALUES (3191865344, 1700000000010, 7638453460162626713, 7, 11, 1, 12, 'talk', 'replace', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c2267223a31322c2262223a362c226e223a5b5b31312c31322c312c302c305d2c5b5b302c372c305d2c5b302c362c315d5d2c5b5b302c372c315d2c5b302c362c335d5d5d2c2265223a5b312c5b302c365d2c5b302c365d2c5b302c362c345d2c31312c31312c392c313730303030303030303030392c225245504c414345222c302c7b7d2c6e756c6c5d7d', -3309753878710739322, 'talk', 0);
INSERT INTO palaver.journal VALUES (3196059648, 1700000000011, 217341361944060451, 8, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31322c2262223a372c226e223a5b5b322c332c302c302c315d5d7d', 6805961471104057775, 'talk', 0);
INSERT INTO palaver.journal VALUES (3200253952, 1700000000012, 4381638927614942978, 9, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b226c61746572223a5b302c392c305d2c2270696e223a5b302c382c305d7d2c2267223a31322c2262223a382c226e223a5b5b392c31302c302c312c305d5d7d', 461142505357483580, 'talk', 0);
INSERT INTO palaver.journal VALUES (3204448256, 1700000000013, 5324044730985025190, 10, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31322c2262223a397d', -487459761464366829, 'talk', 0);
INSERT INTO palaver.journal VALUES (3208642560, 1700000000014, 210245499817664418, 11, 12, 0, 12, 'talk', 'team_task', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31307d', 90496109277241143, 'talk', 0);
INSERT INTO palaver.journal VALUES (3212836864, 1700000000016, 4836986231041986620, 12, 12, 0, 12, 'talk', 'truncate', NULL, NULL, '\x7b2272223a5b302c31322c345d2c2273223a31322c226c223a5b302c31325d2c226f223a31322c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31312c226e223a5b5b31312c31322c312c302c305d2c5b31302c31312c302c302c315d2c5b322c392c302c332c335d2c5b5b302c31322c315d2c5b302c31322c325d5d2c5b5b302c31322c305d2c5b302c31322c335d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31322c31312c313730303030303030303031352c225452554e43415445222c6e756c6c2c7b7d2c6e756c6c5d7d', 4006844855254681274, 'talk', 0);
INSERT INTO palaver.journal VALUES (3217031168, 1700000000017, 1382664469602762310, 13, 12, 0, 11, 'talk', 'rollback', NULL, NULL, '\x7b2272223a5b302c362c345d2c2273223a31312c226c223a5b302c365d2c226f223a392c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31322c2264223a5b31322c66616c73655d7d', -2208027469047042866, 'talk', 0);
INSERT INTO palaver.journal VALUES (3221225472, 1700000000018, 3767468099463203513, 14, 12, 0, 12, 'talk', 'redo', NULL, NULL, '\x7b2272223a5b302c31322c345d2c2273223a31322c226c223a5b302c31325d2c226f223a31322c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31317d', -2259652329154529489, 'talk', 0);
INSERT INTO palaver.journal VALUES (3225419776, 1700000000019, 85966846756277343, 15, 12, 0, 12, 'talk', 'undo', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31302c2264223a5b31342c66616c73655d7d', -3555998391762663635, 'talk', 0);
INSERT INTO palaver.journal VALUES (3233808384, 1700000000020, 3575038578882678438, 0, 12, 0, 12, 'fork', 'fork', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31327d', 3587675566415536642, 'talk', 0);
INSERT INTO palaver.journal VALUES (3246391296, 1700000000024, 3759457092202155052, 2, 13, 1, 14, 'fork', 'replace', NULL, NULL, '\x7b2272223a5b312c322c365d2c2273223a31342c226c223a5b312c325d2c226f223a31332c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31342c2262223a312c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b5b312c322c305d2c5b312c322c315d5d2c5b5b302c372c305d2c5b312c322c325d5d2c5b31322c31332c302c302c315d2c5b5b302c362c335d2c5b312c322c345d5d2c5b5b312c322c335d2c5b312c322c355d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31332c31312c313730303030303030303032332c225245504c414345222c312c7b7d2c6e756c6c5d7d', 8523388118158190633, 'talk', 0);
INSERT INTO palaver.journal VALUES (3250585600, 1700000000025, 5306741045978202521, 0, 13, 0, 13, 'deeper', 'fork', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31337d', 3199952385090610336, 'talk', 0);
INSERT INTO palaver.journal VALUES (3258974208, 1700000000028, 1855974031493473918, 17, 13, 2, 15, 'talk', 'merge', NULL, NULL, '\x7b2272223a5b302c31372c375d2c2273223a31342c226c223a5b302c31375d2c226f223a31332c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31362c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b5b302c31372c305d2c5b302c31372c315d5d2c5b5b302c372c305d2c5b302c31372c325d5d2c5b312c392c302c342c335d2c5b31322c31332c302c312c305d2c5b5b302c31372c345d2c5b302c31372c355d5d2c5b5b302c31372c335d2c5b302c31372c365d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31332c31312c313730303030303030303032372c224d45524745222c6e756c6c2c7b7d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', -2420335876003899249, 'talk', 0);
INSERT INTO palaver.journal VALUES (3263168512, 1700000000030, 2165944211449316181, 18, 15, 0, 15, 'talk', 'filter', NULL, NULL, '\x7b2272223a5b302c31382c31305d2c2273223a31342c226c223a5b302c31385d2c226f223a31352c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31372c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b312c352c302c322c325d2c5b5b302c31382c315d2c5b302c31382c325d5d2c5b5b302c31382c305d2c5b302c31382c335d5d2c5b362c372c302c302c315d2c5b382c392c302c312c305d2c5b5b302c31382c355d2c5b302c31382c365d5d2c5b31322c31332c302c312c305d2c5b5b302c31382c375d2c5b302c31382c385d5d2c5b5b302c31382c345d2c5b302c31382c395d5d5d2c2265223a5b332c5b302c31375d2c5b302c365d2c5b302c31372c375d2c31342c31352c31332c313730303030303030303032392c2246494c544552222c6e756c6c2c7b22666f726b223a327d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', -6134634466162080634, 'talk', 0);
INSERT INTO palaver.journal VALUES (3267362816, 1700000000032, 267013180202176960, 19, 15, 0, 15, 'talk', 'clear', NULL, NULL, '\x7b2273223a31352c226c223a5b302c31395d2c226f223a31352c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31382c2265223a5b342c5b302c31385d2c5b302c31385d2c5b302c31382c31305d2c31342c31352c31352c313730303030303030303033312c22434c454152222c6e756c6c2c7b22666f726b223a327d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', -5109314554486372658, 'talk', 0);
INSERT INTO palaver.journal VALUES (3271557120, 1700000000033, 8174630797539599978, 20, 15, 0, 12, 'talk', 'restore', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31352c2262223a31392c2264223a5b31392c66616c73655d7d', 438688256111759099, 'talk', 0);
INSERT INTO palaver.journal VALUES (3275751424, 1700000000034, 949286006392155831, 21, 15, 1, 16, 'talk', 'append', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31352c2262223a32307d', -4410441563059860984, 'talk', 0);
INSERT INTO palaver.journal VALUES (3279945728, 1700000000036, 6020766445599689995, 22, 16, 0, 16, 'talk', 'erase', NULL, '{"messages": ["u17"]}', '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31362c2262223a32307d', -1095451318122092589, 'talk', 0);
INSERT INTO palaver.journal VALUES (3296722944, 1700000000038, 934312397306164805, 23, 16, 0, 16, 'talk', 'erase', NULL, '{"messages": ["u2", "a14"]}', '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31362c2262223a32307d', 3776406545510951692, 'talk', 0);
INSERT INTO palaver.journal VALUES (3330277376, 1700000000040, 4292534178615575935, 24, 16, 1, 17, 'talk', 'append', 'third key', NULL, NULL, -7659367944100711042, 'talk', 0);
INSERT INTO palaver.journal VALUES (3342860288, 1700000000042, 7666624660022945272, 0, 0, 0, 0, 'empty', 'create', NULL, NULL, '\x7b7d', 7811664947370031176, 'empty', 0);
INSERT INTO palaver.journal VALUES (3351248896, 1700000000000, 1906569078205079732, 0, 0, 2, 2, 'imported', 'import', NULL, NULL, '\x7b2274223a2247726565742e222c2267223a327d', -958831443297656433, 'imported', 0);


--
-- Data for Name: messages; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.messages VALUES (0, -7550504690963971486, 0, 0, 0, 0, 0, NULL, 0, 'talk', 's1', '{"role":"system","content":"says s1","id":"s1","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, 7635316238625290915, 2, 0, 1, 1, 0, NULL, 2, 'talk', 'a3', '{"role":"assistant","content":"Grüße, 喝茶吧 🍵\n\"quoted\" \\ ","id":"a3","timestamp":0,"metadata":{"n":[1,null,2.5]}}', 'talk', 1, 0, 3166699520, 1700000000002, 1410109297332317985);
INSERT INTO palaver.messages VALUES (5, 3074807499703427119, 3, 1, 1, 1, 1, NULL, 1, 'talk', 'u4', '{"role":"user","content":"says u4","id":"u4","timestamp":5}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (77, 2991754316878701760, 4, 1, 1, 2, 1, NULL, 2, 'talk', 'a5', '{"role":"assistant","content":[{"type":"step-start","id":"a5-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"680fa031-1e36-54c8-823f-474cff62f6b0","snapshot":"s"},{"type":"reasoning","id":"a5-1","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"680fa031-1e36-54c8-823f-474cff62f6b0","text":"hm","time":{"start":1,"end":2},"metadata":{"signature":"x"}},{"type":"text","id":"a5-2","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"680fa031-1e36-54c8-823f-474cff62f6b0","text":"I look.","ignored":true},{"type":"tool-call","id":"a5-3","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"680fa031-1e36-54c8-823f-474cff62f6b0","callID":"c1","tool":"look","input":{"at":"kettle"},"raw":"{\"at\": \"kettle\"}"},{"type":"step-finish","id":"a5-4","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"680fa031-1e36-54c8-823f-474cff62f6b0","reason":"tool","tokens":{"input":10,"output":2,"reasoning":0,"cache":{"read":3,"write":0}},"cost":0.25}],"id":"a5","timestamp":77}', 'talk', 3, 0, 3175088128, 1700000000004, 3626277024618924353);
INSERT INTO palaver.messages VALUES (77, -6874043643765867595, 5, 0, 1, 2, 2, NULL, 3, 'talk', 't6', '{"role":"tool","content":[{"type":"tool","id":"t6-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"34841586-c70d-5c4f-a3ee-5ae4b12ac5ec","callID":"c1","tool":"look","state":{"status":"completed","input":{"at":"kettle"},"output":"it boils","title":"look","metadata":{},"time":{"start":1,"end":4}}}],"id":"t6","timestamp":77}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, -7076221498840594529, 6, 2, 1, 2, 2, NULL, 2, 'talk', 'a7', '{"role":"assistant","content":"says a7","id":"a7","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, 4648313486694539915, 7, 2, 1, 2, 3, NULL, 1, 'talk', 'u8', '{"role":"user","content":"says u8","id":"u8","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (77, 2628918186087554633, 8, 3, 1, 3, 3, NULL, 1, 'talk', 'u9', '{"role":"user","content":[{"type":"file","id":"u9-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","mime":"image/png","url":"data:,x","filename":"f","source":{"type":"file","path":"a.md","text":{"value":"v","start":0,"end":1}}},{"type":"subtask","id":"u9-1","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","prompt":"p","description":"d","agent":"a"},{"type":"agent","id":"u9-2","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","name":"max"},{"type":"snapshot","id":"u9-3","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","snapshot":"s"},{"type":"patch","id":"u9-4","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","hash":"h","files":["a","b"]},{"type":"retry","id":"u9-5","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","attempt":1,"error":{"e":1},"time":{"created":3}},{"type":"compaction","id":"u9-6","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"59b02150-bdf6-5864-a08a-677959b83906","auto":true},{"id":"u9-7","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","type":"of-the-future","what":{"is":["this"]}}],"id":"u9","timestamp":77}', 'talk', 5, 0, 3183476736, 1700000000006, 310167972555205994);
INSERT INTO palaver.messages VALUES (0, -554523559613482822, 9, 4, 1, 4, 3, NULL, 1, 'talk', 'u10', '{"role":"user","content":"says u10","id":"u10","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (1, 8956815173834448295, 10, 3, 1, 5, 3, NULL, 2, 'talk', 'a11', '{"role":"assistant","content":"says a11","id":"a11","timestamp":1}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, -918854137727441770, 11, 1, 1, 5, 4, 0, 0, 'talk', 's12', '{"role":"system","content":"says s12","id":"s12","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, 3160261575134992186, 12, 5, 2, 5, 4, NULL, 1, 'talk', 'u13', '{"role":"user","content":"the parent goes on","id":"u13","timestamp":0}', 'talk', 16, 0, 3238002688, 1700000000021, 2862729372932726595);
INSERT INTO palaver.messages VALUES (0, 1876159638611451545, 13, 5, 2, 5, 5, 9, 1, 'fork', 'u15', '{"role":"user","content":"says u15","id":"u15","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, -6399577619740222524, 13, 5, 2, 5, 5, NULL, 1, 'deeper', 'u16', '{"role":"user","content":"says u16","id":"u16","timestamp":0}', 'talk', 1, 0, 3254779904, 1700000000026, 31012793035567830);
INSERT INTO palaver.messages VALUES (0, -7098617957564731992, 13, 6, 2, 6, 4, 9, 1, 'talk', 'u15', '{"role":"user","content":"says u15","id":"u15","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, 8474674476442290046, 15, 7, 2, 7, 5, NULL, 1, 'talk', 'u17', '{"role":"user","content":"","id":"u17","timestamp":0,"metadata":{"palaver.erased":1700000000035}}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (1, -7985140032659827954, 1, 0, 1, 0, 0, NULL, 1, 'talk', 'u2', '{"role":"user","content":"","id":"u2","timestamp":1,"metadata":{"palaver.erased":1700000000037}}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, 1850679929890447305, 12, 4, 2, 5, 4, NULL, 2, 'fork', 'a14', '{"role":"assistant","content":"","id":"a14","timestamp":0,"metadata":{"palaver.erased":1700000000037}}', 'talk', 1, 0, 3242196992, 1700000000022, 6590791041616144334);
INSERT INTO palaver.messages VALUES (0, -1242194052650611859, 14, 4, 2, 7, 4, NULL, 2, 'talk', 'a14', '{"role":"assistant","content":"","id":"a14","timestamp":0,"metadata":{"palaver.erased":1700000000037}}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (0, -506868078725159060, 16, 5, 2, 8, 5, NULL, 2, 'talk', 'a18', '{"role":"assistant","content":"says a18","id":"a18","timestamp":0}', 'talk', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (1700000000000, -6842242546853525855, 0, 0, 0, 0, 0, NULL, 1, 'imported', 'msg-1', '{"role":"user","content":"Hi","id":"msg-1","timestamp":1700000000000,"metadata":{"palaver.snapshot":{"message":{"extra":[1]}}},"speaker":{"roleId":"u","roleName":"U","type":"human","extra":{"more":1}}}', 'imported', NULL, NULL, NULL, NULL, NULL);
INSERT INTO palaver.messages VALUES (1700000000000, 9011053379908150345, 1, 0, 0, 1, 0, NULL, 2, 'imported', 'msg-2', '{"role":"assistant","content":"[NEXT: u] Hello","id":"msg-2","timestamp":1700000000000,"metadata":{"palaver.snapshot":{"message":{},"routing":"full"}},"speaker":{"roleId":"max","roleName":"Max","type":"ai"},"routing":{"extra":{"x":1}}}', 'imported', NULL, NULL, NULL, NULL, NULL);


--
-- Data for Name: names; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.names VALUES ('talk', 'talk');
INSERT INTO palaver.names VALUES ('fork', 'talk');
INSERT INTO palaver.names VALUES ('deeper', 'talk');
INSERT INTO palaver.names VALUES ('empty', 'empty');
INSERT INTO palaver.names VALUES ('imported', 'imported');


--
-- Data for Name: records; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.records VALUES ('talk', 'names', 'fork', '\x5b5b31332c2031335d2c205b31322c2031345d5d', -4257539561763023377, 'talk');
INSERT INTO palaver.records VALUES ('talk', 'draft', 'd1', '\x68616c6620612073656e0074656e636520ff', 1235911597346499185, 'talk');
INSERT INTO palaver.records VALUES ('talk', 'ledger', 'c1', '\x7b22737461747573223a2022636f6d706c65746564222c2022696e707574223a207b226174223a20226b6574746c65227d2c20226f7574707574223a2022697420626f696c73222c20227469746c65223a20226c6f6f6b222c20226d65746164617461223a207b7d2c202274696d65223a207b227374617274223a20312c2022656e64223a20347d7d', 174076217261422960, 'talk');
INSERT INTO palaver.records VALUES ('fork', 'intent', '名', '\x', -9218126524457000387, 'talk');


--
-- Data for Name: store; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.store VALUES (9, 0);


--
-- Data for Name: words; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.words VALUES (0, 0, 'talk', '''s1'' ''says''', NULL, 'talk');
INSERT INTO palaver.words VALUES (0, 2, 'talk', '''grusse'' ''quoted'' ''ue590a7'' ''ue5969d'' ''ue88cb6''', NULL, 'talk');
INSERT INTO palaver.words VALUES (5, 3, 'talk', '''says'' ''u4''', NULL, 'talk');
INSERT INTO palaver.words VALUES (77, 4, 'talk', '''at'' ''hm'' ''i'' ''kettle'' ''look''', NULL, 'talk');
INSERT INTO palaver.words VALUES (77, 5, 'talk', '''boils'' ''it'' ''look''', NULL, 'talk');
INSERT INTO palaver.words VALUES (0, 6, 'talk', '''a7'' ''says''', NULL, 'talk');
INSERT INTO palaver.words VALUES (0, 7, 'talk', '''says'' ''u8''', NULL, 'talk');
INSERT INTO palaver.words VALUES (77, 8, 'talk', '', NULL, 'talk');
INSERT INTO palaver.words VALUES (0, 9, 'talk', '''says'' ''u10''', NULL, 'talk');
INSERT INTO palaver.words VALUES (1, 10, 'talk', '''a11'' ''says''', NULL, 'talk');
INSERT INTO palaver.words VALUES (0, 11, 'talk', '''s12'' ''says''', NULL, 'talk');
INSERT INTO palaver.words VALUES (1, 1, 'talk', '', NULL, 'talk');


--
-- Name: conversations conversations_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (root, id);


--
-- Name: indexing indexing_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.indexing
    ADD CONSTRAINT indexing_pkey PRIMARY KEY (node, owner);


--
-- Name: journal journal_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (root, conversation, version);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (root, conversation, seq);


--
-- Name: names names_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.names
    ADD CONSTRAINT names_pkey PRIMARY KEY (id);


--
-- Name: records records_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (root, conversation, kind, name);


--
-- Name: words words_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.words
    ADD CONSTRAINT words_pkey PRIMARY KEY (root, conversation, seq);


--
-- Name: conversations_owner; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX conversations_owner ON palaver.conversations USING btree (owner, span) WHERE (owner IS NOT NULL);


--
-- Name: conversations_parent; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX conversations_parent ON palaver.conversations USING btree (parent) WHERE (parent IS NOT NULL);


--
-- Name: conversations_span; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX conversations_span ON palaver.conversations USING btree (span DESC);


--
-- Name: journal_frames; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX journal_frames ON palaver.journal USING btree (conversation, version) WHERE (frame IS NOT NULL);


--
-- Name: journal_key; Type: INDEX; Schema: palaver; Owner: -
--

CREATE UNIQUE INDEX journal_key ON palaver.journal USING btree (root, conversation, key) WHERE (key IS NOT NULL);


--
-- Name: journal_number; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX journal_number ON palaver.journal USING btree (node, number);


--
-- Name: messages_id; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX messages_id ON palaver.messages USING btree (conversation, id);


--
-- Name: messages_number; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX messages_number ON palaver.messages USING btree (node, number) WHERE (number IS NOT NULL);


--
-- Name: messages_role; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX messages_role ON palaver.messages USING btree (conversation, role, ordinal);


--
-- Name: messages_time; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX messages_time ON palaver.messages USING btree (conversation, "time");


--
-- Name: words_reason; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX words_reason ON palaver.words USING btree (conversation, seq) WHERE (reason IS NOT NULL);


--
-- Name: words_words; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX words_words ON palaver.words USING gin (words) WITH (fastupdate=off);


--
-- PostgreSQL database dump complete
--


