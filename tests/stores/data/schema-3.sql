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
    hash bigint
);


--
-- Name: indexing; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.indexing (
    indexed bigint NOT NULL
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
    hash bigint
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
    body text NOT NULL
);


--
-- Name: records; Type: TABLE; Schema: palaver; Owner: -
--

CREATE TABLE palaver.records (
    conversation text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    hash bigint
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
    reason text
);


--
-- Data for Name: conversations; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.conversations VALUES (13, 1700000000001, 1700000000040, 2, 1794832715274, 24, 17, 17, 2, 8, 6, 23, 0, 0, 2, 'talk', NULL, 'Tea or coffee? ☕', 'worker 2', '{kitchen,茶}', 3457753554763734911);
INSERT INTO palaver.conversations VALUES (0, 1700000000042, 1700000000042, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'empty', NULL, NULL, NULL, '{}', -6161011622388920170);
INSERT INTO palaver.conversations VALUES (12, 1700000000020, 1700000000024, 0, 0, 2, 14, 14, 2, 6, 5, 2, 12, 15, 2, 'fork', 'talk', 'Tea or coffee? ☕', NULL, '{kitchen,茶}', -4729355458782276431);
INSERT INTO palaver.conversations VALUES (2, 1700000000000, 1700000000000, 0, 0, 0, 2, 2, 0, 1, 1, 0, 0, 0, 0, 'imported', NULL, NULL, NULL, '{}', 3690492660488778828);
INSERT INTO palaver.conversations VALUES (13, 1700000000025, 1700000000026, 0, 0, 1, 14, 14, 2, 6, 5, 0, 13, 1, 2, 'deeper', 'fork', NULL, NULL, '{deep}', 6894060852897379680);


--
-- Data for Name: indexing; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.indexing VALUES (3233808384);


