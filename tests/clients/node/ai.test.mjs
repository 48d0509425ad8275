// Vercel's `ai`: generateObject, streamObject, tools; through its provider for any such server and through OpenAI's own.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const options = (url) => ({ name: "llgtrt", baseURL: `${url}/v1`, apiKey: process.env.KEY });
const compatible = (url) => createOpenAICompatible({ ...options(url), supportsStructuredOutputs: true })("sim");
const chat = (url) => createOpenAI(options(url)).chat("sim");
const responses = (url) => createOpenAI(options(url)).responses("sim");
const { SIM_URL, CALLING_URL } = process.env;
const rest = { prompt: "Tell me something.", seed: 1, maxRetries: 0 };

const Weather = z.object({ city: z.string().min(1).max(20), days: z.number().int().min(1).max(7) });
const Person = z.object({ name: z.string().max(20), age: z.int().min(0).max(130), trips: z.array(Weather).max(3) });

for (const [name, model] of Object.entries({ compatible, chat, responses })) {
  test(`${name}: generateObject`, async () => {
    for (const schema of [Weather, Person]) {
      const { object } = await generateObject({ model: model(SIM_URL), schema, ...rest });
      schema.parse(object);
    }
  });

  test(`${name}: generateObject of a list and of one of several texts`, async () => {
    const list = await generateObject({ model: model(SIM_URL), output: "array", schema: Weather, ...rest });
    z.array(Weather).parse(list.object);
    const choice = await generateObject({ model: model(SIM_URL), output: "enum", enum: ["red", "green"], ...rest });
    assert.ok(["red", "green"].includes(choice.object));
  });

  test(`${name}: streamObject`, async () => {
    const { partialObjectStream, object } = streamObject({ model: model(SIM_URL), schema: Person, ...rest });
    let parts = 0;
    for await (const _ of partialObjectStream) parts++;
    assert.ok(parts > 0);
    Person.parse(await object);
  });

  test(`${name}: text, whole and streamed`, async () => {
    const whole = await generateText({ model: model(SIM_URL), maxOutputTokens: 20, ...rest });
    const { textStream } = streamText({ model: model(SIM_URL), maxOutputTokens: 20, ...rest });
    let text = "";
    for await (const part of textStream) text += part;
    assert.ok(text);
    // The provider of the Responses API has no seed, so that its answers differ.
    if (name !== "responses") assert.equal(text, whole.text);
    assert.ok(whole.usage.outputTokens > 0);
  });

  for (const run of [generateText, streamText]) {
    test(`${name}: tools with ${run.name}`, async () => {
      const asked = [];
      const weather = tool({
        inputSchema: Weather,
        execute: async (trip) => {
          asked.push(trip);
          return "sunny";
        },
      });
      // This model calls at each turn, so that only the limit ends the conversation.
      const result = run({ model: model(CALLING_URL), tools: { Weather: weather }, stopWhen: stepCountIs(2), ...rest });
      const steps = await (await result).steps;
      assert.equal(steps.length, 2);
      assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "tool-calls"]);
      const trips = [{ city: "Rome", days: 2 }, { city: "Paris", days: 3 }];
      assert.deepEqual(asked, [...trips, ...trips]);
    });
  }

  test(`${name}: a call that is required`, async () => {
    const result = await generateText({
      model: model(SIM_URL),
      tools: { weather: tool({ inputSchema: Weather }) },
      toolChoice: "required",
      ...rest,
    });
    assert.ok(result.toolCalls.length > 0);
    for (const call of result.toolCalls) Weather.parse(call.input);
  });
}
