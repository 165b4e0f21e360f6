#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""celery_publish.py QUEUE COUNT: COUNT Celery tasks, each sent twice with its task id."""
import os
import sys

from celery import Celery
from kombu import Queue

queue, count = sys.argv[1], int(sys.argv[2])
app = Celery("publisher", broker=os.environ["INBOXD_TEST_AMQP_URI"])
# The queue is there already; the default exchange routes to it by its name.
app.conf.task_queues = [Queue(queue, exchange="", routing_key=queue, no_declare=True)]
app.conf.task_default_queue = queue
for i in range(count):
    for _ in range(2):
        app.send_task("orders.book", args=[i], kwargs={"total": 10 * i}, task_id="celery-%d" % i,
                      queue=queue)
app.close()
