"""The root of a cluster's tree in ZooKeeper: made where it is missing, and whose it is.

With a credential, every node that we make may be touched by that credential alone, and read by the reader's. A root
that has other rights (it was made without a credential, with another reader, or with the password before this one) is
given these, and so is all that is below it, where topologies keep theirs; the root comes last, so that an interrupted
change is made again. All who have the cluster's own line must have the same file, or they take the rights from each
other in turn. A topology's credential makes and changes nothing here.
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

log = logging.getLogger(__name__)


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
    found = [ACL(Permissions.ALL, Id(_DIGEST, credential.control))]
    if credential.readers:
        found.append(ACL(Permissions.READ, Id(_DIGEST, credential.readers)))
    if credential.topology:
        found.append(ACL(Permissions.READ | Permissions.WRITE, Id(_DIGEST, credential.identity)))
    return found


def entry(identity: str, right: Right) -> ACL:
    """What a topology is granted."""
    more = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE if right is Right.WORK else 0
    return ACL(Permissions.READ | more, Id(_DIGEST, identity))


def prepare_root(client: KazooClient, root: str, credential: StoreCredential | None) -> None:
    """Make the root unless it is there, and see that it is ours. Idempotent, also when it was interrupted.

    Raises StoreError, and what kazoo raises.
    """
    if credential is not None and credential.topology:
        return  # it may see what is its own, and the root is not
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
    if set(done(client.get_acls_async(root))[0]) != set(acl):
        _claim_below(client, root, acl, 0)


def _claim_below(client: KazooClient, path: str, acl: list[ACL], depth: int) -> None:
    try:
        for name in done(client.get_children_async(path)) if depth < MAX_SEGMENTS else ():
            _claim_below(client, f"{path}/{name}", acl, depth + 1)
        found = done(client.get_acls_async(path))[0]
        topologies = [one for one in found if one.id.scheme == _DIGEST and one.id.id.startswith(TOPOLOGY_USER)]
        done(client.set_acls_async(path, [*acl, *topologies]))
    except NoNodeError:
        pass  # it went meanwhile
    except NoAuthError:
        if depth < MAX_SEGMENTS:
            raise
        # A topology has made a node that is closed to us. It does not keep the cluster from its start.
        log.warning("%s is closed to the cluster's own credential", path)
