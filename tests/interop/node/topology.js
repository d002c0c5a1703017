// Steps of walk.js about what is declared: queues, exchanges, bindings, and where a message goes by them.
'use strict';

const assert = require('node:assert/strict');
const { event, ready, refused, text } = require('./stage');

/** Publish each key once, with the key as body, and wait until all are confirmed. */
async function publish(channel, exchange, ...keys) {
  for (const key of keys) channel.publish(exchange, key, Buffer.from(key));
  await channel.waitForConfirms();
}

module.exports = {
  async the_server_says_what_it_can({ connection }) {
    const { capabilities } = connection.connection.serverProperties;
    for (const name of ['publisher_confirms', 'exchange_exchange_bindings', 'basic.nack', 'consumer_cancel_notify']) {
      assert.equal(capabilities[name], true, name);
    }
  },

  async a_queue_is_declared_and_found(stage) {
    const channel = await stage.channel();
    const queue = await stage.queue(channel);
    channel.sendToQueue(queue, Buffer.from('one'));
    assert.equal((await channel.assertQueue(queue)).messageCount, 1);
    await stage.consumer(channel, queue);
    assert.deepEqual(await channel.checkQueue(queue), { queue, messageCount: 0, consumerCount: 1 });
  },

  async a_server_names_a_queue(stage) {
    const channel = await stage.channel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    assert.match(queue, /^amq\.gen-/);
  },

  async a_missing_queue_is_not_found(stage) {
    await refused((await stage.channel()).checkQueue('node-nowhere'), 404, /NOT_FOUND - no queue 'node-nowhere'/);
  },

  async an_unlike_queue_is_refused(stage) {
    const queue = await stage.queue(await stage.channel());
    const again = (await stage.channel()).assertQueue(queue, { durable: false });
    await refused(again, 406, /PRECONDITION_FAILED - inequivalent arg 'durable' for queue/);
  },

  async an_unlike_exchange_is_refused(stage) {
    const exchange = await stage.exchange(await stage.channel(), 'direct');
    const again = (await stage.channel()).assertExchange(exchange, 'fanout');
    await refused(again, 406, /PRECONDITION_FAILED - inequivalent arg 'type' for exchange/);
  },

  async an_exclusive_queue_is_locked_for_others(stage) {
    const queue = await stage.queue(await stage.channel(), { exclusive: true });
    const other = await stage.channel(await stage.another());
    await refused(other.checkQueue(queue), 405, /RESOURCE_LOCKED/);
  },

  async an_exclusive_queue_goes_with_its_connection(stage) {
    const other = await stage.another();
    const queue = await stage.queue(await stage.channel(other), { exclusive: true });
    await other.close();
    await refused((await stage.channel()).checkQueue(queue), 404, /NOT_FOUND/);
  },

  async an_auto_delete_queue_goes_with_its_last_consumer(stage) {
    const channel = await stage.channel();
    const queue = await stage.queue(channel, { autoDelete: true });
    const inbox = await stage.consumer(channel, queue);
    await channel.cancel(inbox.tag);
    await refused(channel.checkQueue(queue), 404, /NOT_FOUND/);
  },

  async an_unused_queue_expires(stage) {
    const channel = await stage.channel();
    const gone = await stage.queue(channel, { expires: 100 });
    const later = await stage.queue(channel);
    const inbox = await stage.consumer(channel, later);
    const clock = await stage.queue(channel, { messageTtl: 800, deadLetterExchange: '', deadLetterRoutingKey: later });
    channel.sendToQueue(clock, Buffer.from('time is up'));
    await inbox.next();
    await refused(channel.checkQueue(gone), 404, /NOT_FOUND/);
  },

  async a_queue_in_use_is_not_deleted_if_unused_is_asked_for(stage) {
    const channel = await stage.channel();
    const queue = await stage.queue(channel);
    await stage.consumer(channel, queue);
    const deleting = (await stage.channel()).deleteQueue(queue, { ifUnused: true });
    await refused(deleting, 406, /PRECONDITION_FAILED/);
  },

  async a_queue_is_purged_and_deleted(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel);
    await publish(channel, '', queue, queue, queue);
    assert.deepEqual(await channel.purgeQueue(queue), { messageCount: 3 });
    await publish(channel, '', queue);
    assert.deepEqual(await channel.deleteQueue(queue), { messageCount: 1 });
  },

  async a_direct_exchange_compares_keys(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'direct');
    const queue = await stage.bound(channel, exchange, 'red', 'blue');
    await publish(channel, exchange, 'red', 'green', 'blue');
    assert.deepEqual(await ready(channel, queue), ['red', 'blue']);
  },

  async a_fanout_exchange_tells_everyone(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'fanout');
    const queues = [await stage.bound(channel, exchange, ''), await stage.bound(channel, exchange, 'ignored')];
    await publish(channel, exchange, 'news');
    for (const queue of queues) assert.deepEqual(await ready(channel, queue), ['news']);
  },

  async a_topic_exchange_matches_words(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'topic');
    const one = await stage.bound(channel, exchange, 'log.*');
    const many = await stage.bound(channel, exchange, 'log.#', '*.error');
    await publish(channel, exchange, 'log', 'log.error', 'log.disk.full', 'net.error', 'net.slow');
    assert.deepEqual(await ready(channel, one), ['log.error']);
    assert.deepEqual(await ready(channel, many), ['log', 'log.error', 'log.disk.full', 'net.error']);
  },

  async a_headers_exchange_compares_headers(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'headers');
    const all = await stage.bound(channel, exchange, { 'x-match': 'all', kind: 'pdf', pages: 3 });
    const any = await stage.bound(channel, exchange, { 'x-match': 'any', kind: 'pdf', pages: 3 });
    channel.publish(exchange, '', Buffer.from('both'), { headers: { kind: 'pdf', pages: 3, more: true } });
    channel.publish(exchange, '', Buffer.from('one'), { headers: { kind: 'pdf', pages: 4 } });
    channel.publish(exchange, '', Buffer.from('none'), { headers: { kind: 'png' } });
    await channel.waitForConfirms();
    assert.deepEqual(await ready(channel, all), ['both']);
    assert.deepEqual(await ready(channel, any), ['both', 'one']);
  },

  async an_exchange_is_bound_to_an_exchange(stage) {
    const channel = await stage.confirming();
    const source = await stage.exchange(channel, 'topic');
    const destination = await stage.exchange(channel, 'fanout', { internal: true });
    const queue = await stage.bound(channel, destination, '');
    await channel.bindExchange(destination, source, 'through.#');
    await publish(channel, source, 'through.it', 'past.it');
    await channel.unbindExchange(destination, source, 'through.#');
    await publish(channel, source, 'through.nothing');
    assert.deepEqual(await ready(channel, queue), ['through.it']);
  },

  async an_internal_exchange_takes_nothing_from_clients(stage) {
    const channel = await stage.channel();
    const exchange = await stage.exchange(channel, 'fanout', { internal: true });
    const closed = event(channel, 'error');
    channel.publish(exchange, '', Buffer.from('in'));
    assert.equal((await closed).code, 403);
  },

  async an_alternate_exchange_takes_what_has_no_queue(stage) {
    const channel = await stage.confirming();
    const rest = await stage.exchange(channel, 'fanout');
    const exchange = await stage.exchange(channel, 'direct', { alternateExchange: rest });
    const lost = await stage.bound(channel, rest, '');
    await stage.bound(channel, exchange, 'known');
    await publish(channel, exchange, 'known', 'unknown');
    assert.deepEqual(await ready(channel, lost), ['unknown']);
  },

  async an_unbound_queue_gets_no_more(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'direct');
    const queue = await stage.bound(channel, exchange, 'key', 'other');
    await channel.unbindQueue(queue, exchange, 'key');
    await publish(channel, exchange, 'key', 'other');
    assert.deepEqual(await ready(channel, queue), ['other']);
  },

  async a_missing_exchange_closes_the_channel(stage) {
    const channel = await stage.channel();
    const closed = event(channel, 'error');
    channel.publish('node-nowhere', 'key', Buffer.from('lost'));
    const error = await closed;
    assert.equal(error.code, 404);
    assert.match(error.message, /NOT_FOUND - no exchange 'node-nowhere' in vhost '\/'/);
  },

  async what_expires_is_dead_lettered(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'direct');
    const dead = await stage.bound(channel, exchange, 'dead');
    const options = { deadLetterExchange: exchange, deadLetterRoutingKey: 'dead' };
    const short = await stage.queue(channel, { ...options, messageTtl: 50 });
    const plain = await stage.queue(channel, options);
    const inbox = await stage.consumer(channel, dead);
    channel.sendToQueue(short, Buffer.from('by its queue'));
    channel.sendToQueue(plain, Buffer.from('by itself'), { expiration: 250 });
    const [first, second] = await inbox.take(2);
    assert.deepEqual(text([first, second]), ['by its queue', 'by itself']);
    for (const [message, queue] of [[first, short], [second, plain]]) {
      const [death] = message.properties.headers['x-death'];
      assert.deepEqual([death.reason, death.queue, death.count], ['expired', queue, 1]);
    }
    assert.equal(second.properties.expiration, undefined);
    assert.equal(second.properties.headers['x-death'][0]['original-expiration'], '250');
  },

  async what_is_too_much_goes_at_the_head(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'fanout');
    const dead = await stage.bound(channel, exchange, '');
    const queue = await stage.queue(channel, { maxLength: 2, deadLetterExchange: exchange });
    for (const body of ['one', 'two', 'three']) channel.sendToQueue(queue, Buffer.from(body));
    await channel.waitForConfirms();
    assert.deepEqual(await ready(channel, queue), ['two', 'three']);
    const [message] = await (await stage.consumer(channel, dead)).take(1);
    assert.equal(message.content.toString(), 'one');
    assert.equal(message.properties.headers['x-first-death-reason'], 'maxlen');
  },

  async a_full_queue_that_rejects_gives_a_nack(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel, { maxLength: 1, overflow: 'reject-publish' });
    const put = (body) =>
      new Promise((resolve) => channel.sendToQueue(queue, Buffer.from(body), {}, (error) => resolve(error === null)));
    assert.equal(await put('first'), true);
    assert.equal(await put('second'), false);
    assert.deepEqual(await ready(channel, queue), ['first']);
  },
};
