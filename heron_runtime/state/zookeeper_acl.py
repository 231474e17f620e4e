"""Root of a cluster's tree in ZooKeeper: its creation and access rights.

With a credential, only that credential has access to the nodes that this client creates, and the reader's credential
can read them. A root with other rights (created without a credential, with another reader, or with a former password)
gets these rights, and so do all nodes below it, where the entries of topologies are kept. The root is changed last, so
that an interrupted change is repeated. All clients with the cluster's own credential must have the same file; otherwise
they keep replacing each other's rights. A topology's credential does not create or change anything here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

from heron_runtime.state.credential import TOPOLOGY_USER, StoreCredential
from heron_runtime.state.store import MAX_SEGMENTS, Right, StoreError

DEFAULT_ROOT = "/heronry"
ANSWER_SECS = 10.0
_DIGEST = "digest"
READ_BY_ALL = ACL(Permissions.READ, Id("world", "anyone"))

log = logging.getLogger(__name__)


def done(request: Any) -> Any:
    """Return the result of an asynchronous call of kazoo. Raises KazooTimeoutError instead of waiting forever."""
    return request.get(timeout=ANSWER_SECS)


def checked_root(path: str) -> str:
    """Return the root for the path of a URL. Raises StoreError if it is invalid."""
    root = path.rstrip("/")
    if not root:
        return DEFAULT_ROOT
    segments = root[1:].split("/")
    good = root.startswith("/") and all(s not in ("", ".", "..") and s.isprintable() for s in segments)
    if not good or segments[0] == "zookeeper":
        raise StoreError(f"invalid root {path!r}; give a path of your own, as zookeeper://host:2181/heronry")
    return root


def rights(credential: StoreCredential | None) -> list[ACL]:
    """Return the ACL of every node that a client with this credential creates."""
    if credential is None:
        return list(OPEN_ACL_UNSAFE)
    entries = [ACL(Permissions.ALL, Id(_DIGEST, credential.control))]
    if credential.readers:
        entries.append(ACL(Permissions.READ, Id(_DIGEST, credential.readers)))
    if credential.topology:
        entries.append(ACL(Permissions.READ | Permissions.WRITE, Id(_DIGEST, credential.identity)))
    return entries


def entry(identity: str, right: Right) -> ACL:
    """Return the ACL entry that grants a right to a topology."""
    more = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE if right is Right.WORK else 0
    return ACL(Permissions.READ | more, Id(_DIGEST, identity))


def prepare_root(client: KazooClient, root: str, credential: StoreCredential | None) -> None:
    """Create the root if it is missing, and set its rights. Idempotent, also after an interruption.

    Raises:
        StoreError: The root is missing or cannot be created.
        KazooException: A request failed.
    """
    if credential is not None and credential.topology:
        return  # a topology has access to its own folders only
    if credential is not None and credential.read_only:
        try:
            done(client.get_async(root))
        except NoNodeError as error:
            raise StoreError(
                f"{root} does not exist: correct the root in the store's URL, or start the cluster, which creates it"
            ) from error
        return
    _make(client, root, rights(credential))
    done(client.get_async(root))  # raises NoAuthError where we may not even read
    if credential is not None:
        _claim(client, root, rights(credential))


def _make(client: KazooClient, root: str, acl: Sequence[ACL]) -> None:
    """Create the root and its missing parents.

    The parents are open, as ZooKeeper's own root is, since other applications may need nodes there.
    """
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
                f"{root} cannot be created: {root.rpartition('/')[0] or '/'} belongs to another user. "
                "Ask the owner to create it, or choose another root in the store's URL"
            ) from error


def _claim(client: KazooClient, root: str, acl: list[ACL]) -> None:
    if set(done(client.get_acls_async(root))[0]) != set(acl):
        _claim_below(client, root, acl, 0)


def _claim_below(client: KazooClient, path: str, acl: list[ACL], depth: int) -> None:
    try:
        for name in done(client.get_children_async(path)) if depth < MAX_SEGMENTS else ():
            _claim_below(client, f"{path}/{name}", acl, depth + 1)
        entries = done(client.get_acls_async(path))[0]
        granted = [one for one in entries if one == READ_BY_ALL or one.id.id.startswith(TOPOLOGY_USER)]
        done(client.set_acls_async(path, [*acl, *granted]))
    except NoNodeError:
        pass  # it was removed meanwhile
    except NoAuthError:
        if depth < MAX_SEGMENTS:
            raise
        # A topology has created a node that this credential cannot access. The cluster must start anyway.
        log.warning("%s is closed to the cluster's own credential", path)
