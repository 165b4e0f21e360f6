#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""stomp_publish.py QUEUE COUNT: COUNT messages through the broker's STOMP plugin, each twice.  STOMP is
plain enough to be spoken by hand; amqp-message-id becomes the message id."""
import os
import socket
import sys

queue, count = sys.argv[1], int(sys.argv[2])
stream = socket.create_connection(
    ("127.0.0.1", int(os.environ["INBOXD_TEST_STOMP_PORT"])), timeout=30).makefile("rwb")


def send(command, headers, body=b""):
    head = "".join("%s:%s\n" % h for h in headers)
    stream.write(("%s\n%s\n" % (command, head)).encode() + body + b"\0")
    stream.flush()


def expect(command):
    frame = b""
    while not frame.endswith(b"\0"):
        byte = stream.read(1)
        if not byte:
            sys.exit("the broker hung up; expected " + command)
        frame += byte
    if frame.lstrip().split(b"\n")[0] != command.encode():
        sys.exit("expected %s, got %r" % (command, frame))


send("CONNECT", [("accept-version", "1.2"), ("host", "/"), ("login", "inboxd"),
                 ("passcode", os.environ["INBOXD_TEST_AMQP_PASSWORD"])])
expect("CONNECTED")
for i in range(count):
    for copy in range(2):
        body = b'{"id": "stomp-%d"}' % i
        send("SEND", [("destination", "/amq/queue/" + queue), ("amqp-message-id", "stomp-%d" % i),
                      ("content-type", "application/json"), ("content-length", len(body)),
                      ("persistent", "true"), ("colour", "green"), ("receipt", "%d-%d" % (i, copy))], body)
        expect("RECEIPT")
send("DISCONNECT", [("receipt", "bye")])
expect("RECEIPT")
