"""The scheduler's body: asyncio around the pure core, and the clients that use it."""
