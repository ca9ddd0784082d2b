"""Starts a Valkey server in a folder, prints its process id, and lives until it is killed: `... FOLDER`."""

import asyncio
import sys
from pathlib import Path

from plimsoll_cli.demo.servers import valkey_server


async def main() -> None:
    """Runs the server."""
    async with valkey_server(Path(sys.argv[1])) as server:
        sys.stdout.write(f"{server.pid}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(main())
