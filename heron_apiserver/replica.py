"""One of several API servers of a cluster: stands by until it leads, then serves like a single one.

A standby has read nothing and owns nothing but its place in the queue. It answers every request with 503 and names
the leader; ``/leader`` and ``/healthz`` serve load balancers and supervisors. The process that wins the node in the
state store (``leadership``) takes over the home as after a crash of its own. From then on all its writes to the
store are fenced (``heron_runtime.state.wrappers``). A process that can no longer lead ends, together with its
unfinished work; its supervisor restarts it as a standby.
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
from heron_apiserver.leadership import Leadership, LeadershipEvent, LeadershipSignal, LeadershipStep, NodeRead
from heron_apiserver.responses import error_response
from heron_apiserver.routes.server import Ready
from heron_control.web.names import UNDONE_HEADER
from heron_runtime.failures import Failure
from heron_runtime.state.store import Create, SessionState, StateStore, StoreError

RETRY_SECONDS = 1.0
HOME_ID = "home-id"
log = logging.getLogger("heron_apiserver")
_SESSION_SIGNALS = {
    SessionState.SUSPENDED: LeadershipSignal.STORE_SUSPENDED,
    SessionState.CONNECTED: LeadershipSignal.STORE_CONNECTED,
    SessionState.LOST: LeadershipSignal.SESSION_LOST,
}


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Content of the leader node.

    Attributes:
        claim: random identifier of the process.
        home: random identifier of the home.
        where: address, for messages.
    """

    claim: str
    home: str
    where: str

    @classmethod
    def create(cls, home: Path, where: str) -> LeaderRecord:
        """Return the record of this process. Raises OSError."""
        return cls(secrets.token_hex(16), home_id(home), where)

    def encode(self) -> bytes:
        """Return the JSON for the store."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderRecord:
        """Parse a record of any process. Unreadable data counts as another leader."""
        try:
            fields = json.loads(data)
            return cls(str(fields["claim"]), str(fields["home"]), str(fields["where"]))
        except (ValueError, KeyError, TypeError):
            return cls("?", "", "an API server of another release")


def home_id(home: Path) -> str:
    """Return the identifier of the home, which the first process creates. Raises OSError."""
    made = home / f".{HOME_ID}.{secrets.token_hex(4)}"
    made.write_text(secrets.token_hex(16))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(made, home / HOME_ID)
    finally:
        made.unlink()
    return (home / HOME_ID).read_text()


class Replica:
    """ASGI application that serves once it leads.

    Args:
        store: state store of the cluster.
        node: path of the leader node.
        leader: record of this process.
        lead: makes the API server from the home as it is at that time.
        end: ends the process.
    """

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
        self._inbox: asyncio.Queue[LeadershipEvent] = asyncio.Queue()
        self._seen: LeaderRecord | None = None
        self._trouble = "starting"
        self._serving: tuple[ApiServer, FastAPI] | None = None
        self._life = contextlib.AsyncExitStack()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request to the API server if this process leads; answer as a standby otherwise."""
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
        why = f"{leader.where} leads" if leader else self._trouble or "no API server leads at this moment"
        return error_response(
            503, f"this API server is a standby: {why}", "Try again in a few seconds, or use the leader.",
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
        await asyncio.to_thread(self._store.close)  # removes the node, so that another server leads
        await send({"type": "lifespan.shutdown.complete"})

    async def _elect(self) -> None:
        try:
            await self._until_answered(self._open)
            while True:
                event = await self._inbox.get()
                for step in self._core.handle(event):
                    await self._take(step)
        except Failure as error:  # a failure of the start, as of a single server
            self._end(f"{error}. {error.cure}" if error.cure else str(error))
        except Exception as error:
            log.exception("failure in the election")
            self._end(f"failure in the election: {type(error).__name__}")

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()

        def on_session(state: SessionState) -> None:
            loop.call_soon_threadsafe(self._inbox.put_nowait, _SESSION_SIGNALS[state])

        def on_change(_: str) -> None:
            loop.call_soon_threadsafe(self._inbox.put_nowait, LeadershipSignal.NODE_CHANGED)

        await asyncio.to_thread(self._store.open)
        self._store.on_session(on_session)
        await asyncio.to_thread(self._store.watch, self._node, on_change)
        self._inbox.put_nowait(LeadershipSignal.STORE_CONNECTED)

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
                self._inbox.put_nowait(LeadershipSignal.CLAIM_FINISHED)
            case LeadershipStep.LEAD:
                log.info("leading")
                api, app = await asyncio.to_thread(self._lead)
                await self._life.enter_async_context(app.router.lifespan_context(app))
                self._serving = api, app
            case LeadershipStep.PAUSE | LeadershipStep.RESUME:
                self._pause_or_resume(paused=step is LeadershipStep.PAUSE)
            case LeadershipStep.END:
                self._end("the session with the state store has ended, and another API server may lead")

    async def _look(self) -> None:
        try:
            node = await asyncio.to_thread(self._store.get, self._node)
        except StoreError as error:
            self._trouble = f"the state store does not answer: {error}"
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._inbox.put_nowait, LeadershipSignal.NODE_CHANGED)
            return
        self._trouble = ""
        self._seen = None if node is None else LeaderRecord.decode(node.data)
        if self._seen is not None and self._seen.home != self._mine.home:
            self._end(
                f"the leading API server, {self._seen.where}, uses another home; all API servers of a cluster "
                "must share one: give both the same folder on a shared disk"
            )
            return
        holder = self._seen.claim if self._seen else ""
        self._inbox.put_nowait(NodeRead(holder))

    def _pause_or_resume(self, *, paused: bool) -> None:
        assert self._serving is not None
        if paused:
            log.warning("the state store does not answer: refusing changes until it does")
            self._serving[0].maintenance.pause("the state store does not answer, so another API server may lead")
        else:
            log.info("still leading")
            self._serving[0].maintenance.resume()
