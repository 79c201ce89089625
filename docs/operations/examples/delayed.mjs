// A publisher and a consumer of one delayed message, with amqplib 0.10:
// node delayed.mjs amqp://shop:password@broker/ orders
//
// Only the name of the bound exchange differs from a program for the plugin.
import amqp from "amqplib";

const [url, exchange] = process.argv.slice(2);
const connection = await amqp.connect(url);
const channel = await connection.createConfirmChannel();

const { queue } = await channel.assertQueue("", { exclusive: true });
await channel.bindQueue(queue, `${exchange}.due`, "created");

const sent = Date.now();
await channel.consume(queue, async (message) => {
  const { contentType, messageId, type, headers } = message.properties;
  const body = JSON.parse(message.content);
  const waited = Date.now() - sent;
  const properties = { contentType, messageId, type };
  channel.ack(message);
  console.log(JSON.stringify({ waited, body, headers, properties }));
  await channel.close();
  await connection.close();
});

channel.publish(exchange, "created", Buffer.from(JSON.stringify({ order: 7 })), {
  contentType: "application/json",
  messageId: "order-7",
  type: "order.reminder",
  persistent: true,
  headers: { "x-delay": 1_000, "x-attempt": 3 },
});
await channel.waitForConfirms();
