-- llm's newer tables: threads point at messages, messages at their parents
create table threads (id text primary key, name text, tip_message_hash text, forked_from text, datetime_utc text);
create table turns (
  id text primary key, thread_id text, parent_message_hash text, tip_message_hash text, model text,
  resolved_model text, options_json text, schema_id text, input_tokens integer,
  output_tokens integer, token_details text, duration_ms integer, datetime_utc text,
  response_json text
);
create table messages (hash text primary key, parent_hash text, role text, provider_metadata text);
create table parts (
  id integer primary key, message_hash text, position integer, type text, tool_name text,
  text text, payload text
);
create table if not exists attachments (id text primary key, type text, path text, url text, content blob);
create table if not exists fragments (id integer primary key, hash text, content text, datetime_utc text, source text);

insert into messages values
  ('b2:00', null, 'system', null), ('b2:01', 'b2:00', 'user', null), ('b2:02', 'b2:01', 'assistant', '{"openai": {"id": "resp_1"}}'),
  ('b2:03', 'b2:02', 'tool', null), ('b2:04', 'b2:03', 'assistant', null),
  ('b2:05', 'b2:04', 'user', null), ('b2:06', 'b2:04', 'wizard', null), ('b2:07', 'b2:06', 'user', null),
  ('b2:08', 'b2:lost', 'user', null);
insert into attachments values ('t1', 'image/png', null, null, x'89504e47');
insert into fragments values (7, 'h7', 'The label: TEA', null, null);
insert into parts (message_hash, position, type, tool_name, text, payload) values
  ('b2:00', 0, 'text', null, 'Be brief.', null),
  ('b2:01', 0, 'text', null, null, '{"text_ref": [{"fragment": 7}, {"literal": "\nWhat time is it?"}, {"fragment": 99}]}'),
  ('b2:01', 1, 'attachment', null, null, '{"attachment": {"id": "t1"}}'),
  ('b2:02', 0, 'reasoning', null, '', '{"redacted": true, "provider_metadata": {"openai": {"encrypted_content": "gAAAA=="}}}'),
  ('b2:02', 1, 'tool_call', 'clock', null, '{"name": "clock", "arguments": {"zone": "UTC"}, "tool_call_id": "call_c"}'),
  ('b2:02', 2, 'tool_call', 'web', null, '{"name": "web", "arguments": {}, "server_executed": true}'),
  ('b2:03', 0, 'tool_result', 'clock', null, '{"name": "clock", "output": "16:00", "tool_call_id": "call_c", "attachments": [{"id": "t1"}]}'),
  ('b2:03', 1, 'tool_result', 'ring', null, '{"name": "ring", "output": "", "exception": "no bell"}'),
  ('b2:04', 0, 'text', null, 'Four.', null),
  ('b2:05', 0, 'text', null, 'Thanks.', null),
  ('b2:06', 0, 'text', null, 'Abracadabra.', null),
  ('b2:07', 0, 'text', null, 'And tea?', null),
  ('b2:08', 0, 'text', null, 'Where did I come from?', '{broken');
insert into threads values
  ('01jnew', 'What time is it?', 'b2:05', null, '2026-08-01T10:00:00+00:00'),
  ('01jfork', 'And tea?', 'b2:07', '01jnew', '2026-08-01T11:00:00+00:00'),
  ('01jdamaged', null, 'b2:08', null, '2026-08-01T12:00:00+00:00'),
  ('01jempty', 'Empty', null, null, '2026-08-01T13:00:00+00:00');
insert into turns values
  ('01t1', '01jnew', 'b2:01', 'b2:02', 'gpt-5-mini', null, '{"temperature": 0.2}', 's1', 50, 9, '{"completion_tokens_details": {"reasoning_tokens": 4}}', 1500, '2026-08-01T10:00:01+00:00', null),
  ('01t2', '01jnew', 'b2:03', 'b2:04', 'gpt-5-mini', 'gpt-5-mini-2026', null, null, 80, 7, null, 900, '2026-08-01T10:00:05+00:00', null);
