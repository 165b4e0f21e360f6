// SPDX-License-Identifier: MIT
// rabbitmq-client.js QUEUE COUNT: COUNT messages through Node's rabbitmq-client, each twice, with a
// message id.
'use strict';

const { Connection } = require('rabbitmq-client');

async function main(queue, count) {
	const rabbit = new Connection(process.env.INBOXD_TEST_AMQP_URI);
	const publisher = rabbit.createPublisher({ confirm: true });
	for (let i = 0; i < count; i++) {
		for (let copy = 0; copy < 2; copy++) {
			const envelope = {
				routingKey: queue,
				messageId: `rabbitmq-client-${i}`,
				durable: true,
				headers: { text: 'é', fraction: 1.5, big: 2 ** 40, flag: true, nothing: null },
			};
			await publisher.send(envelope, { id: `rabbitmq-client-${i}` });
		}
	}
	await publisher.close();
	await rabbit.close();
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
	console.error(error);
	process.exit(1);
});
