"""What asking a server costs ``vlm_server`` itself: processor time, wall time and memory.

    python benchmarks/served_requests.py [processor] [wall] [memory] [--base-url URL --model NAME] [--questions N]

- ``processor``: processor time of this process per generating request, text alone, with a journal.
- ``wall``: the time for generating requests with images, against a bare loop in asyncio that sends the same bodies, as
  many at once. The two alternate, so that a busy machine slows both; the first round of each is left out.
- ``memory``: the most that this process holds, for many questions with an image each.

The server is one of our own in another process, which answers each request after ``--seconds``, or that of
``--base-url``. Exits with 1 where a limit is missed: 2 ms, 1.15 times, 1.5 GB.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MOST_MS, MOST_RATIO, MOST_GB = 2.0, 1.15, 1.5
ROUNDS = 5
REPLY = {
    "id": "1",
    "object": "chat.completion",
    "created": 0,
    "model": "tiny",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "A"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 300, "completion_tokens": 1, "total_tokens": 301},
}
SETTINGS = {"until": ["\n\n"], "max_new_tokens": 16, "temperature": 0}


# ---- the server ----


async def answer_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    """Answer each request of a connection."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        _, _, length = head.partition(b"content-length:")
        if length:
            await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        is_question = head.startswith(b"post")
        await asyncio.sleep(seconds if is_question else 0)
        body = json.dumps(
            REPLY if is_question else {"data": [{"id": "tiny"}], "version": "0"}
        ).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


async def serve(seconds: float) -> None:
    """Print the port and serve until the process is ended."""
    server = await asyncio.start_server(
        lambda *streams: answer_all(*streams, seconds),
        "127.0.0.1",
        0,
        limit=2**20,
        backlog=4096,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# ---- the questions ----


def drawn(number: int, side: int) -> Any:
    """Return an image that no other number has."""
    import numpy as np
    from PIL import Image

    rows, columns = np.mgrid[:side, :side]
    waves = [rows * (number % 97 + 1) + columns * part + number for part in (1, 2, 3)]
    return Image.fromarray(np.stack(waves, -1).astype(np.uint8))


class Questions:
    """Documents that are drawn when they are read."""

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side

    def __getitem__(self, number: int) -> dict[str, int]:
        return {"number": number}

    def requests(self) -> list[Any]:
        """Return one generating request per question."""
        from lmms_eval.api.instance import Instance

        visual = (lambda doc: [drawn(doc["number"], self.side)]) if self.side else None
        text = "Question {}: is there an effusion on the left?\nA. yes\nB. no\nAnswer:"
        return [
            Instance(
                "generate_until",
                (text.format(at), SETTINGS, visual, at, "t", "s"),
                0,
                metadata={"task": "t", "doc_id": at, "repeats": 1},
            )
            for at in range(self.count)
        ]


class Bench:
    """An adapter on a server, whose journal is new with every call."""

    def __init__(self, base_url: str, model: str, concurrency: int) -> None:
        self.given = {"base_url": base_url, "model": model, "concurrency": concurrency}

    def answered(
        self, questions: Questions, bodies: list[Any] | None = None
    ) -> tuple[float, float]:
        """Ask all questions; returns seconds of processor and wall, and collects the bodies."""
        from medtasks.model_adapters.vlm_server import VlmServer

        with tempfile.TemporaryDirectory() as folder:
            model = VlmServer(**self.given, journal=folder)
            model.task_dict = {"t": {"s": questions}}  # type: ignore[dict-item]  # what it asks of documents
            if bodies is not None:
                for client in model.clients:
                    collect(client, bodies)
            requests = questions.requests()
            began = time.process_time(), time.perf_counter()
            replies = model.generate_until(requests)
            spent = time.process_time() - began[0], time.perf_counter() - began[1]
            assert not any("adapter_failed" in str(reply) for reply in replies)
            model.clean()
        return spent

    async def bare(self, bodies: Sequence[Any]) -> float:
        """Send the same bodies, as many at once; returns the seconds."""
        from openai import AsyncOpenAI

        left = iter(bodies)
        async with AsyncOpenAI(base_url=self.given["base_url"], api_key="none") as client:

            async def work() -> None:
                for body in left:
                    await client.post("chat/completions", cast_to=object, body=body)

            began = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(self.given["concurrency"])))
            return time.perf_counter() - began


def collect(client: Any, bodies: list[Any]) -> None:
    """Keep the body of every request of a client."""
    send = client.post

    async def post(path: str, **more: Any) -> Any:
        bodies.append(more["body"])
        return await send(path, **more)

    client.post = post


# ---- what is measured ----


def processor(bench: Bench, count: int) -> bool:
    """Print and judge processor time per request."""
    bench.answered(Questions(64, 0))
    spent = sorted(bench.answered(Questions(count, 0))[0] / count * 1000 for _ in range(ROUNDS))
    print(
        f"processor: {statistics.median(spent):.2f} ms per request (of {count}, {ROUNDS} rounds from {spent[0]:.2f})"
    )
    return spent[0] <= MOST_MS


def wall(bench: Bench, count: int, side: int) -> bool:
    """Print and judge the time against the bare loop."""
    bodies: list[Any] = []
    bench.answered(Questions(count, side), bodies)
    asyncio.run(bench.bare(bodies))
    times = [
        (bench.answered(Questions(count, side))[1], asyncio.run(bench.bare(bodies)))
        for _ in range(ROUNDS)
    ]
    ours, bare = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = sorted(one / other for one, other in times)
    print(
        f"wall: {count} requests in {ours:.2f} s, bare {bare:.2f} s, ratio {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )
    return statistics.median(ratios) <= MOST_RATIO


def memory(bench: Bench, count: int, side: int) -> bool:
    """Print and judge the highest resident memory."""
    bench.answered(Questions(64, side))
    before, spent = resident("VmRSS"), bench.answered(Questions(count, side))
    most = resident("VmHWM")
    print(
        f"memory: {most:.2f} GB at most, {before:.2f} GB after the first 64, {count} questions of {side} x {side} "
        f"in {spent[1]:.0f} s ({spent[0]:.0f} s of processor)"
    )
    return most <= MOST_GB


def resident(name: str) -> float:
    """Return a line of this process's status, in GB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["processor", "wall", "memory"])
    parser.add_argument("--base-url")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--questions", type=int, help="by default 1000, 256 and 26000")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--side", type=int, default=448, help="of an image, in pixels")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="that our server takes for an answer"
    )
    given = parser.parse_args()
    if given.what == ["serve"]:
        return asyncio.run(serve(given.seconds))
    command = [sys.executable, __file__, "serve", "--seconds", str(given.seconds)]
    os.environ["HF_HUB_OFFLINE"] = "1"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        bench = Bench(
            given.base_url or f"http://127.0.0.1:{server.stdout.readline().strip()}/v1",
            given.model,
            given.concurrency,
        )
        measured: dict[str, Callable[[], bool]] = {
            "processor": lambda: processor(bench, given.questions or 1000),
            "wall": lambda: wall(bench, given.questions or 256, given.side),
            "memory": lambda: memory(bench, given.questions or 26_000, given.side),
        }
        try:
            kept = [measured[name]() for name in given.what]
        finally:
            server.terminate()
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
