// SPDX-License-Identifier: MIT
// amqplib.js QUEUE COUNT: COUNT messages through Node's amqplib, each twice, with a message id.
'use strict';

const amqplib = require('amqplib');

async function main(queue, count) {
	const connection = await amqplib.connect(process.env.INBOXD_TEST_AMQP_URI);
	const channel = await connection.createConfirmChannel();
	for (let i = 0; i < count; i++) {
		for (let copy = 0; copy < 2; copy++) {
			channel.sendToQueue(queue, Buffer.from(JSON.stringify({ id: `amqplib-${i}` })), {
				messageId: `amqplib-${i}`,
				contentType: 'application/json',
				persistent: true,
				headers: { text: 'é', fraction: 1.5, big: 2 ** 40, flag: true, nothing: null, list: [1, 'x'] },
			});
		}
	}
	await channel.waitForConfirms();
	await connection.close();
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
	console.error(error);
	process.exit(1);
});
