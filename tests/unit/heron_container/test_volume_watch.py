"""Quota of a volume for any sequence of scan results."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heron_container.core.storage import (
    LEAST_SECONDS,
    MOST_SECONDS,
    PATIENCE,
    REST,
    ROOM,
    VolumeQuota,
    VolumeUsage,
    pause_seconds,
)
from heron_runtime.model.containers import LEAST_FILES, volume_bytes, volume_files
from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.model.settings import GiB, Keys, MiB

GRANTED = 100 * MiB
sizes = st.sampled_from([0, GRANTED // 2, GRANTED, GRANTED + 1, 2 * GRANTED]) | st.integers(0, 2 * GRANTED)
usages = st.builds(
    VolumeUsage,
    bytes=sizes,
    files=st.sampled_from([0, LEAST_FILES, LEAST_FILES + 1]) | st.integers(0, 2 * LEAST_FILES),
    removed_bytes=st.just(0) | st.integers(0, GRANTED),
    largest=st.just("/volume/cache"),
    closed=st.sampled_from([(), ("/volume/closed",)]),
    hiding=st.sets(st.sampled_from(["process 7", "process 8"])).map(frozenset),
)
looks = st.lists(usages, min_size=1, max_size=8)
SETTINGS = settings(database=None)


def measured(usage: VolumeUsage, containers: int) -> bool:
    return not usage.closed and usage.bytes + containers * usage.removed_bytes <= GRANTED * ROOM


def test_tasks_are_held_beyond_the_limit() -> None:
    @SETTINGS
    @given(looks, st.integers(1, 5))
    def holds(found: list[VolumeUsage], containers: int) -> None:
        watch = VolumeQuota()
        for usage in found:
            trouble = watch.update(usage, GRANTED, containers)
            beyond = usage.bytes + containers * usage.removed_bytes > GRANTED or usage.files > LEAST_FILES
            assert trouble or not (beyond or usage.closed)

    holds()


def test_tasks_run_if_there_is_room() -> None:
    """Earlier excess does not matter."""

    @SETTINGS
    @given(looks, st.integers(1, 5))
    def holds(found: list[VolumeUsage], containers: int) -> None:
        watch = VolumeQuota()
        for usage in found:
            trouble = watch.update(usage, GRANTED, containers)
            roomy = measured(usage, containers) and usage.files <= LEAST_FILES * ROOM
            assert not trouble or not roomy or usage.hiding

    holds()


def test_state_is_kept_between_room_and_limit() -> None:
    @SETTINGS
    @given(st.integers(int(GRANTED * ROOM) + 1, GRANTED), st.booleans())
    def holds(size: int, ended: bool) -> None:
        watch = VolumeQuota()
        watch.update(VolumeUsage(2 * GRANTED if ended else 0, 1), GRANTED, 1)
        assert bool(watch.update(VolumeUsage(size, 1), GRANTED, 1)) == ended

    holds()


def test_hiding_process_is_named_after_several_scans() -> None:
    @SETTINGS
    @given(st.lists(st.booleans(), min_size=1, max_size=12))
    def holds(hides: list[bool]) -> None:
        watch, in_a_row = VolumeQuota(), 0
        for hidden in hides:
            in_a_row = in_a_row + 1 if hidden else 0
            trouble = watch.update(VolumeUsage(0, 0, hiding=frozenset({"process 7"} if hidden else ())), GRANTED, 1)
            assert ("process 7 hides" in trouble) == (in_a_row >= PATIENCE)

    holds()


def test_scans_take_a_bounded_share_of_time() -> None:
    @SETTINGS
    @given(st.floats(0, 1000))
    def holds(took: float) -> None:
        pause = pause_seconds(took)
        assert LEAST_SECONDS <= pause <= MOST_SECONDS
        assert pause >= took * REST or pause == MOST_SECONDS

    holds()


def test_message_names_place_limit_and_remedy() -> None:
    watch = VolumeQuota()
    text = watch.update(VolumeUsage(300 * MiB, 2, 0, "/volume/a\nb"), GRANTED, 1)
    assert "user code keeps 300 MiB in files, most of it in /volume/a\\nb, of 100 MiB (topology.volume.disk)" in text
    assert "Remove files there as heronry-code, or submit the topology again" in text
    text = watch.update(VolumeUsage(0, 0, 40 * MiB), GRANTED, 3)
    assert "40 MiB in removed files that are open in this container" in text
    text = watch.update(VolumeUsage(0, LEAST_FILES + 1, 0, "/volume/many"), GRANTED, 3)
    assert "more than 10,000 files, the limit for 100 MiB" in text
    text = watch.update(VolumeUsage(0, 0, closed=("/volume/shut",)), GRANTED, 3)
    assert "/volume/shut cannot be read" in text
    assert "chmod u+rx" in text


def test_volume_size_follows_the_containers_unless_configured() -> None:
    plans = [PackingPlan("t", tuple(ContainerPlan(i, (), Resources(disk_bytes=GiB)) for i in range(n))) for n in (1, 9)]
    assert [volume_bytes({}, plan) for plan in plans] == [4 * GiB, 9 * GiB]
    assert {volume_bytes({Keys.TOPOLOGY_VOLUME_DISK.name: 7 * MiB}, plan) for plan in plans} == {7 * MiB}
    assert (volume_files(MiB), volume_files(4 * GiB)) == (LEAST_FILES, 262_144)
