-- llm's older tables: a row for each call of a model
create table conversations (id text primary key, name text, model text);
create table responses (
  id text primary key, model text, prompt text, system text, prompt_json text, options_json text,
  response text, response_json text, conversation_id text, duration_ms integer,
  datetime_utc text, input_tokens integer, output_tokens integer, token_details text,
  schema_id text, resolved_model text, reasoning text
);
create table attachments (id text primary key, type text, path text, url text, content blob);
create table prompt_attachments (response_id text, attachment_id text, "order" integer);
create table fragments (id integer primary key, hash text, content text, datetime_utc text, source text);
create table prompt_fragments (response_id text, fragment_id integer, "order" integer);
create table system_fragments (response_id text, fragment_id integer, "order" integer);
create table tool_calls (id integer primary key, response_id text, tool_id integer, name text, arguments text, tool_call_id text);
create table tool_results (id integer primary key, response_id text, tool_id integer, name text, output text, tool_call_id text, instance_id integer, exception text);
create table tool_results_attachments (tool_result_id integer, attachment_id text, "order" integer);

insert into conversations values ('01jtea', 'Tea?', 'gpt-5-mini'), ('01jnew', 'Newer', 'gpt-5-mini');
insert into responses values
  ('01r1', 'gpt-5-mini', 'What time is it, and what does it say?', 'Be brief.', null, '{"temperature": 0.2}', '', '{}', '01jtea', 1500, '2026-03-04T10:00:00.000000+00:00', 50, 9, '{"prompt_tokens_details": {"cached_tokens": 20}}', null, 'gpt-5-mini-2026', 'A clock would help.'),
  ('01r2', 'gpt-5-mini', '', 'Be brief.', null, '{}', 'Four. It says tea.', '{}', '01jtea', 900, '2026-03-04T10:00:02.000000+00:00', 80, 7, null, null, null, null),
  ('01r3', 'orca-mini', 'Alone', null, null, '{}', 'Yes.', null, null, null, '2026-03-05T10:00:00', null, null, null, 's1', null, null),
  ('01r4', 'gpt-5-mini', 'Newer', null, null, '{}', 'Yes.', null, '01jnew', null, '2026-03-05T11:00:00', null, null, null, null, null, null);
insert into attachments values
  ('a1', 'image/png', null, null, x'89504e47'), ('a2', 'text/plain', '/home/ada/my label.txt', null, null),
  ('a3', 'image/jpeg', null, 'https://example.com/cup.jpg', null);
insert into prompt_attachments values ('01r1', 'a2', 1), ('01r1', 'a1', 0), ('01r1', 'gone', 2);
insert into fragments values (1, 'h1', 'The label: TEA', null, null), (2, 'h2', ' Speak English. ', null, null);
insert into prompt_fragments values ('01r1', 1, 0);
insert into system_fragments values ('01r1', 2, 0), ('01r2', 2, 0);
insert into tool_calls values
  (1, '01r1', 1, 'clock', '{"zone": "UTC"}', 'call_c'), (2, '01r1', 2, 'ring', '{}', null),
  (3, '01r1', 3, 'look', '{}', 'call_l');
insert into tool_results values
  (1, '01r2', 1, 'clock', '16:00', 'call_c', null, null),
  (2, '01r2', 2, 'ring', 'Error: no bell', null, null, 'BellError: no bell'),
  (3, '01r2', 3, 'look', '', 'call_l', null, null);
insert into tool_results_attachments values (3, 'a3', 0);
