// What the official Node.js client of RocketMQ 5 does against a front; README.md has the scenes.
'use strict';
const readline = require('node:readline');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const [scene, endpoints, topic, group, accessKey, accessSecret] = process.argv.slice(2);
const COMMIT = 1, ROLLBACK = 2;
const WITHIN_MS = 40_000;
const silent = { info() {}, warn() {}, error: (...told) => console.error(...told), debug() {} };
const common = {
  endpoints,
  namespace: '',
  requestTimeout: 15_000,
  logger: silent,
  sslEnabled: process.env.ESCROW_TLS === '1',
  sessionCredentials: accessKey ? { accessKey, accessSecret } : undefined,
};
const checker = {
  check: async view => (view.body.toString().startsWith('good') ? COMMIT : ROLLBACK),
};

function text(view) {
  const body = view.body.toString();
  const name = body.replace(/x+$/, '');
  return body.length - name.length > 1_000 ? `${name}*${body.length - name.length}` : body;
}

async function producing(isTransactional) {
  const producer = new Producer({ ...common, topic, checker: isTransactional ? checker : undefined });
  await producer.startup();
  return producer;
}

async function receiving() {
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: group, awaitDuration: 5_000, subscriptions: new Map([[topic, '*']]),
  });
  await consumer.startup();
  return consumer;
}

async function received(consumer, count, invisibleMs = 15_000, isAcked = true) {
  const seen = [];
  for (const end = Date.now() + WITHIN_MS; seen.length < count && Date.now() < end;) {
    for (const view of await consumer.receive(16, invisibleMs)) {
      seen.push(view);
      if (isAcked) await consumer.ack(view);
    }
  }
  return seen;
}

function line() {
  console.log('HELD');
  return new Promise(resolve => readline.createInterface({ input: process.stdin }).once('line', resolve));
}

// Does it as soon as the channel, which waits between its attempts, is connected again.
async function patiently(work) {
  for (const end = Date.now() + WITHIN_MS; ;) {
    try {
      return await work();
    } catch (error) {
      const isAway = /UNAVAILABLE|DEADLINE_EXCEEDED/.test(String(error));
      if (Date.now() > end || !isAway) throw error;
      await new Promise(resolve => setTimeout(resolve, 200));
    }
  }
}

async function pushed(count, isWell, work) {
  const seen = [];
  let enough;
  const isEnough = new Promise(resolve => { enough = resolve; });
  const consumer = new PushConsumer({
    ...common,
    consumerGroup: group,
    subscriptions: new Map([[topic, '*']]),
    messageListener: {
      consume(view) {
        seen.push(`${text(view)}:${view.deliveryAttempt}`);
        if (seen.length >= count) enough();
        return isWell(view) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
      },
    },
  });
  await consumer.startup();
  await work();
  await Promise.race([isEnough, new Promise(resolve => setTimeout(resolve, WITHIN_MS))]);
  return seen;
}

const scenes = {
  async simple() {
    const producer = await producing();
    for (let nth = 0; nth < 5; nth++) {
      await producer.send({
        topic, body: Buffer.from(`m${nth}`), tag: 'a', keys: [`k${nth}`], properties: new Map([['shop', '3']]),
      });
    }
    const seen = await received(await receiving(), 5);
    return seen.map(view => [text(view), view.tag, view.properties.get('shop'), view.deliveryAttempt].join(':')).sort();
  },
  async push() {
    const producer = await producing();
    const isWell = view => text(view) !== 'm7' || view.deliveryAttempt > 1;
    return (await pushed(11, isWell, async () => {
      for (let nth = 0; nth < 10; nth++) await producer.send({ topic, body: Buffer.from(`m${nth}`) });
    })).sort();
  },
  async fifo() {
    const producer = await producing();
    return pushed(20, () => true, async () => {
      for (let nth = 0; nth < 20; nth++) {
        const messageGroup = `g${nth % 2}`;
        await producer.send({ topic, body: Buffer.from(`${messageGroup}-${nth}`), messageGroup });
      }
    });
  },
  async delay() {
    const producer = await producing();
    const consumer = await receiving();
    const deliveryTimestamp = new Date(Math.floor(Date.now() / 1_000) * 1_000 + 3_000);
    const recalled = await producer.send({ topic, body: Buffer.from('recalled'), deliveryTimestamp });
    await producer.recallMessage(topic, recalled.recallHandle);
    await producer.send({ topic, body: Buffer.from('late'), deliveryTimestamp });
    const seen = await received(consumer, 1);
    return [...seen.map(text), Date.now() >= deliveryTimestamp.getTime() ? 'due' : 'early'];
  },
  async transactions() {
    const producer = await producing(true);
    for (const body of ['committed', 'rolled-back', 'good-orphan', 'bad-orphan']) {
      const transaction = producer.beginTransaction();
      await producer.send({ topic, body: Buffer.from(body) }, transaction);
      if (body === 'committed') await transaction.commit();
      else if (body === 'rolled-back') await transaction.rollback();
    }
    return (await received(await receiving(), 2)).map(text).sort();
  },
  async dead() {
    const producer = await producing();
    const seen = await pushed(2, () => false, () => producer.send({ topic, body: Buffer.from('poison') }));
    await line();
    return seen;
  },
  async ackedLater() {
    const producer = await producing();
    await producer.send({ topic, body: Buffer.from('held') });
    const consumer = await receiving();
    const [view] = await received(consumer, 1, 30_000, false);
    await line();
    await patiently(() => consumer.ack(view));
    return [text(view)];
  },
  async endedLater() {
    const producer = await producing(true);
    const transaction = producer.beginTransaction();
    await producer.send({ topic, body: Buffer.from('kept') }, transaction);
    await line();
    await patiently(() => transaction.commit());
    return (await received(await receiving(), 1)).map(text);
  },
  async send() {
    const producer = await producing();
    for (const body of ['short', 'long' + 'x'.repeat(20_000)]) {
      await producer.send({ topic, body: Buffer.from(body) });
    }
    return ['sent'];
  },
  async receive() {
    return (await received(await receiving(), Number(process.env.ESCROW_COUNT))).map(text).sort();
  },
};

scenes[scene]().then(
  seen => { console.log('SEEN ' + seen.join(',')); process.exit(0); },
  error => { console.log('REFUSED ' + error.message); console.error(error); process.exit(1); },
);
