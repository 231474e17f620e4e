"""The root of a cluster's tree in ZooKeeper: made where it is missing, and whose it is.

With a credential, every node that we make may be touched by that credential alone, and read by the reader's. A root
that has other rights (it was made without a credential, or with another reader) is given these, and so is all that is
below it; the root comes last, so that an interrupted change is made again. Everybody who writes must have the same
file, or they take the rights from each other in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import StoreError

DEFAULT_ROOT = "/heronry"
ANSWER_SECS = 10.0


def done(asked: Any) -> Any:
    """kazoo's answer to something asked asynchronously; raises KazooTimeoutError rather than waiting for ever."""
    return asked.get(timeout=ANSWER_SECS)


def checked_root(path: str) -> str:
    """The root that a URL's path means. Raises StoreError."""
    root = path.rstrip("/")
    if not root:
        return DEFAULT_ROOT
    segments = root[1:].split("/")
    good = root.startswith("/") and all(s not in ("", ".", "..") and s.isprintable() for s in segments)
    if not good or segments[0] == "zookeeper":
        raise StoreError(f"{path!r} is no root; give a path of your own, as zookeeper://host:2181/heronry")
    return root


def rights(credential: StoreCredential | None) -> list[ACL]:
    """The ACL of every node that a client with this credential makes."""
    if credential is None:
        return list(OPEN_ACL_UNSAFE)
    user, _, password = credential.cluster.partition(":")
    found = [make_digest_acl(user, password, all=True)]
    if credential.reader:
        user, _, password = credential.reader.partition(":")
        found.append(make_digest_acl(user, password, read=True))
    return found


def prepare_root(client: KazooClient, root: str, credential: StoreCredential | None) -> None:
    """Make the root unless it is there, and see that it is ours. Idempotent, also when it was interrupted.

    Raises StoreError, and what kazoo raises.
    """
    if credential is not None and credential.read_only:
        try:
            done(client.get_async(root))
        except NoNodeError as error:
            raise StoreError(
                f"{root} is not there: correct the root in the store's URL, or start the cluster, which makes it"
            ) from error
        return
    _make(client, root, rights(credential))
    done(client.get_async(root))  # raises NoAuthError where we may not even read
    if credential is not None:
        _claim(client, root, rights(credential))


def _make(client: KazooClient, root: str, acl: Sequence[ACL]) -> None:
    """The root, and above it what is missing (open, as ZooKeeper's own top is: others may want places beside ours)."""
    try:
        done(client.create_async(root, b"", acl))
    except NodeExistsError:
        return
    except NoNodeError:
        above = root.rpartition("/")[0]
        _make(client, above, OPEN_ACL_UNSAFE)
        _make(client, root, acl)
    except NoAuthError as error:
        if done(client.exists_async(root)) is None:
            raise StoreError(
                f"{root} cannot be made: {root.rpartition('/')[0] or '/'} belongs to somebody else. "
                "Have it made by its owner, or choose another root in the store's URL"
            ) from error


def _claim(client: KazooClient, root: str, acl: list[ACL]) -> None:
    if set(done(client.get_acls_async(root))[0]) == set(acl):
        return
    for kind in done(client.get_children_async(root)):
        for name in done(client.get_children_async(f"{root}/{kind}")):
            _set(client, f"{root}/{kind}/{name}", acl)
        _set(client, f"{root}/{kind}", acl)
    _set(client, root, acl)


def _set(client: KazooClient, path: str, acl: list[ACL]) -> None:
    try:
        done(client.set_acls_async(path, acl))
    except NoNodeError:
        pass  # it went meanwhile
