"""How far an update is where state is not kept, and what the last one did not wait for, in words."""

from __future__ import annotations

from heron_runtime.model.plan import PhysicalPlan, UpdatePhase

STEPS = {
    UpdatePhase.NONE: "",
    UpdatePhase.DRAINING: "spouts are silent until what is on its way is processed",
    UpdatePhase.SETTLING: "spouts are silent until everybody goes by the new plan",
}


def update_text(plan: PhysicalPlan | None) -> str:
    """One line; empty where there is nothing to say."""
    if plan is None:
        return ""
    return STEPS[plan.standstill] or not_waited_for(plan.undrained)


def not_waited_for(why: str) -> str:
    """One line about an update that has gone on all the same; empty if it has not."""
    return f"what was on its way was not waited for: {why}" if why else ""
