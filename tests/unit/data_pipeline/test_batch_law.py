"""Batch plans of random programs: cut, combined, shuffled and merged, they give the reference result."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core.combine import Limits
from data_pipeline.core.planner import plan
from heronry.streamlet.reference import run
from tests.support.streamlets.batch_engine import evaluate
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.random_programs import RECIPES, Recipe


@given(recipe=RECIPES, seed=st.integers(0, 1000), small=st.booleans())
def test_plan_gives_the_result_of_the_reference(recipe: Recipe, seed: int, small: bool) -> None:
    program = recipe.build().build()
    limits = Limits(max_keys=2, max_bytes=50, chunk_records=3) if small else None
    found = evaluate(plan(program), seed, limits)
    for sink, expected in run(program).items():
        assert difference(expected, found[sink]) == "", sink
