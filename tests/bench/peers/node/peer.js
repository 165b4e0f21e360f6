// SPDX-License-Identifier: MIT
// peer.js pool|one|batch: a consumer written by hand on amqplib and pg, for `make bench`.
// pool is a transaction for each message, one the same in a single statement, batch takes up to a hundred.
//
// As amqplib's documentation has it: manual acks with a prefetch, and a channel that fails is not used again.
// As that of pg has it: a pool, one client of it for all statements of a transaction, named statements,
// which are planned once for each connection.
'use strict';

const amqplib = require('amqplib');
const { Pool } = require('pg');

const POOL = 10;
const PREFETCH = 10 * POOL;
const BATCH = 100;

const marker = {
	name: 'marker',
	text: 'INSERT INTO bench_marker (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING',
};
const row = {
	name: 'row',
	text: 'INSERT INTO bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3, $4)',
};
const both = {
	name: 'both',
	text: `WITH fresh AS (
			INSERT INTO bench_marker (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING RETURNING key)
		INSERT INTO bench_row (id, account, amount, sent_us)
		SELECT $2, $3, $4::numeric, $5::bigint FROM fresh`,
};
// The rows of a batch that are new.  Their keys come sorted, so that two copies of the program never wait for
// each other in a circle.
const many = {
	name: 'many',
	text: `WITH fresh AS (
			INSERT INTO bench_marker (consumer, key)
			SELECT 1, k FROM unnest($1::text[]) k ON CONFLICT DO NOTHING RETURNING key)
		INSERT INTO bench_row (id, account, amount, sent_us)
		SELECT r.id, r.account, r.amount, r.sent_us
		FROM unnest($1::text[], $2::text[], $3::text[], $4::numeric[], $5::bigint[])
			r (key, id, account, amount, sent_us)
		JOIN fresh USING (key)`,
};

const values_of = (body) => [body.id, body.account, body.amount, body.sent_us];

async function in_transaction(pool, message) {
	const key = message.properties.messageId;
	const client = await pool.connect();
	try {
		await client.query('BEGIN');
		const claimed = await client.query({ ...marker, values: [key] });
		if (claimed.rowCount === 1)
			await client.query({ ...row, values: values_of(JSON.parse(message.content)) });
		await client.query('COMMIT');
	} catch (error) {
		client.release(error);
		throw error;
	}
	client.release();
}

async function in_statement(pool, message) {
	const values = values_of(JSON.parse(message.content));
	await pool.query({ ...both, values: [message.properties.messageId, ...values] });
}

async function in_sets(pool, messages) {
	const bodies = new Map();
	for (const message of messages)
		bodies.set(message.properties.messageId, message.content);
	const columns = [[], [], [], [], []];
	for (const key of [...bodies.keys()].sort())
		[key, ...values_of(JSON.parse(bodies.get(key)))].forEach((value, i) => columns[i].push(value));
	await pool.query({ ...many, values: columns });
}

// Whatever goes wrong ends the program: the broker gives what is not acked to the next one.
function fail(error) {
	console.error(error);
	process.exit(1);
}

async function open_channel(connection, prefetch) {
	const channel = await connection.createChannel();
	channel.on('error', fail);
	await channel.prefetch(prefetch);
	return channel;
}

async function consume_each(connection, pool, work) {
	const channel = await open_channel(connection, PREFETCH);
	await channel.consume(process.env.BENCH_QUEUE, (message) => {
		if (message === null)
			return fail(new Error('cancelled by the broker'));
		work(pool, message).then(() => channel.ack(message), fail);
	});
}

// One batch at a time, of what is there, while the next ones arrive: one ack is for all of it.
async function consume_batches(connection, pool) {
	const channel = await open_channel(connection, 10 * BATCH);
	const waiting = [];
	let is_busy = false;
	const take = async () => {
		is_busy = true;
		while (waiting.length > 0) {
			const messages = waiting.splice(0, BATCH);
			await in_sets(pool, messages);
			channel.ack(messages.at(-1), true);
		}
		is_busy = false;
	};
	await channel.consume(process.env.BENCH_QUEUE, (message) => {
		if (message === null)
			return fail(new Error('cancelled by the broker'));
		waiting.push(message);
		// Once the rest of what came in the same read is here too.
		if (!is_busy) {
			is_busy = true;
			setImmediate(() => take().catch(fail));
		}
	});
}

async function main(mode) {
	const pool = new Pool({ max: POOL });
	pool.on('error', fail);
	const connection = await amqplib.connect(process.env.BENCH_AMQP_URI);
	connection.on('error', fail);
	process.on('SIGTERM', () => process.exit(0));
	if (mode === 'pool')
		await consume_each(connection, pool, in_transaction);
	else if (mode === 'one')
		await consume_each(connection, pool, in_statement);
	else if (mode === 'batch')
		await consume_batches(connection, pool);
	else
		throw new Error('usage: peer.js pool|one|batch');
}

main(process.argv[2]).catch(fail);
