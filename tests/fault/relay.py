#!/usr/bin/env python3
"""A relay between unix sockets that can be frozen: SIGSTOP makes every connection through it
half-open, with no error for either side.

usage: relay.py LISTEN_PATH TARGET_PATH
"""
import asyncio
import os
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(listen_path, target_path):
    async def serve(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(target_path)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    # Where no socket is before it listens, none is refused.
    server = await asyncio.start_unix_server(serve, listen_path + ".new")
    os.rename(listen_path + ".new", listen_path)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], sys.argv[2]))
