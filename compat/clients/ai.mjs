// The AI SDK with its OpenAI provider, as they are: one case against a server; what it found goes
// to stdout as JSON.
//
//   node ai.mjs '{"case": "turns", "url": …, "key": …, "model": …}'
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const given = JSON.parse(process.argv[2]);
const openai = createOpenAI({ baseURL: given.url, apiKey: given.key });
const weather = tool({
  description: "Tell the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `${city}: 21 degrees`,
});
const City = z.object({ name: z.string(), degrees: z.number() });
const common = { tools: { weather }, stopWhen: isStepCount(5), maxRetries: 0 };
const asked = { ...common, model: openai.responses(given.model) };

// The whole of a streamed answer; the SDK reports errors among its parts.
async function read(result) {
  let text = "";
  for await (const part of result.stream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
  }
  return text;
}

const options = (openai) => ({ providerOptions: { openai } });

const cases = {
  // Two turns with a tool, each after the response before it; the second one is streamed.
  async turns() {
    const first = await generateText({ ...asked, prompt: "Rome?" });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const result = streamText({ ...asked, prompt: "Oslo?", ...options({ previousResponseId }) });
    const last = await read(result);
    const { responseId } = (await result.providerMetadata).openai;
    return { first: first.text, last, id: responseId };
  },

  // One more turn after a response.
  async after() {
    const result = await generateText({
      ...asked, prompt: "And now?", ...options({ previousResponseId: given.id }),
    });
    return result.text;
  },

  // The same turns in a conversation.
  async conversation() {
    const inside = options({ conversation: given.id });
    const texts = [];
    for (const prompt of given.prompts) {
      texts.push((await generateText({ ...asked, ...inside, prompt })).text);
    }
    return texts;
  },

  // The same turns, with the messages kept by the client and sent again each time.
  async everything_again() {
    const found = [];
    for (const [model, store] of [
      [openai.responses(given.model), true],
      [openai.responses(given.model), false],
      [openai.chat(given.model), false],
    ]) {
      const messages = [{ role: "user", content: "Rome?" }];
      const all = { ...common, model, messages, ...options({ store }) };
      const first = await generateText(all);
      messages.push(...first.responseMessages, { role: "user", content: "Oslo?" });
      found.push([first.text, await read(streamText(all))]);
    }
    return found;
  },

  async parse() {
    const found = [];
    for (const model of [openai.responses(given.model), openai.chat(given.model)]) {
      const output = Output.object({ schema: City, name: "city" });
      found.push((await generateText({ model, output, prompt: "Rome?" })).output);
    }
    return found;
  },

  async refusal() {
    try {
      await generateText({ ...asked, prompt: "Hi", ...options({ maxToolCalls: 3 }) });
    } catch (error) {
      return [error.name, error.statusCode, error.data.error.param];
    }
  },
};

console.log(JSON.stringify(await cases[given.case]()));
