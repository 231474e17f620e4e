"""Revenue by country: orders, enriched from a small table of customers. Missing customers count as unknown.

heron submit local examples/cookbook/revenue.py revenue -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, Matched, files, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")
ORDER = {"order": "int", "customer": "int", "cents": "int"}
CUSTOMER = {"customer": "int", "name": "str", "country": "str"}


def country(match: Matched) -> str:
    """Return the country of the row, which is None without a match."""
    return str(match.row["country"]) if match.row else "unknown"


revenue = Builder("revenue")
(
    revenue.source(files(f"{DATA}/orders", "csv", schema=ORDER), name="orders")
    .lookup(files(f"{DATA}/customers.csv", "csv", schema=CUSTOMER), on="customer", how="left", name="customer")
    .key_by(country)
    .sum_by_key(lambda match: match.record["cents"], name="sum", updates=False)
    .sink(to_files(f"{OUTPUT}/revenue"), name="revenue_out")
)
