// Walks through the broker with node's amqplib:  node walk.js amqp://guest:guest@127.0.0.1:5672/
//
// One line of JSON for each step: {"step": its name, "ok": whether it held, "what": the error if not}. Each step has
// channels, queues and exchanges of its own, so that one that fails spoils no other. Who runs it: ../test_node.py.
'use strict';

const amqp = require('amqplib');
const messages = require('./messages');
const topology = require('./topology');
const { Stage, within } = require('./stage');

async function walked(connection, url, step) {
  const stage = new Stage(connection, url);
  let failure;
  try {
    await within(step(stage), 'end of the step');
  } catch (error) {
    failure = error;
  }
  try {
    await stage.end();
  } catch (error) {
    failure ??= error;
  }
  return failure;
}

async function main(url) {
  for (const [name, step] of Object.entries({ ...topology, ...messages })) {
    const connection = await amqp.connect(url);
    connection.on('error', () => {});
    const failure = await walked(connection, url, step);
    await connection.close().catch(() => {}); // a broker that closed it by itself has been reported by its step
    console.log(JSON.stringify({ step: name, ok: !failure, what: failure ? String(failure.stack) : '' }));
  }
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
