"""The blocking clients: the methods of the asyncio clients without `await`, callable from any
thread. Each method runs its asyncio counterpart on the shared event loop and contains no logic of
its own."""
