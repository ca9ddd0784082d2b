"""Prints each event of a task. It misses none while it is down, as NATS remembers how far it has read."""

import asyncio
import os

import nats
from cloudevents.core.formats.json import JSONFormat


async def main() -> None:
    """Read the stream from where the last run ended."""
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    events = await client.jetstream().subscribe("plimsoll.v1.task.>", durable="example", manual_ack=True)
    async for message in events.messages:
        event = JSONFormat().read(None, message.data)
        print(event.get_type(), event.get_source(), event.get_data()["task"]["gpu"], flush=True)
        await message.ack()


asyncio.run(main())
