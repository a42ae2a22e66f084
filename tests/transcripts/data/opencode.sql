-- the columns of opencode's own tables that matter, and one session with a damaged neighbour
create table session (
  id text primary key, project_id text not null, parent_id text, slug text not null,
  directory text not null, title text not null, version text not null,
  time_created integer not null, time_updated integer not null
);
create table message (
  id text primary key, session_id text not null, time_created integer not null,
  time_updated integer not null, data text not null
);
create table part (
  id text primary key, message_id text not null, session_id text not null,
  time_created integer not null, time_updated integer not null, data text not null
);
create table session_message (
  id text primary key, session_id text not null, type text not null, seq integer not null,
  data text not null
);
create index message_session_idx on message (session_id, time_created, id);
create index part_session_idx on part (session_id);

insert into session values
  ('ses_41aa', 'p1', null, 'lid', '/home/ada/teapot', 'The loose lid', '1.9.2', 1772000000000, 0),
  ('ses_41ab', 'p1', 'ses_41aa', 'hinge', '/home/ada/teapot', 'Every hinge', '1.9.2', 1772000005000, 0),
  ('ses_41ac', 'p1', null, 'new', '/home/ada/teapot', 'Newer', '2.0.0', 1772000006000, 0);
insert into message values
  ('msg_02', 'ses_41aa', 1772000002000, 0, '{"role":"assistant","parentID":"msg_01","agent":"build","modelID":"claude-opus-4-6","providerID":"anthropic","path":{"cwd":"/home/ada/teapot","root":"/home/ada/teapot"},"cost":0.02,"tokens":{"input":10,"output":20,"reasoning":0,"cache":{"read":5,"write":1}},"time":{"created":1772000002000,"completed":1772000008000},"finish":"stop"}'),
  ('msg_01', 'ses_41aa', 1772000001000, 0, '{"role":"user","time":{"created":1772000001000},"agent":"build"}'),
  ('msg_03', 'ses_41ab', 1772000005000, 0, '{"role":"user","time":{"created":1772000005000}}'),
  ('msg_04', 'ses_41ab', 1772000005100, 0, '{"role":"user","time":{"crea');
insert into part values
  ('prt_01', 'msg_01', 'ses_41aa', 0, 0, '{"type":"text","text":"Why is the lid loose?"}'),
  ('prt_02', 'msg_02', 'ses_41aa', 0, 0, '{"type":"step-start"}'),
  ('prt_03', 'msg_02', 'ses_41aa', 0, 0, '{"type":"tool","callID":"toolu_a","tool":"read","state":{"status":"completed","input":{"filePath":"lid.py"},"output":"","title":"lid.py","metadata":{},"time":{"start":1772000003000,"end":1772000003100}}}'),
  ('prt_04', 'msg_02', 'ses_41aa', 0, 0, '{"type":"tool","callID":"toolu_b","tool":"bash","state":{"status":"pending","input":{},"raw":""}}'),
  ('prt_05', 'msg_02', 'ses_41aa', 0, 0, '{"type":"text","text":"Nothing holds it."}'),
  ('prt_06', 'msg_02', 'ses_41aa', 0, 0, '{"type":"text"}'),
  ('prt_07', 'msg_03', 'ses_41ab', 0, 0, '{"type":"text","text":"Find every hinge."}'),
  ('prt_08', 'msg_99', 'ses_41ab', 0, 0, '{"type":"text","text":"Whose am I?"}');
insert into session_message values ('m1', 'ses_41ac', 'user', 1, '{}');