--
-- Data for Name: journal; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.journal VALUES (3162505216, 1700000000001, 555448680428056455, 0, 0, 2, 2, 'talk', 'create', NULL, NULL, '\x7b2267223a327d', 8928211853584101169);
INSERT INTO palaver.journal VALUES (3166699520, 1700000000002, 7689725960619415385, 1, 2, 1, 3, 'talk', 'append', NULL, NULL, NULL, -8627723783581291824);
INSERT INTO palaver.journal VALUES (3170893824, 1700000000003, 4043630324697251794, 2, 3, 1, 4, 'talk', 'append', 'first key', NULL, NULL, -7341953385246331910);
INSERT INTO palaver.journal VALUES (3175088128, 1700000000004, 1459405491178321616, 3, 4, 1, 5, 'talk', 'append', NULL, NULL, NULL, -7006892985646916177);
INSERT INTO palaver.journal VALUES (3183476736, 1700000000005, 3541299099489078363, 4, 5, 3, 8, 'talk', 'append', 'second key', NULL, NULL, -8724739148938166232);
INSERT INTO palaver.journal VALUES (3187671040, 1700000000006, 3652543327678497434, 5, 8, 1, 9, 'talk', 'append', NULL, NULL, NULL, -5350566673550117190);
INSERT INTO palaver.journal VALUES (3191865344, 1700000000008, 6199247513285022779, 6, 9, 2, 11, 'talk', 'insert', NULL, NULL, '\x7b2272223a5b302c362c345d2c2273223a31312c226c223a5b302c365d2c226f223a392c2267223a31312c2262223a352c226e223a5b5b302c312c312c302c305d2c5b392c31312c302c312c315d2c5b5b302c362c305d2c5b302c362c315d5d2c5b312c392c302c342c335d2c5b5b302c362c325d2c5b302c362c335d5d5d2c2265223a5b302c6e756c6c2c6e756c6c2c6e756c6c2c302c392c302c313730303030303030303030372c22494e53455254222c312c7b7d2c6e756c6c5d7d', 8827731312439288078);
INSERT INTO palaver.journal VALUES (3196059648, 1700000000010, 2901595850196018222, 7, 11, 1, 12, 'talk', 'replace', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c2267223a31322c2262223a362c226e223a5b5b31312c31322c312c302c305d2c5b5b302c372c305d2c5b302c362c315d5d2c5b5b302c372c315d2c5b302c362c335d5d5d2c2265223a5b312c5b302c365d2c5b302c365d2c5b302c362c345d2c31312c31312c392c313730303030303030303030392c225245504c414345222c302c7b7d2c6e756c6c5d7d', 887316750921606010);
INSERT INTO palaver.journal VALUES (3200253952, 1700000000011, 2311975896469588512, 8, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31322c2262223a372c226e223a5b5b322c332c302c302c315d5d7d', 5146323426773690073);
INSERT INTO palaver.journal VALUES (3204448256, 1700000000012, 6075414637142722512, 9, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b226c61746572223a5b302c392c305d2c2270696e223a5b302c382c305d7d2c2267223a31322c2262223a382c226e223a5b5b392c31302c302c312c305d5d7d', -2943279719907085222);
INSERT INTO palaver.journal VALUES (3208642560, 1700000000013, 7233992237654247581, 10, 12, 0, 12, 'talk', 'mark', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31322c2262223a397d', 6442562870119602346);
INSERT INTO palaver.journal VALUES (3217031168, 1700000000014, 2260871763799321655, 11, 12, 0, 12, 'talk', 'team_task', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31307d', 2300007241497359903);
INSERT INTO palaver.journal VALUES (3221225472, 1700000000016, 2197344962229221116, 12, 12, 0, 12, 'talk', 'truncate', NULL, NULL, '\x7b2272223a5b302c31322c345d2c2273223a31322c226c223a5b302c31325d2c226f223a31322c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31312c226e223a5b5b31312c31322c312c302c305d2c5b31302c31312c302c302c315d2c5b322c392c302c332c335d2c5b5b302c31322c315d2c5b302c31322c325d5d2c5b5b302c31322c305d2c5b302c31322c335d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31322c31312c313730303030303030303031352c225452554e43415445222c6e756c6c2c7b7d2c6e756c6c5d7d', -6668174316654816158);
INSERT INTO palaver.journal VALUES (3225419776, 1700000000017, 6250654726148250452, 13, 12, 0, 11, 'talk', 'rollback', NULL, NULL, '\x7b2272223a5b302c362c345d2c2273223a31312c226c223a5b302c365d2c226f223a392c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31322c2264223a5b31322c66616c73655d7d', 5383185243117096607);
INSERT INTO palaver.journal VALUES (3229614080, 1700000000018, 9097803698771678061, 14, 12, 0, 12, 'talk', 'redo', NULL, NULL, '\x7b2272223a5b302c31322c345d2c2273223a31322c226c223a5b302c31325d2c226f223a31322c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31317d', 1544010458503972589);
INSERT INTO palaver.journal VALUES (3233808384, 1700000000019, 8377067594894703462, 15, 12, 0, 12, 'talk', 'undo', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31322c2262223a31302c2264223a5b31342c66616c73655d7d', 5072603891334439899);
INSERT INTO palaver.journal VALUES (3246391296, 1700000000020, 3002898014465475905, 0, 12, 0, 12, 'fork', 'fork', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31327d', 1770369478506755386);
INSERT INTO palaver.journal VALUES (3254779904, 1700000000021, 1927141129428382302, 16, 12, 1, 13, 'talk', 'append', NULL, NULL, NULL, -3743323582526114624);
INSERT INTO palaver.journal VALUES (3258974208, 1700000000022, 3320231861417220291, 1, 12, 1, 13, 'fork', 'append', NULL, NULL, NULL, -3191524596182461925);
INSERT INTO palaver.journal VALUES (3263168512, 1700000000024, 5511181378862075465, 2, 13, 1, 14, 'fork', 'replace', NULL, NULL, '\x7b2272223a5b312c322c365d2c2273223a31342c226c223a5b312c325d2c226f223a31332c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31342c2262223a312c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b5b312c322c305d2c5b312c322c315d5d2c5b5b302c372c305d2c5b312c322c325d5d2c5b31322c31332c302c302c315d2c5b5b302c362c335d2c5b312c322c345d5d2c5b5b312c322c335d2c5b312c322c355d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31332c31312c313730303030303030303032332c225245504c414345222c312c7b7d2c6e756c6c5d7d', 7969515674000697160);
INSERT INTO palaver.journal VALUES (3267362816, 1700000000025, 9082591205043414963, 0, 13, 0, 13, 'deeper', 'fork', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31337d', 2825657379290272970);
INSERT INTO palaver.journal VALUES (3271557120, 1700000000026, 1878077607608552448, 1, 13, 1, 14, 'deeper', 'append', NULL, NULL, NULL, -7226197725832916199);
INSERT INTO palaver.journal VALUES (3275751424, 1700000000028, 7388636046472277466, 17, 13, 2, 15, 'talk', 'merge', NULL, NULL, '\x7b2272223a5b302c31372c375d2c2273223a31342c226c223a5b302c31375d2c226f223a31332c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31362c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b5b302c31372c305d2c5b302c31372c315d5d2c5b5b302c372c305d2c5b302c31372c325d5d2c5b312c392c302c342c335d2c5b31322c31332c302c312c305d2c5b5b302c31372c345d2c5b302c31372c355d5d2c5b5b302c31372c335d2c5b302c31372c365d5d5d2c2265223a5b322c5b302c375d2c5b302c375d2c5b302c372c325d2c31322c31332c31312c313730303030303030303032372c224d45524745222c6e756c6c2c7b7d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', 4695276792931450005);
INSERT INTO palaver.journal VALUES (3284140032, 1700000000030, 3763242780137576368, 18, 15, 0, 15, 'talk', 'filter', NULL, NULL, '\x7b2272223a5b302c31382c31305d2c2273223a31342c226c223a5b302c31385d2c226f223a31352c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31372c226e223a5b5b31332c31342c302c312c305d2c5b31302c31312c302c302c315d2c5b312c352c302c322c325d2c5b5b302c31382c315d2c5b302c31382c325d5d2c5b5b302c31382c305d2c5b302c31382c335d5d2c5b362c372c302c302c315d2c5b382c392c302c312c305d2c5b5b302c31382c355d2c5b302c31382c365d5d2c5b31322c31332c302c312c305d2c5b5b302c31382c375d2c5b302c31382c385d5d2c5b5b302c31382c345d2c5b302c31382c395d5d5d2c2265223a5b332c5b302c31375d2c5b302c365d2c5b302c31372c375d2c31342c31352c31332c313730303030303030303032392c2246494c544552222c6e756c6c2c7b22666f726b223a327d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', -3563668818744255318);
INSERT INTO palaver.journal VALUES (3288334336, 1700000000032, 6679912369544124961, 19, 15, 0, 15, 'talk', 'clear', NULL, NULL, '\x7b2273223a31352c226c223a5b302c31395d2c226f223a31352c226d223a7b2270696e223a5b302c382c305d7d2c2274223a22427265772e222c2267223a31352c2262223a31382c2265223a5b342c5b302c31385d2c5b302c31385d2c5b302c31382c31305d2c31342c31352c31352c313730303030303030303033312c22434c454152222c6e756c6c2c7b22666f726b223a327d2c6e756c6c5d2c2277223a7b22666f726b223a327d7d', -2878624451128861156);
INSERT INTO palaver.journal VALUES (3292528640, 1700000000033, 4274317911513197472, 20, 15, 0, 12, 'talk', 'restore', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31322c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31352c2262223a31392c2264223a5b31392c66616c73655d7d', 7209812995040456905);
INSERT INTO palaver.journal VALUES (3296722944, 1700000000034, 5812859141295128802, 21, 15, 1, 16, 'talk', 'append', NULL, NULL, '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31352c2262223a32307d', -766125352426908893);
INSERT INTO palaver.journal VALUES (3305111552, 1700000000036, 1334677973870412135, 22, 16, 0, 16, 'talk', 'erase', NULL, '{"messages": ["u17"]}', '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31362c2262223a32307d', 3750053270547352012);
INSERT INTO palaver.journal VALUES (3326083072, 1700000000038, 4567480563399133149, 23, 16, 0, 16, 'talk', 'erase', NULL, '{"messages": ["u2", "a14"]}', '\x7b2272223a5b302c372c325d2c2273223a31352c226c223a5b302c375d2c226f223a31312c226d223a7b2270696e223a5b302c382c305d7d2c2267223a31362c2262223a32307d', 6168680838733503950);
INSERT INTO palaver.journal VALUES (3363831808, 1700000000040, 1891836177464857719, 24, 16, 1, 17, 'talk', 'append', 'third key', NULL, NULL, -1543193475118383387);
INSERT INTO palaver.journal VALUES (3380609024, 1700000000042, 5700803393595908380, 0, 0, 0, 0, 'empty', 'create', NULL, NULL, '\x7b7d', -6238694969933760813);
INSERT INTO palaver.journal VALUES (3388997632, 1700000000000, 5187004774937583657, 0, 0, 2, 2, 'imported', 'import', NULL, NULL, '\x7b2274223a2247726565742e222c2267223a327d', 8510180117944436666);


--
-- Data for Name: messages; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.messages VALUES (0, 7972490510407299231, 0, 0, 0, 0, 0, NULL, 0, 'talk', 's1', '{"role":"system","content":"says s1","id":"s1","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, -3226577837837690499, 2, 0, 1, 1, 0, NULL, 2, 'talk', 'a3', '{"role":"assistant","content":"Grüße, 喝茶吧 🍵\n\"quoted\" \\ ","id":"a3","timestamp":0,"metadata":{"n":[1,null,2.5]}}');
INSERT INTO palaver.messages VALUES (5, 2724087390629066436, 3, 1, 1, 1, 1, NULL, 1, 'talk', 'u4', '{"role":"user","content":"says u4","id":"u4","timestamp":5}');
INSERT INTO palaver.messages VALUES (77, -7678279695236539273, 4, 1, 1, 2, 1, NULL, 2, 'talk', 'a5', '{"role":"assistant","content":[{"type":"step-start","id":"a5-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","snapshot":"s"},{"type":"reasoning","id":"a5-1","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","text":"hm","time":{"start":1,"end":2},"metadata":{"signature":"x"}},{"type":"text","id":"a5-2","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","text":"I look.","ignored":true},{"type":"tool-call","id":"a5-3","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","callID":"c1","tool":"look","input":{"at":"kettle"},"raw":"{\"at\": \"kettle\"}"},{"type":"step-finish","id":"a5-4","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","reason":"tool","tokens":{"input":10,"output":2,"reasoning":0,"cache":{"read":3,"write":0}},"cost":0.25}],"id":"a5","timestamp":77}');
INSERT INTO palaver.messages VALUES (77, 8329804300506783213, 5, 0, 1, 2, 2, NULL, 3, 'talk', 't6', '{"role":"tool","content":[{"type":"tool","id":"t6-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","callID":"c1","tool":"look","state":{"status":"completed","input":{"at":"kettle"},"output":"it boils","title":"look","metadata":{},"time":{"start":1,"end":4}}}],"id":"t6","timestamp":77}');
INSERT INTO palaver.messages VALUES (0, -4863464230833986332, 6, 2, 1, 2, 2, NULL, 2, 'talk', 'a7', '{"role":"assistant","content":"says a7","id":"a7","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, 5209435446312671379, 7, 2, 1, 2, 3, NULL, 1, 'talk', 'u8', '{"role":"user","content":"says u8","id":"u8","timestamp":0}');
INSERT INTO palaver.messages VALUES (77, 6587343039824460340, 8, 3, 1, 3, 3, NULL, 1, 'talk', 'u9', '{"role":"user","content":[{"type":"file","id":"u9-0","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","mime":"image/png","url":"data:,x","filename":"f","source":{"type":"file","path":"a.md","text":{"value":"v","start":0,"end":1}}},{"type":"subtask","id":"u9-1","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","prompt":"p","description":"d","agent":"a"},{"type":"agent","id":"u9-2","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","name":"max"},{"type":"snapshot","id":"u9-3","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","snapshot":"s"},{"type":"patch","id":"u9-4","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","hash":"h","files":["a","b"]},{"type":"retry","id":"u9-5","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","attempt":1,"error":{"e":1},"time":{"created":3}},{"type":"compaction","id":"u9-6","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","auto":true},{"id":"u9-7","sessionID":"0190163d-8694-739b-aea5-966c26f8ad91","messageID":"0190163d-8694-739b-aea5-966c26f8ad92","type":"of-the-future","what":{"is":["this"]}}],"id":"u9","timestamp":77}');
INSERT INTO palaver.messages VALUES (0, -5172452646247789677, 9, 4, 1, 4, 3, NULL, 1, 'talk', 'u10', '{"role":"user","content":"says u10","id":"u10","timestamp":0}');
INSERT INTO palaver.messages VALUES (1, 5237056383810692585, 10, 3, 1, 5, 3, NULL, 2, 'talk', 'a11', '{"role":"assistant","content":"says a11","id":"a11","timestamp":1}');
INSERT INTO palaver.messages VALUES (0, -6538496868004214957, 11, 1, 1, 5, 4, 0, 0, 'talk', 's12', '{"role":"system","content":"says s12","id":"s12","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, -4689499349913667380, 12, 5, 2, 5, 4, NULL, 1, 'talk', 'u13', '{"role":"user","content":"the parent goes on","id":"u13","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, -6882712055002634638, 13, 5, 2, 5, 5, 9, 1, 'fork', 'u15', '{"role":"user","content":"says u15","id":"u15","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, 5182096350932888709, 13, 5, 2, 5, 5, NULL, 1, 'deeper', 'u16', '{"role":"user","content":"says u16","id":"u16","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, -7433287804868376222, 13, 6, 2, 6, 4, 9, 1, 'talk', 'u15', '{"role":"user","content":"says u15","id":"u15","timestamp":0}');
INSERT INTO palaver.messages VALUES (0, 1466742427382921822, 15, 7, 2, 7, 5, NULL, 1, 'talk', 'u17', '{"role":"user","content":"","id":"u17","timestamp":0,"metadata":{"palaver.erased":1700000000035}}');
INSERT INTO palaver.messages VALUES (1, -3285480901977245624, 1, 0, 1, 0, 0, NULL, 1, 'talk', 'u2', '{"role":"user","content":"","id":"u2","timestamp":1,"metadata":{"palaver.erased":1700000000037}}');
INSERT INTO palaver.messages VALUES (0, 6936447989035557458, 12, 4, 2, 5, 4, NULL, 2, 'fork', 'a14', '{"role":"assistant","content":"","id":"a14","timestamp":0,"metadata":{"palaver.erased":1700000000037}}');
INSERT INTO palaver.messages VALUES (0, 2283283671486713017, 14, 4, 2, 7, 4, NULL, 2, 'talk', 'a14', '{"role":"assistant","content":"","id":"a14","timestamp":0,"metadata":{"palaver.erased":1700000000037}}');
INSERT INTO palaver.messages VALUES (0, -5364807634605519214, 16, 5, 2, 8, 5, NULL, 2, 'talk', 'a18', '{"role":"assistant","content":"says a18","id":"a18","timestamp":0}');
INSERT INTO palaver.messages VALUES (1700000000000, -2628126436427790092, 0, 0, 0, 0, 0, NULL, 1, 'imported', 'msg-1', '{"role":"user","content":"Hi","id":"msg-1","timestamp":1700000000000,"metadata":{"palaver.snapshot":{"message":{"extra":[1]}}},"speaker":{"roleId":"u","roleName":"U","type":"human","extra":{"more":1}}}');
INSERT INTO palaver.messages VALUES (1700000000000, 9074343676811490542, 1, 0, 0, 1, 0, NULL, 2, 'imported', 'msg-2', '{"role":"assistant","content":"[NEXT: u] Hello","id":"msg-2","timestamp":1700000000000,"metadata":{"palaver.snapshot":{"message":{},"routing":"full"}},"speaker":{"roleId":"max","roleName":"Max","type":"ai"},"routing":{"extra":{"x":1}}}');


--
-- Data for Name: records; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.records VALUES ('talk', 'names', 'fork', '\x5b5b31332c2031335d2c205b31322c2031345d5d', -4257539561763023377);
INSERT INTO palaver.records VALUES ('talk', 'draft', 'd1', '\x68616c6620612073656e0074656e636520ff', 1235911597346499185);
INSERT INTO palaver.records VALUES ('talk', 'ledger', 'c1', '\x7b22737461747573223a2022636f6d706c65746564222c2022696e707574223a207b226174223a20226b6574746c65227d2c20226f7574707574223a2022697420626f696c73222c20227469746c65223a20226c6f6f6b222c20226d65746164617461223a207b7d2c202274696d65223a207b227374617274223a20312c2022656e64223a20347d7d', 174076217261422960);
INSERT INTO palaver.records VALUES ('fork', 'intent', '名', '\x', -9218126524457000387);


--
-- Data for Name: store; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.store VALUES (3, 0);


--
-- Data for Name: words; Type: TABLE DATA; Schema: palaver; Owner: -
--

INSERT INTO palaver.words VALUES (0, 0, 'talk', '''s1'' ''says''', NULL);
INSERT INTO palaver.words VALUES (0, 2, 'talk', '''grusse'' ''quoted'' ''ue590a7'' ''ue5969d'' ''ue88cb6''', NULL);
INSERT INTO palaver.words VALUES (5, 3, 'talk', '''says'' ''u4''', NULL);
INSERT INTO palaver.words VALUES (77, 4, 'talk', '''at'' ''hm'' ''i'' ''kettle'' ''look''', NULL);
INSERT INTO palaver.words VALUES (77, 5, 'talk', '''boils'' ''it'' ''look''', NULL);
INSERT INTO palaver.words VALUES (0, 6, 'talk', '''a7'' ''says''', NULL);
INSERT INTO palaver.words VALUES (0, 7, 'talk', '''says'' ''u8''', NULL);
INSERT INTO palaver.words VALUES (77, 8, 'talk', '', NULL);
INSERT INTO palaver.words VALUES (0, 9, 'talk', '''says'' ''u10''', NULL);
INSERT INTO palaver.words VALUES (1, 10, 'talk', '''a11'' ''says''', NULL);
INSERT INTO palaver.words VALUES (0, 11, 'talk', '''s12'' ''says''', NULL);
INSERT INTO palaver.words VALUES (1, 1, 'talk', '', NULL);


--
-- Name: conversations conversations_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (id);


--
-- Name: journal journal_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (conversation, version);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (conversation, seq);


--
-- Name: records records_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (conversation, kind, name);


--
-- Name: words words_pkey; Type: CONSTRAINT; Schema: palaver; Owner: -
--

ALTER TABLE ONLY palaver.words
    ADD CONSTRAINT words_pkey PRIMARY KEY (conversation, seq);


--
-- Name: conversations_parent; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX conversations_parent ON palaver.conversations USING btree (parent) WHERE (parent IS NOT NULL);


--
-- Name: conversations_updated; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX conversations_updated ON palaver.conversations USING btree (updated DESC, id DESC);


--
-- Name: journal_frames; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX journal_frames ON palaver.journal USING btree (conversation, version) WHERE (frame IS NOT NULL);


--
-- Name: journal_key; Type: INDEX; Schema: palaver; Owner: -
--

CREATE UNIQUE INDEX journal_key ON palaver.journal USING btree (conversation, key) WHERE (key IS NOT NULL);


--
-- Name: journal_number; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX journal_number ON palaver.journal USING btree (number);


--
-- Name: messages_id; Type: INDEX; Schema: palaver; Owner: -
--

CREATE INDEX messages_id ON palaver.messages USING btree (conversation, id);


--
-- Name: messages_role; Type: INDEX; Schema: palaver; Owner: -
--

CREATE UNIQUE INDEX messages_role ON palaver.messages USING btree (conversation, role, ordinal);


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


