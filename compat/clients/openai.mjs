// `openai` from npm, as it is: one case against a server; what it found goes to stdout as JSON.
//
//   node openai.mjs '{"case": "turns", "url": …, "key": …, "model": …}'
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { ResponsesToolRunner } from "openai/helpers/responses-tool-runner";
import { toResponseInputItems } from "openai/lib/responses/ResponseInputItems";
import { z } from "zod";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: given.url, apiKey: given.key, maxRetries: 0 });
const { model } = given;
const City = z.object({ name: z.string(), degrees: z.number() });
const parameters = z.object({ city: z.string() });
const description = "Tell the weather of a city.";
const tools = [zodResponsesFunction({ name: "weather", description, parameters })];
const weather = ({ city }) => `${city}: 21 degrees`;

const outputs = (response) =>
  response.output
    .filter((item) => item.type === "function_call")
    .map((item) => ({
      type: "function_call_output",
      call_id: item.call_id,
      output: weather(item.parsed_arguments ?? JSON.parse(item.arguments)),
    }));

// A follow-up: the outputs of a response's calls.
const follow = (response) => ({ model, tools, input: outputs(response), previous_response_id: response.id });

const cases = {
  // Two turns with a tool, the second one streamed.
  async turns() {
    const first = await client.responses.parse({ model, tools, input: "Rome?" });
    const told = await client.responses.create(follow(first));
    const asking = client.responses.stream({
      model, tools, input: "Oslo?", previous_response_id: told.id,
    });
    const written = [];
    asking.on("response.function_call_arguments.delta", (event) => written.push(event.snapshot));
    const second = await asking.finalResponse();
    let streamed = "";
    const telling = client.responses.stream(follow(second));
    for await (const event of telling) {
      if (event.type === "response.output_text.delta") streamed += event.delta;
    }
    const last = await telling.finalResponse();
    return { first: told.output_text, streamed, written: written.at(-1), last: last.output_text, id: last.id };
  },

  // One more turn after a response.
  async after() {
    const response = await client.responses.create({
      model, tools, input: "And now?", previous_response_id: given.id,
    });
    return response.output_text;
  },

  // The output of one request as the input of the next.
  async everything_again() {
    const input = [{ role: "user", content: "Rome?" }];
    const asked = { model, tools, input, store: false, include: ["reasoning.encrypted_content"] };
    const first = await client.responses.parse(asked);
    input.push(...toResponseInputItems(first.output), ...outputs(first));
    const second = await client.responses.stream(asked).finalResponse();
    input.push(...toResponseInputItems(second.output), { role: "user", content: "Thanks" });
    return (await client.responses.create(asked)).output_text;
  },

  // The SDK's own loop: it runs the tool, and sends everything again.
  async runner() {
    const execute = async (args) => weather(args);
    const run = new ResponsesToolRunner({ functions: [{ tool: tools[0], execute }] });
    const found = [];
    for (const stream of [false, true]) {
      const input = stream ? "Oslo?" : "Rome?";
      found.push((await run.run(client, { model, input, store: false }, { stream })).output_text);
    }
    return found;
  },

  async parse() {
    const input = "Rome?";
    const asked = { model, input, text: { format: zodTextFormat(City, "city") } };
    const chat = await client.chat.completions.parse({
      model,
      messages: [{ role: "user", content: input }],
      response_format: zodResponseFormat(City, "city"),
    });
    return [
      (await client.responses.parse(asked)).output_parsed,
      (await client.responses.stream(asked).finalResponse()).output_parsed,
      chat.choices[0].message.parsed,
    ];
  },

  async chat() {
    const asked = {
      model,
      tools: [zodFunction({ name: "weather", description, parameters, function: weather })],
    };
    const said = [];
    for (const stream of [false, true]) {
      const messages = [{ role: "user", content: stream ? "Oslo?" : "Rome?" }];
      const runner = client.chat.completions.runTools({ ...asked, messages, stream });
      said.push(await runner.finalContent());
    }
    return said;
  },

  // A response in the background: polled, followed again from the middle of its stream, cancelled.
  async background() {
    const numbers = [];
    let id;
    for await (const event of await client.responses.create({
      model, input: "Count", background: true, stream: true,
    })) {
      numbers.push(event.sequence_number);
      id ??= event.response?.id;
    }
    const again = [];
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: 2 });
    for await (const event of rest) again.push(event.sequence_number);
    const resumed = client.responses.stream({ response_id: id, starting_after: 2 });
    const whole = (await resumed.finalResponse()).output_text;
    let running;
    for await (const event of await client.responses.create({
      model, input: "Again", background: true, stream: true,
    })) {
      running ??= event.response?.id;
      if (event.type === "response.output_text.delta") break;
    }
    const cancelled = await client.responses.cancel(running);
    return { numbers, again, whole, status: cancelled.status };
  },

  async conversation() {
    const message = (content) => ({ type: "message", role: "user", content });
    const talk = await client.conversations.create({ items: [message("Call me Ada.")] });
    const asked = { model, input: "Hi", conversation: talk.id };
    const response = await client.responses.create(asked);
    const items = [];
    for await (const item of client.conversations.items.list(talk.id, { order: "asc", limit: 2 })) {
      items.push(item);
    }
    await client.conversations.items.delete(items[0].id, { conversation_id: talk.id });
    await client.conversations.items.create(talk.id, { items: [message("I am Bob.")] });
    const last = await client.responses.create(asked);
    const models = [];
    for await (const each of client.models.list()) models.push(each.id);
    return { items: items.length, first: response.output_text, last: last.output_text, models: models.length };
  },

  async refusals() {
    const found = [];
    for (const wrong of [{ top_logprobs: 3 }, { colour: "red" }, { previous_response_id: "resp_none" }]) {
      try {
        await client.responses.create({ model, input: "Hi", ...wrong });
      } catch (error) {
        found.push([error.constructor.name, error.status, error.param]);
      }
    }
    return found;
  },
};

console.log(JSON.stringify(await cases[given.case]()));
