"""What a job takes: hours, machines, memory and money by hand; and what does not scale."""

from typing import Any

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.scale.format import format_rows, format_total, notes
from darklode.pipeline.scale.measurements import Measured
from darklode.pipeline.scale.plan import PlannedStage, plan_stages, totals
from darklode.schemas.scale import Hardware
from helpers.unit_costs import stage, unit_costs

MACHINES = {"count": 10, "cores": 4, "memory_gb": 32, "price_per_hour": 2.0}
COSTS = Measured.model_validate(unit_costs())


def planned(documents: float = 1e6, queries: float = 1e5, **given: Any) -> dict[str, PlannedStage]:
    hardware = Hardware.model_validate({"machines": MACHINES} | given)
    return {row.stage: row for row in plan_stages(COSTS, hardware, documents, queries)}


def test_hours_are_those_of_the_fit_and_the_clock_has_all_machines() -> None:
    rows = planned()
    assert rows["chunk"].cpu_hours == pytest.approx(1.0, rel=0.02)
    assert rows["chunk"].wall_hours == pytest.approx(1 / 40, rel=0.02)
    assert rows["chunk"].money == pytest.approx(10 * 2 / 40, rel=0.02)
    assert rows["chunk"].storage_gb == pytest.approx(0.01)
    assert rows["associate"].size == 1e6
    assert rows["judge llm"].size == 1e5 * 0.5 * 60
    assert "judge" not in rows, "one judge, the language model"
    assert "fit ppmi" not in rows, "it was not asked for"
    assert not {"embed", "index"} & rows.keys(), "without an encoder there are no vectors"


def test_a_search_of_all_by_all_does_not_scale_until_it_is_cut() -> None:
    whole = planned()["search bm25"]
    assert whole.cpu_hours == pytest.approx(1e-6 * 1e6 * 5e4 / 3600, rel=0.02)
    assert "more tenants" in whole.limitation
    cut = planned(work={"tenants": 100})["search bm25"]
    assert cut.cpu_hours == pytest.approx(whole.cpu_hours / 100, rel=0.02)


def test_an_exponent_above_the_limit_and_memory_above_the_machine_are_named() -> None:
    rows = planned(1e9, work={"retrievers": ["bm25", "ppmi"]})
    assert rows["fit ppmi"].limitation == "exponent 1.50 is above 1.15"
    assert not rows["fit bm25"].memory_constant
    assert "one tenant requires" in rows["fit bm25"].limitation
    assert rows["chunk"].limitation == ""


def test_a_stage_of_one_process_is_no_quicker_on_more_machines() -> None:
    extra = unit_costs()["stages"][0] | {"name": "clean", "per": "raw_queries"}
    costs = Measured.model_validate(unit_costs(*unit_costs()["stages"], extra))
    one, many = (
        plan_stages(costs, Hardware.model_validate({"machines": MACHINES, "work": {"tenants": parts}}), 1e6, 1e6)[-1]
        for parts in (1, 80)
    )
    assert (one.machines, one.wall_hours) == (1, pytest.approx(one.cpu_hours))
    assert (many.machines, many.wall_hours) == (10, pytest.approx(many.cpu_hours / 40, rel=0.01))


def test_encoders_take_gpus_and_each_its_own_vectors() -> None:
    encoder = {"texts_per_second": 1000, "dimensions": 384}
    gpus = {"count": 2, "price_per_hour": 3.0}
    one = planned(gpus=gpus, encoders={"a": encoder})
    two = planned(gpus=gpus, encoders={"a": encoder, "b": encoder})
    texts = 1e6 + 5e4
    assert one["embed"].gpu_hours == pytest.approx(texts / 1000 / 3600)
    assert two["embed"].gpu_hours == pytest.approx(2 * one["embed"].gpu_hours)
    assert two["embed"].wall_hours >= two["embed"].gpu_hours / 2
    assert two["index"].cpu_hours == pytest.approx(2 * one["index"].cpu_hours)
    with pytest.raises(SettingsError, match="add the section gpus"):
        planned(encoders={"a": encoder})


