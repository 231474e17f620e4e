"""Programs in DuckDB with two threads: ``python on_duckdb.py CASE DATA OUTPUT`` writes one file of JSON lines."""

from __future__ import annotations

import sys

import duckdb

CASES = {
    "words": """
        select lower(word) as key, count(*) as value
        from (select unnest(regexp_split_to_array(trim(line), '\\s+')) as word
              from read_csv('{data}/text/*.txt', columns={{'line': 'varchar'}}, delim=e'\\x01', quote='', escape='',
                            header=false, auto_detect=false, new_line='\\n'))
        where length(word) > 1 group by all""",
    "windows": """
        select page as key, time - time % 600000 as start, sum(cents)::bigint as value
        from '{data}/views/*.parquet' group by all""",
    "join": """
        select l.user as key, l.time as clicked, r.time as bought
        from '{data}/clicks/*.parquet' l join '{data}/purchases/*.parquet' r
        on l.user = r.user and l.time // 1800000 = r.time // 1800000""",
    "sessions": """
        with marked as (select user, time, coalesce(time - lag(time) over w > 600000, true)::int as fresh
                        from '{data}/views/*.parquet' window w as (partition by user order by time)),
        numbered as (select user, time, sum(fresh) over (partition by user order by time) as nth from marked)
        select user as key, min(time) as start, count(*) as value from numbered group by user, nth""",
    "topk": """
        select page as key, max(cents, 3) as value from '{data}/views/*.parquet' group by all""",
}


def main() -> None:
    """Run one case."""
    case, data, output = sys.argv[1:4]
    duckdb.execute("set threads = 2")
    duckdb.execute(f"copy ({CASES[case].format(data=data)}) to '{output}' (format json)")


if __name__ == "__main__":
    main()
