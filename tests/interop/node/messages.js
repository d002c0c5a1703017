// Steps of walk.js about messages: published, confirmed, returned, delivered, acknowledged, given back.
'use strict';

const assert = require('node:assert/strict');
const { event, ready, refused, text } = require('./stage');

/** A queue that holds these bodies, in this order. */
async function filled(stage, channel, bodies, options = {}) {
  const queue = await stage.queue(channel, options);
  for (const body of bodies) channel.sendToQueue(queue, Buffer.from(body), { persistent: true });
  await channel.waitForConfirms();
  return queue;
}

/** Nothing more has come than was taken: what the broker sent before its answer to a get has arrived with it. */
async function assertNoMore(channel, inbox) {
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.get(queue);
  assert.equal(inbox.waiting, 0);
}

module.exports = {
  async every_publish_is_confirmed(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel);
    let confirmed = 0;
    for (let number = 0; number < 1000; number++) {
      channel.sendToQueue(queue, Buffer.from(`${number}`), { persistent: true }, (error) => {
        if (error === null) confirmed += 1;
      });
    }
    await channel.waitForConfirms();
    assert.equal(confirmed, 1000);
    assert.equal((await channel.checkQueue(queue)).messageCount, 1000);
  },

  async bodies_and_properties_come_as_they_were_sent(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel);
    const body = Buffer.alloc(1 << 20, 'warren');
    const options = {
      contentType: 'text/plain', contentEncoding: 'none', deliveryMode: 2, priority: 4, correlationId: 'c', replyTo: 'r',
      expiration: '60000', messageId: 'm', timestamp: 1700000000, type: 't', userId: 'guest', appId: 'a',
      headers: { text: 'ü', number: 7, real: 0.5, yes: true, nothing: null, list: [1, 'two'], table: { deep: { er: 1 } } },
    };
    channel.sendToQueue(queue, body, options);
    channel.sendToQueue(queue, Buffer.alloc(0));
    const [message, empty] = await (await stage.consumer(channel, queue)).take(2);
    assert.ok(message.content.equals(body));
    for (const [name, value] of Object.entries(options)) assert.deepEqual(message.properties[name], value, name);
    assert.equal(empty.content.length, 0);
  },

  async deliveries_come_in_order_and_are_acknowledged(stage) {
    const channel = await stage.confirming();
    const bodies = Array.from({ length: 100 }, (_, number) => `${number}`);
    const queue = await filled(stage, channel, bodies);
    const messages = await (await stage.consumer(channel, queue)).take(100);
    assert.deepEqual(text(messages), bodies);
    assert.deepEqual(messages.map((message) => message.fields.deliveryTag), bodies.map((body) => Number(body) + 1));
    channel.ack(messages[0]);
    channel.ack(messages[98], true);
    await channel.close();
    const again = await (await stage.channel()).get(queue);
    assert.deepEqual([again.content.toString(), again.fields.redelivered], ['99', true]);
  },

  async a_consumer_without_acks_needs_none(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two']);
    assert.deepEqual(text(await (await stage.consumer(channel, queue, { noAck: true })).take(2)), ['one', 'two']);
    await channel.close();
    assert.equal((await (await stage.channel()).checkQueue(queue)).messageCount, 0);
  },

  async what_is_nacked_comes_again_at_its_old_place(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two', 'three']);
    const inbox = await stage.consumer(channel, queue);
    const first = await inbox.take(3);
    await channel.cancel(inbox.tag);
    channel.nack(first[1], true, true);
    const again = [await channel.get(queue), await channel.get(queue)];
    assert.deepEqual(text(again), ['one', 'two']);
    assert.deepEqual(again.map((message) => message.fields.redelivered), [true, true]);
    assert.equal(await channel.get(queue), false);
  },

  async what_is_rejected_is_dead_lettered(stage) {
    const channel = await stage.confirming();
    const exchange = await stage.exchange(channel, 'fanout');
    const dead = await stage.bound(channel, exchange, '');
    const queue = await filled(stage, channel, ['bad', 'worse'], { deadLetterExchange: exchange });
    const [bad, worse] = await (await stage.consumer(channel, queue)).take(2);
    channel.reject(bad, false);
    channel.nack(worse, false, false);
    const messages = await (await stage.consumer(channel, dead)).take(2);
    assert.deepEqual(text(messages), ['bad', 'worse']);
    const [death] = messages[0].properties.headers['x-death'];
    assert.deepEqual([death.reason, death.queue, death['routing-keys'], death.count], ['rejected', queue, [queue], 1]);
  },

  async all_that_is_unacknowledged_is_recovered(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two']);
    const inbox = await stage.consumer(channel, queue);
    await inbox.take(2);
    await channel.recover();
    const again = await inbox.take(2);
    assert.deepEqual(text(again), ['one', 'two']);
    assert.ok(again.every((message) => message.fields.redelivered));
  },

  async a_consumer_has_no_more_than_its_prefetch(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two', 'three', 'four']);
    await channel.prefetch(2);
    const inbox = await stage.consumer(channel, queue);
    const [first] = await inbox.take(2);
    await assertNoMore(channel, inbox);
    channel.ack(first);
    assert.deepEqual(text(await inbox.take(1)), ['three']);
    await assertNoMore(channel, inbox);
  },

  async consumers_of_a_channel_share_a_global_prefetch(stage) {
    const channel = await stage.confirming();
    const queues = [await filled(stage, channel, ['one', 'two']), await filled(stage, channel, ['three', 'four'])];
    await channel.prefetch(3, true);
    const first = await stage.consumer(channel, queues[0]);
    const got = await first.take(2);
    const second = await stage.consumer(channel, queues[1]);
    await second.take(1);
    await assertNoMore(channel, second);
    channel.ack(got[0]);
    assert.deepEqual(text(await second.take(1)), ['four']);
  },

  async a_raised_global_prefetch_reaches_consumers_that_are_there(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two', 'three']);
    await channel.prefetch(1, true);
    const inbox = await stage.consumer(channel, queue);
    await inbox.take(1);
    await assertNoMore(channel, inbox);
    await channel.prefetch(3, true);
    assert.deepEqual(text(await inbox.take(2)), ['two', 'three']);
  },

  async a_get_tells_what_is_left(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two']);
    const message = await channel.get(queue);
    assert.deepEqual([message.content.toString(), message.fields.messageCount], ['one', 1]);
    channel.ack(message);
    await channel.get(queue, { noAck: true });
    assert.equal(await channel.get(queue), false);
  },

  async what_nobody_wants_is_returned_before_it_is_confirmed(stage) {
    const channel = await stage.confirming();
    const seen = [];
    channel.on('return', (message) => seen.push(`${message.fields.replyCode} ${message.fields.replyText} ${message.content}`));
    channel.publish('', 'node-nowhere', Buffer.from('lost'), { mandatory: true }, () => seen.push('confirmed'));
    await channel.waitForConfirms();
    assert.deepEqual(seen, ['312 NO_ROUTE lost', 'confirmed']);
  },

  async urgent_messages_come_first(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel, { maxPriority: 5 });
    for (const priority of [1, 5, 0, 3, 9]) channel.sendToQueue(queue, Buffer.from(`${priority}`), { priority });
    await channel.waitForConfirms();
    assert.deepEqual(await ready(channel, queue), ['5', '9', '3', '1', '0']);
  },

  async consumers_take_turns(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel);
    const inboxes = [await stage.consumer(channel, queue), await stage.consumer(channel, queue)];
    for (let number = 0; number < 10; number++) channel.sendToQueue(queue, Buffer.from(`${number}`));
    for (const inbox of inboxes) await inbox.take(5);
  },

  async an_exclusive_consumer_is_alone(stage) {
    const channel = await stage.channel();
    const queue = await stage.queue(channel);
    await stage.consumer(channel, queue, { exclusive: true });
    await refused((await stage.channel()).consume(queue, () => {}), 403, /ACCESS_REFUSED/);
  },

  async a_cancelled_consumer_gets_no_more(stage) {
    const channel = await stage.confirming();
    const queue = await stage.queue(channel);
    const inbox = await stage.consumer(channel, queue, { consumerTag: 'mine' });
    assert.equal(inbox.tag, 'mine');
    await channel.cancel('mine');
    channel.sendToQueue(queue, Buffer.from('late'));
    await channel.waitForConfirms();
    assert.deepEqual(await ready(channel, queue), ['late']);
    assert.equal(inbox.waiting, 0);
  },

  async a_consumer_is_told_when_its_queue_goes(stage) {
    const channel = await stage.channel();
    const queue = await stage.queue(channel);
    const inbox = await stage.consumer(channel, queue);
    await (await stage.channel()).deleteQueue(queue);
    assert.equal(await inbox.next(), null);
  },

  async what_was_never_delivered_cannot_be_acknowledged(stage) {
    const channel = await stage.channel();
    const closed = event(channel, 'error');
    channel.ack({ fields: { deliveryTag: 7 } });
    const error = await closed;
    assert.equal(error.code, 406);
    assert.match(error.message, /PRECONDITION_FAILED - unknown delivery tag 7/);
  },

  async a_closed_channel_gives_back_what_it_held(stage) {
    const channel = await stage.confirming();
    const queue = await filled(stage, channel, ['one', 'two']);
    const other = await stage.channel(await stage.another());
    await (await stage.consumer(other, queue)).take(2);
    await other.close();
    const message = await channel.get(queue);
    assert.deepEqual([message.content.toString(), message.fields.redelivered], ['one', true]);
  },
};