def test_vectors_take_what_their_dimensions_and_bytes_per_number_take() -> None:
    """Measured with 384 numbers of 4 bytes; the cache keeps keys of 16 bytes, the index a byte a number."""

    def with_vectors(dimensions: int, size: int) -> dict[str, PlannedStage]:
        encoder = {"texts_per_second": 1000, "dimensions": dimensions, "bytes_per_number": size}
        return planned(gpus={"count": 1}, encoders={"a": encoder})

    small, half, large = with_vectors(384, 4), with_vectors(384, 2), with_vectors(4096, 4)
    assert half["embed"].storage_gb == pytest.approx(small["embed"].storage_gb * (768 + 16) / (1536 + 16))
    assert large["embed"].storage_gb == pytest.approx(small["embed"].storage_gb * (16384 + 16) / (1536 + 16))
    for name in ("embed", "search vectors", "semantic_codebooks", "semantic_ids", "index"):
        assert half[name].cpu_hours == pytest.approx(small[name].cpu_hours)
        assert large[name].cpu_hours == pytest.approx(small[name].cpu_hours * 4096 / 384)
    assert large["semantic_codebooks"].storage_gb == pytest.approx(small["semantic_codebooks"].storage_gb * 4096 / 384)
    assert large["semantic_ids"].storage_gb == small["semantic_ids"].storage_gb
    assert small["index"].storage_gb == pytest.approx(0.42)
    assert large["index"].storage_gb == pytest.approx(0.42 + (4096 - 384) * 1e6 / 1e9)
    assert large["chunk"] == small["chunk"]


def test_two_encoders_take_what_each_takes_alone() -> None:
    small, large = ({"texts_per_second": 1000, "dimensions": one} for one in (256, 4096))
    alone = [planned(gpus={"count": 1}, encoders={"a": one}) for one in (small, large)]
    both = planned(gpus={"count": 1}, encoders={"a": small, "b": large})
    for name in ("embed", "search vectors", "index"):
        assert both[name].cpu_hours == pytest.approx(sum(one[name].cpu_hours for one in alone))
        assert both[name].storage_gb == pytest.approx(sum(one[name].storage_gb for one in alone))
        assert both[name].memory_gb == max(one[name].memory_gb for one in alone)


def test_memory_above_the_smallest_measurement_grows_with_the_vectors() -> None:
    costs = Measured.model_validate(unit_costs(stage("index", "chunks", 0.01, job="index", memory=0.5)))
    rows = []
    for dimensions in (384, 768):
        encoder = {"texts_per_second": 1000, "dimensions": dimensions}
        given = {"machines": MACHINES, "gpus": {"count": 1}, "encoders": {"a": encoder}, "work": {"retrievers": []}}
        rows += plan_stages(costs, Hardware.model_validate(given), 1e6, 1e5)
    fixed = 100 * 1000**0.5 / 1000
    assert rows[1].memory_gb - fixed == pytest.approx(2 * (rows[0].memory_gb - fixed))


def test_tokens_are_paid_for_the_pairs_that_are_judged() -> None:
    prices = {"prompt_tokens": 0.1, "completion_tokens": 1.0, "storage_gb_month": 0.02}
    row = planned(prices=prices, work={"judged": 0.5, "candidates": 20})["judge llm"]
    pairs = 1e5 * 0.5 * 20 * 0.5
    assert row.size == pytest.approx(pairs)
    assert row.tokens == pytest.approx(pairs * 302)
    assert row.money - row.wall_hours * 10 * 2 == pytest.approx(pairs * (300 * 0.1 + 2 * 1.0) / 1e6)


def test_a_longer_document_is_more_chunks() -> None:
    assert planned(work={"characters": 5000})["chunk"].size == 1e7


def test_an_unknown_retriever_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"splade was not measured; measured are: bm25, ppmi, vectors\. Instead of a"
    ):
        planned(work={"retrievers": ["splade"]})


def test_it_is_told_with_what_is_beyond_and_what_does_not_scale() -> None:
    hardware = Hardware.model_validate({"machines": MACHINES, "prices": {"storage_gb_month": 1.0}})
    rows = plan_stages(COSTS, hardware, 1e9, 1e8)
    total = totals(rows, hardware)
    assert total["cpu_hours"] == pytest.approx(sum(row.cpu_hours for row in rows))
    assert total["storage_money_month"] == pytest.approx(total["storage_gb"])
    assert f"{total['machines_for_a_day']:,} machines" in format_total(total)
    said = list(notes(rows, COSTS))
    assert any(one.startswith("build search bm25 does not scale") for one in said)
    assert "times the largest measured size" in said[-1]
    assert [row["stage"] for row in format_rows(rows)][:3] == ["chunk", "fit bm25 !", "search bm25 !"]
