# expect: PASS | kind=stdin
# why: an event loop, which wakes itself through a socket pair
import asyncio
async def main():
    await asyncio.sleep(0)
    print(2 * int(input()))
asyncio.run(main())
