"""One of several api servers of a cluster: stands by until it leads, then serves as a single one does.

A standby has read nothing and holds nothing but its place in the queue: it answers every request with 503 and says who
leads (``/leader`` and ``/healthz`` are for balancers and supervisors). The one that wins the node in the state store
(``core/leadership``) takes up the home as after a crash of its own; from then on all that it writes to the store goes
through the fence (``heron_runtime.state.fenced``). Who can lead no longer ends as a process, and what was under way
with it; whoever started it starts it again, and it stands by.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse, PlainTextResponse, Response

from heron_apiserver.api_server import ApiServer
from heron_apiserver.leadership import Leadership, LeadershipStep
from heron_apiserver.responses import problem
from heron_apiserver.routes.server import Ready
from heron_control.web.names import UNDONE_HEADER
from heron_runtime.failures import Failure
from heron_runtime.state.store import Create, SessionState, StateStore, StoreError

RETRY_SECONDS = 1.0
HOME_ID = "home-id"
log = logging.getLogger("heron_apiserver")


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """What stands in the node. ``home`` is drawn for each home, ``claim`` for each process; ``where`` is for people."""

    claim: str
    home: str
    where: str

    @classmethod
    def of(cls, home: Path, where: str) -> LeaderRecord:
        """Of this process. Raises OSError."""
        return cls(secrets.token_hex(16), home_id(home), where)

    def encode(self) -> bytes:
        """As it stands in the store."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderRecord:
        """Of any process; what cannot be read is somebody."""
        try:
            found = json.loads(data)
            return cls(str(found["claim"]), str(found["home"]), str(found["where"]))
        except (ValueError, KeyError, TypeError):
            return cls("?", "", "an api server of another release")


def home_id(home: Path) -> str:
    """What tells this home from every other; drawn by whoever comes first. Raises OSError."""
    made = home / f".{HOME_ID}.{secrets.token_hex(4)}"
    made.write_text(secrets.token_hex(16))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(made, home / HOME_ID)
    finally:
        made.unlink()
    return (home / HOME_ID).read_text()


class Replica:
    """An ASGI application. ``lead`` makes what serves, from the home as it is then; ``end`` ends the process."""

    def __init__(
        self, store: StateStore, node: str, leader: LeaderRecord, lead: Callable[[], tuple[ApiServer, FastAPI]],
        end: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._node = node
        self._mine = leader
        self._lead = lead
        self._end = end
        self._core = Leadership(leader.claim)
        self._inbox: asyncio.Queue[Callable[[], list[LeadershipStep]]] = (
            asyncio.Queue()
        )  # a step is answered by one event
        self._seen: LeaderRecord | None = None
        self._trouble = "starting"
        self._serving: tuple[ApiServer, FastAPI] | None = None
        self._life = contextlib.AsyncExitStack()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Whoever leads answers; a standby says that it is one."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._serving is not None:
            await self._serving[1](scope, receive, send)
        else:
            await self._answer(scope.get("path", ""))(scope, receive, send)

    def _answer(self, path: str) -> Response:
        if path == "/healthz":
            return PlainTextResponse("ok")
        if path == "/readyz":
            return JSONResponse(Ready(ready=False, trouble="standby", topologies=0).model_dump(), 503)
        leader = self._seen
        why = f"{leader.where} leads" if leader else self._trouble or "nobody leads at this moment"
        return problem(
            503, f"this api server stands by: {why}", "Try again in a few seconds, or ask that one.",
            headers={UNDONE_HEADER: "standby"},
        )  # fmt: skip

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        election = asyncio.create_task(self._elect(), name="election")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)
        await self._life.aclose()
        await asyncio.to_thread(self._store.close)  # the node goes, and another leads
        await send({"type": "lifespan.shutdown.complete"})

    async def _elect(self) -> None:
        try:
            await self._until_answered(self._open)
            while True:
                event = await self._inbox.get()
                for step in event():
                    await self._take(step)
        except Failure as error:  # of the start that a single one would not have made, either
            self._end(f"{error}. {error.cure}" if error.cure else str(error))
        except Exception as error:
            log.exception("fault in the election")
            self._end(f"fault in the election: {type(error).__name__}")

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        heard = {
            SessionState.SUSPENDED: self._core.suspended,
            SessionState.CONNECTED: self._core.connected,
            SessionState.LOST: self._core.lost,
        }

        def tell(state: SessionState) -> None:
            loop.call_soon_threadsafe(self._inbox.put_nowait, heard[state])

        def changed(_: str) -> None:
            loop.call_soon_threadsafe(self._inbox.put_nowait, self._core.changed)

        await asyncio.to_thread(self._store.open)
        self._store.on_session(tell)
        await asyncio.to_thread(self._store.watch, self._node, changed)
        self._inbox.put_nowait(self._core.connected)

    async def _until_answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await ask()
            except StoreError as error:
                self._trouble = f"the state store does not answer: {error}"
                log.warning("%s", self._trouble)
                await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, step: LeadershipStep) -> None:
        match step:
            case LeadershipStep.LOOK:
                await self._look()
            case LeadershipStep.STAND:
                try:
                    await asyncio.to_thread(
                        self._store.commit, [Create(self._node, self._mine.encode(), ephemeral=True)]
                    )
                except StoreError as error:
                    log.info("not elected: %s", error)
                self._inbox.put_nowait(self._core.on_claim_finished)
            case LeadershipStep.LEAD:
                log.info("leading")
                api, app = await asyncio.to_thread(self._lead)
                await self._life.enter_async_context(app.router.lifespan_context(app))
                self._serving = api, app
            case LeadershipStep.PAUSE | LeadershipStep.RESUME:
                self._hold(paused=step is LeadershipStep.PAUSE)
            case LeadershipStep.END:
                self._end("its session with the state store is over, and another api server may lead")

    async def _look(self) -> None:
        try:
            node = await asyncio.to_thread(self._store.get, self._node)
        except StoreError as error:
            self._trouble = f"the state store does not answer: {error}"
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._inbox.put_nowait, self._core.changed)
            return
        self._trouble = ""
        self._seen = None if node is None else LeaderRecord.decode(node.data)
        if self._seen is not None and self._seen.home != self._mine.home:
            self._end(
                f"the api server that leads, {self._seen.where}, works in another home; api servers of one cluster "
                "share theirs: give both the same folder, on a disk that both see"
            )
            return
        holder = self._seen.claim if self._seen else ""
        self._inbox.put_nowait(lambda: self._core.on_node_read(holder))

    def _hold(self, *, paused: bool) -> None:
        assert self._serving is not None
        if paused:
            log.warning("the state store does not answer: changing nothing until it does")
            self._serving[0].hold("the state store does not answer, so another api server may lead")
        else:
            log.info("still leading")
            self._serving[0].release()
