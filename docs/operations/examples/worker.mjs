// A worker that copies a table: one delegated run for each message of its queue.
//
// Run it with the login of the tenant and amqplib 0.10:
// node worker.mjs amqp://acme:password@broker/ acme acme.exports
//
// A lost connection ends the process. Its supervisor starts it again.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import amqp from "amqplib";

const [url, tenant, queue] = process.argv.slice(2);
const login = decodeURIComponent(new URL(url).username || "guest");
const MAX_RUNS = 10; // of this worker at one time
const RESPONSE_TIMEOUT = 10_000; // milliseconds
const RETRY_PAUSE = 1_000; // milliseconds

class Rejected extends Error {}

// The connection of the reports, with the responses that the worker waits for.
const reports = await (await amqp.connect(url)).createConfirmChannel();
const waiting = new Map();
await reports.consume(
  "amq.rabbitmq.reply-to",
  (message) => waiting.get(message.properties.correlationId)?.(JSON.parse(message.content)),
  { noAck: true },
);

// Publishes one report and returns the response. A repeat of a report has no second effect.
async function report(verb, call, fields = {}) {
  const id = randomUUID();
  const body = { run_id: call.runId, fencing_token: call.token, ...fields };
  const response = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no response to ${verb}`)), RESPONSE_TIMEOUT);
    waiting.set(id, (value) => (clearTimeout(timer), resolve(value)));
  });
  try {
    reports.publish("harebell.commands", `${tenant}.${verb}`, Buffer.from(JSON.stringify(body)), {
      contentType: "application/json",
      correlationId: id,
      messageId: id,
      mandatory: true,
      persistent: true,
      replyTo: "amq.rabbitmq.reply-to",
      userId: login, // the broker verifies this name
    });
    const value = await response;
    if (!value.ok) throw new Rejected(`${value.error.reason} (${value.error.code})`);
    return value;
  } finally {
    waiting.delete(id);
  }
}

// Repeats a report until Harebell has answered it.
async function deliver(verb, call, fields) {
  for (;;) {
    try {
      return await report(verb, call, fields);
    } catch (error) {
      if (error instanceof Rejected) throw error;
      await sleep(RETRY_PAUSE);
    }
  }
}

// The work itself. `signal` is aborted if the run must stop.
async function exportTable(call, signal) {
  const request = JSON.parse(call.body);
  for (let step = 0; step < (request.steps ?? 3); step++) {
    await sleep(1000 * (request.seconds ?? 1), undefined, { signal });
  }
  return { table: request.table, attempt: call.attempt };
}

// The slots of this worker. A call that waits for a slot has heartbeats and is not acknowledged.
let free = MAX_RUNS;
const waiters = [];
const takeSlot = () => (free > 0 ? free-- : new Promise((resolve) => waiters.push(resolve)));
const freeSlot = () => (waiters.length > 0 ? waiters.shift()() : free++);

async function work(call, start) {
  const stop = new AbortController();
  const beat = async () => {
    try {
      const { stop_reason } = await deliver("run.heartbeat", call);
      if (stop_reason) stop.abort(stop_reason);
    } catch (error) {
      stop.abort(error); // another attempt has the run
    }
  };
  await beat();
  const timer = setInterval(beat, (call.heartbeat * 1000) / 3);
  await takeSlot();
  try {
    start(); // the lease of the run now protects the work
    stop.signal.throwIfAborted();
    const result = await exportTable(call, stop.signal);
    await deliver("run.complete", call, { result });
  } catch (error) {
    if (error instanceof Rejected || stop.signal.reason instanceof Rejected) {
      return console.error("run lost:", (stop.signal.reason ?? error).message);
    }
    const code = stop.signal.aborted ? "stopped" : "worker_failed";
    await deliver("run.fail", call, { code, reason: String(error.message).slice(0, 1024) });
  } finally {
    clearInterval(timer);
    freeSlot();
  }
}

const calls = await (await amqp.connect(url)).createChannel();
await calls.prefetch(MAX_RUNS);
await calls.consume(queue, async (message) => {
  const headers = message.properties.headers;
  const call = {
    runId: headers["Harebell-Run-Id"],
    token: Number(headers["Harebell-Fencing-Token"]),
    attempt: Number(headers["Harebell-Attempt"]),
    heartbeat: Number(headers["Harebell-Heartbeat"]),
    body: message.content.toString(),
  };
  await work(call, () => calls.ack(message)).catch((error) => {
    console.error("report lost:", error.message);
  });
});
console.log("worker started");
