#!/usr/bin/env python3
"""A relay between unix sockets, to a PostgreSQL server.

It can be frozen: SIGSTOP makes every connection through it half-open, with no error for
either side. And it can lose answers: of every second execution of a prepared statement the
answer is dropped, whole, when the server has committed, and the connection is closed. It
then says "lost" on stdout.

usage: relay.py LISTEN_PATH TARGET_PATH [STATEMENT]
"""
import asyncio
import os
import sys


class Messages:
    """Finds the messages of one direction in its stream: a type, a length, a body."""

    def __init__(self, types):
        self.buffer = bytearray()
        self.types = types  # the first message of a client has none

    def take(self, data):
        self.buffer += data
        while len(self.buffer) >= 5:
            end = int.from_bytes(self.buffer[self.types : self.types + 4], "big") + self.types
            if len(self.buffer) < end:
                return
            yield bytes(self.buffer[:1]) if self.types else b"", bytes(self.buffer[5:end])
            del self.buffer[:end]
            self.types = 1


class Connection:
    executions = 0  # of the statement, by all connections

    def __init__(self, statement):
        self.statement = statement and statement.encode()
        self.losing = False
        self.sent = Messages(0)
        self.answered = Messages(1)

    def on_sent(self, data):
        """Passes all on, and notes when an answer is to be lost."""
        for kind, body in self.sent.take(data):
            if kind == b"B" and body.split(b"\0")[1] == self.statement:
                Connection.executions += 1
                self.losing = Connection.executions % 2 == 1
        return data

    def on_answered(self, data):
        """Returns what to pass on; None: the answer is lost, and all is over."""
        for kind, _ in self.answered.take(data):
            if self.losing and kind == b"Z":  # ready: what was executed is committed
                print("lost", flush=True)
                return None
        return b"" if self.losing else data


async def pump(reader, writer, transform):
    try:
        while data := await reader.read(65536):
            data = transform(data)
            if data is None:
                break
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(listen_path, target_path, statement=None):
    async def serve(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(target_path)
        except OSError:
            writer.close()
            return
        connection = Connection(statement)
        await asyncio.gather(
            pump(reader, far_writer, connection.on_sent),
            pump(far_reader, writer, connection.on_answered),
        )

    # Where no socket is before it listens, none is refused.
    server = await asyncio.start_unix_server(serve, listen_path + ".new")
    os.rename(listen_path + ".new", listen_path)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
