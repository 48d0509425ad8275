// `openai` for Node: zod schemas, streams, the tool runner.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.env.SIM_URL}/v1`, apiKey: process.env.KEY, maxRetries: 0 });
const calling = client.withOptions({ baseURL: `${process.env.CALLING_URL}/v1` });
const messages = [{ role: "user", content: "Tell me something." }];
const base = { model: "sim", messages, seed: 1 };

const Person = z.object({
  name: z.string().max(20),
  age: z.number().int().min(0).max(130),
  colour: z.enum(["red", "green"]),
  pet: z.discriminatedUnion("kind", [
    z.object({ kind: z.literal("cat"), lives: z.number().int().min(1).max(9) }),
    z.object({ kind: z.literal("dog"), name: z.string().max(10) }),
  ]),
  email: z.string().max(30).nullable(),
  tags: z.array(z.enum(["a", "b"])).max(3),
});

// Types whose schemas servers refuse.
const Numbers = z.object({
  float32: z.float32(),
  float64: z.float64(),
  int: z.int(),
  uint32: z.uint32(),
  id: z.uuid(),
  at: z.iso.datetime(),
});

const Weather = z.object({ city: z.string().min(1).max(20), days: z.number().int().min(1).max(7) });

for (const [name, shape] of Object.entries({ Person, Numbers, Weather })) {
  test(`parse ${name}`, async () => {
    for (const seed of [1, 2]) {
      const answer = await client.chat.completions.parse({
        ...base,
        seed,
        response_format: zodResponseFormat(shape, name),
      });
      shape.parse(answer.choices[0].message.parsed);
    }
  });
}

test("a stream with its helper", async () => {
  const stream = client.chat.completions.stream({ ...base, response_format: zodResponseFormat(Person, "person") });
  let deltas = 0;
  stream.on("content.delta", () => deltas++);
  const answer = await stream.finalChatCompletion();
  assert.ok(deltas > 0);
  Person.parse(answer.choices[0].message.parsed);
});

test("a stream read by hand", async () => {
  const whole = await client.chat.completions.create({ ...base, max_tokens: 20 });
  let text = "";
  for await (const part of await client.chat.completions.create({ ...base, max_tokens: 20, stream: true })) {
    text += part.choices[0]?.delta?.content ?? "";
  }
  assert.equal(text, whole.choices[0].message.content);
});

for (const stream of [false, true]) {
  test(`the tool runner${stream ? ", streamed" : ""}`, async () => {
    const asked = [];
    const tool = zodFunction({
      name: "Weather",
      parameters: Weather,
      function: (weather) => {
        asked.push(weather);
        return "sunny";
      },
    });
    // This model calls at each turn, so that only the limit ends the conversation.
    const runner = calling.chat.completions.runTools(
      { ...base, stream, tools: [tool] },
      { maxChatCompletions: 2 },
    );
    await runner.done();
    const trips = [{ city: "Rome", days: 2 }, { city: "Paris", days: 3 }];
    assert.deepEqual(asked, [...trips, ...trips]);
    const roles = runner.messages.map((message) => message.role).join(" ");
    assert.equal(roles, "user assistant tool tool assistant tool tool");
  });
}

test("errors", async () => {
  await assert.rejects(client.chat.completions.create({ ...base, model: "other" }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...base, n: 0 }), (error) => error.param === "n");
  await assert.rejects(client.withOptions({ apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
});

test("a stream that is left", async () => {
  const stream = await client.chat.completions.create({ ...base, stream: true });
  for await (const part of stream) {
    assert.ok(part.id);
    break;
  }
});
