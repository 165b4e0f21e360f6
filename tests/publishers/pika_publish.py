#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""pika_publish.py QUEUE COUNT: COUNT messages through python3-pika, each twice, with a message id."""
import os
import sys

import pika

queue, count = sys.argv[1], int(sys.argv[2])
connection = pika.BlockingConnection(pika.URLParameters(os.environ["INBOXD_TEST_AMQP_URI"]))
channel = connection.channel()
channel.confirm_delivery()
for i in range(count):
    for _ in range(2):
        channel.basic_publish(
            "", queue, b'{"id": "pika-%d"}' % i,
            pika.BasicProperties(
                message_id="pika-%d" % i, content_type="application/json", delivery_mode=2,
                headers={"text": "é", "number": 2**40, "nothing": None, "list": [1, "x", {"y": True}]}),
            mandatory=True)
connection.close()
