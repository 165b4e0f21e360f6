// SPDX-License-Identifier: MIT
// peer.js setup|polling|replication: an inbox on the library pg-transactional-outbox, for `make bench`.
// setup makes its table anew; the other two are its listeners.
//
// As its documentation has it: a receiver puts the messages into the inbox table, whose primary key tells which
// are new, and acks them; a listener runs the handler in the transaction that marks the message as done.  Both
// protections are on, as it says they always should be for an inbox.  The messages are independent, so they are
// handled in parallel: concurrency `parallel` for polling, a semaphore for replication.  The roles of handler and
// listener, which it would rather have apart, are one here.  bench_marker is not used: the inbox table is the marker.
'use strict';

const amqplib = require('amqplib');
const { Client, Pool } = require('pg');
const outbox = require('pg-transactional-outbox');

const POOL = 10;
const PREFETCH = 100;
const BATCH = 50;

const names = {
	schema: 'public',
	table: 'inbox',
	publication: 'bench_inbox_publication',
	slot: 'bench_inbox_slot',
	next: 'next_inbox_messages',
};

// Of the PG* variables; the library hands it to both a Client and its Pools.
const database = { max: POOL };

const base = {
	outboxOrInbox: 'inbox',
	dbListenerConfig: database,
	settings: {
		dbSchema: names.schema,
		dbTable: names.table,
		enableMaxAttemptsProtection: true,
		enablePoisonousMessageProtection: true,
	},
};

function fail(error) {
	console.error(error);
	process.exit(1);
}

// ---- the table -------------------------------------------------------------------------------

async function set_up() {
	const client = new Client();
	await client.connect();
	const { rows } = await client.query(`SELECT current_database() AS database, current_user AS role,
		current_setting('wal_level') = 'logical' AND (rolreplication OR rolsuper) AS may_replicate
		FROM pg_roles WHERE rolname = current_user`);
	const { database, role, may_replicate } = rows[0];
	const config = {
		outboxOrInbox: 'inbox',
		database,
		schema: names.schema,
		table: names.table,
		listenerRole: role,
		nextMessagesName: names.next,
		publication: names.publication,
		replicationSlot: names.slot,
	};
	const s = outbox.DatabaseSetup;
	await client.query(s.dropAndCreateTable(config));
	await client.query(s.grantPermissions(config));
	await client.query(s.createPollingFunction(config));
	await client.query(s.setupPollingIndexes(config));
	// Replication needs wal_level=logical and a role with REPLICATION; what gives it the latter is left out.
	if (may_replicate) {
		await client.query(`DROP PUBLICATION IF EXISTS ${names.publication}`);
		await client.query(`CREATE PUBLICATION ${names.publication} FOR TABLE ${names.schema}.${names.table}
			WITH (publish = 'insert')`);
		for (const statement of s.setupReplicationSlot(config).split(';'))
			await client.query(statement);
	}
	await client.end();
}

// ---- into the inbox --------------------------------------------------------------------------

async function receive(logger) {
	const store = outbox.initializeMessageStorage(base, logger);
	const pool = new Pool(database);
	pool.on('error', fail);
	const connection = await amqplib.connect(process.env.BENCH_AMQP_URI);
	connection.on('error', fail);
	const channel = await connection.createChannel();
	channel.on('error', fail);
	await channel.prefetch(PREFETCH);
	const put = async (message) => {
		const body = JSON.parse(message.content);
		const client = await pool.connect();
		await outbox.executeTransaction(client, (c) => store({
			id: message.properties.messageId,
			aggregateType: 'order',
			aggregateId: body.account,
			messageType: 'order_sent',
			concurrency: 'parallel',
			payload: body,
		}, c), outbox.IsolationLevel.ReadCommitted);
	};
	await channel.consume(process.env.BENCH_QUEUE, (message) => {
		if (message === null)
			return fail(new Error('cancelled by the broker'));
		put(message).then(() => channel.ack(message), fail);
	});
}

// ---- out of the inbox ------------------------------------------------------------------------

const handler = {
	aggregateType: 'order',
	messageType: 'order_sent',
	handle: async ({ payload }, client) => {
		await client.query('INSERT INTO bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3, $4)',
			[payload.id, payload.account, payload.amount, payload.sent_us]);
	},
};

function listen(mode, logger) {
	if (mode === 'polling') {
		outbox.initializePollingMessageListener({
			...base,
			settings: {
				...base.settings,
				nextMessagesBatchSize: BATCH,
				nextMessagesFunctionName: names.next,
				nextMessagesPollingIntervalInMs: 250,
			},
		}, [handler], logger);
		return;
	}
	outbox.initializeReplicationMessageListener({
		...base,
		settings: { ...base.settings, dbPublication: names.publication, dbReplicationSlot: names.slot },
	}, [handler], logger, {
		concurrencyStrategy: outbox.createReplicationSemaphoreConcurrencyController(POOL),
	});
}

async function main(mode) {
	if (mode === 'setup')
		return set_up();
	if (mode !== 'polling' && mode !== 'replication')
		throw new Error('usage: peer.js setup|polling|replication');
	// Its storage warns of each repeated message.
	const logger = outbox.getDefaultLogger('inbox');
	logger.level = 'error';
	process.on('SIGTERM', () => process.exit(0));
	listen(mode, logger);
	await receive(logger);
}

main(process.argv[2]).catch(fail);
