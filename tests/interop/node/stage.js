// Where the steps of walk.js play: channels, names that nobody else has, messages as they come, and the end of it all.
'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');

const SECONDS_MAX = 10;

/** A promise, or an error when it takes too long: a step that waits for what never comes must not hang the walk. */
function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${SECONDS_MAX} s`)), SECONDS_MAX * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The next event of that name. */
function event(emitter, name) {
  return within(new Promise((resolve) => emitter.once(name, resolve)), name);
}

/** What a consumer is sent, in order; whoever asks for more than there is waits. */
class Inbox {
  #arrived = [];
  #asked = [];

  put = (message) => {
    const asked = this.#asked.shift();
    if (asked) asked(message);
    else this.#arrived.push(message);
  };

  next() {
    if (this.#arrived.length) return Promise.resolve(this.#arrived.shift());
    return within(new Promise((resolve) => this.#asked.push(resolve)), 'delivery');
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.next());
    return taken;
  }

  get waiting() {
    return this.#arrived.length;
  }
}

class Stage {
  #queues = [];
  #exchanges = [];
  #channels = [];
  #connections = [];

  constructor(connection, url) {
    this.connection = connection;
    this.url = url;
  }

  async another() {
    const connection = await amqp.connect(this.url);
    connection.on('error', () => {});
    connection.on('close', () => {
      this.#connections = this.#connections.filter((one) => one !== connection);
    });
    this.#connections.push(connection);
    return connection;
  }

  async channel(connection = this.connection) {
    return this.#kept(await connection.createChannel());
  }

  async confirming() {
    return this.#kept(await this.connection.createConfirmChannel());
  }

  #kept(channel) {
    channel.on('error', () => {}); // the promise that fails tells the same
    channel.on('close', () => {
      this.#channels = this.#channels.filter((one) => one !== channel);
    });
    this.#channels.push(channel);
    return channel;
  }

  async queue(channel, options = {}) {
    const name = `node-${randomUUID()}`;
    this.#queues.push(name);
    await channel.assertQueue(name, options);
    return name;
  }

  async exchange(channel, type, options = {}) {
    const name = `node-${randomUUID()}`;
    this.#exchanges.push(name);
    await channel.assertExchange(name, type, options);
    return name;
  }

  /** A queue that gets from this exchange what is bound by these keys or headers. */
  async bound(channel, exchange, ...patterns) {
    const queue = await this.queue(channel);
    for (const pattern of patterns) {
      if (typeof pattern === 'string') await channel.bindQueue(queue, exchange, pattern);
      else await channel.bindQueue(queue, exchange, '', pattern);
    }
    return queue;
  }

  async consumer(channel, queue, options = {}) {
    const inbox = new Inbox();
    const { consumerTag } = await channel.consume(queue, inbox.put, options);
    inbox.tag = consumerTag;
    return inbox;
  }

  async end() {
    for (const channel of [...this.#channels]) await channel.close();
    for (const connection of [...this.#connections]) await connection.close();
    const last = await this.connection.createChannel();
    for (const queue of this.#queues) await last.deleteQueue(queue);
    for (const exchange of this.#exchanges) await last.deleteExchange(exchange);
    await last.close();
  }
}

/** Everything that is ready in a queue, as text. */
async function ready(channel, queue) {
  const found = [];
  for (let message = await channel.get(queue, { noAck: true }); message; ) {
    found.push(message.content.toString());
    message = await channel.get(queue, { noAck: true });
  }
  return found;
}

/** The broker refuses it: with this code, and with this in its words. */
async function refused(promise, code, words) {
  const error = await within(promise, 'refusal').then(
    () => assert.fail('it was not refused'),
    (failure) => failure,
  );
  assert.equal(error.code, code, error.message);
  assert.match(error.message, words);
}

const text = (messages) => messages.map((message) => message.content.toString());

module.exports = { Stage, event, ready, refused, text, within };
