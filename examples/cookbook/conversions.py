"""Clicks that led to a purchase: of one user and item, without a gap of more than half an hour.

heron submit local examples/cookbook/conversions.py conversions -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, Joined, files, session, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")


def to_row(pair: Joined) -> dict[str, object]:
    """Return the row of a pair. Each pair has a click, and some have a purchase, perhaps an earlier one."""
    user, item = pair.key
    bought = pair.right is not None and pair.right["time"] >= pair.left["time"]
    price = pair.right["price"] if bought else None
    return {"user": user, "item": item, "ad": pair.left["ad"], "clicked": pair.left["time"], "price": price}


def user_and_item(record: dict[str, object]) -> tuple[object, object]:
    """Return the key of both sides."""
    return record["user"], record["item"]


conversions = Builder("conversions")
clicks = conversions.source(files(f"{DATA}/clicks", "json"), event_time="time", name="clicks")
purchases = conversions.source(files(f"{DATA}/purchases", "json"), event_time="time", name="purchases")
pairs = clicks.key_by(user_and_item).window(session(1800)).join(purchases.key_by(user_and_item), "left", name="pairs")
pairs.map(to_row).sink(to_files(f"{OUTPUT}/conversions"), name="conversions_out")
