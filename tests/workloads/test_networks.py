"""Networks have the layers, parameters and operations that are published for them; suites have their cases."""

import math

import pytest

from searchlab.errors import WorkloadError
from searchlab.workloads import network, networks, suite, suites
from searchlab.workloads.counts import elements

CONVOLUTIONS = ("conv2d", "conv2d_bn_relu", "depthwise_conv2d", "conv3d", "conv2d_transpose")


def count(tasks, *names):
    return sum(t.weight for t in tasks if t.workload.name in names)


def parameters(tasks):
    return sum(t.weight * elements(t.workload.program, w) for t in tasks for w in t.workload.weights)


@pytest.mark.parametrize(
    ("name", "convolutions", "dense", "expected_parameters", "gflop"),
    [
        ("resnet18", 20, 1, 11_689_512, 3.63),
        ("resnet50", 53, 1, 25_557_032, 8.18),
        ("mobilenet_v2", 52, 1, 3_504_872, 0.60),
        ("resnet3d18", 20, 1, 33_371_472, 81.4),
        ("bert_base", 0, 12 * 6 + 1, 85_646_592, 22.35),  # without the embeddings
        ("dcgan", 4, 1, 12_672_771, 0.82),
    ],
)
def test_networks_have_their_published_sizes(name, convolutions, dense, expected_parameters, gflop):
    tasks = network(name)
    assert count(tasks, *CONVOLUTIONS) == convolutions
    assert count(tasks, "dense") == dense
    assert parameters(tasks) == expected_parameters
    assert math.isclose(sum(t.weight * t.workload.flops for t in tasks) / 1e9, gflop, rel_tol=0.05)


def test_networks_fit_together():
    for name in networks():
        tasks = network(name, batch=2)
        assert len({t.workload for t in tasks}) == len(tasks)
        assert [t.weight for t in tasks] == [t.weight for t in network(name)]
        assert sum(t.workload.flops * t.weight for t in tasks) > 1.9 * sum(
            t.workload.flops * t.weight for t in network(name)
        )


def test_resnets_and_bert_in_detail():
    resnet = {t.workload.label: t.weight for t in network("resnet50")}
    assert resnet["conv2d_bn_relu(n=1, ci=256, co=256, h=14, w=14, k=3, padding=1)"] == 5
    assert resnet["conv2d(n=1, ci=256, co=1024, h=14, w=14, k=1, then=bn,add,relu)"] == 6
    bert = {t.workload.label: t.weight for t in network("bert_base")}
    assert bert["dense(m=128, n=768, k=768)"] == 48
    assert bert["dense(m=128, n=3072, k=768, activation=gelu)"] == 12
    assert bert["layer_norm(rows=128, cols=768)"] == 25
    assert bert["softmax(rows=1536, cols=128)"] == 12


def test_lists_are_cheap_because_programs_wait():
    network("resnet50", batch=97)
    waiting = network("resnet50", batch=97)
    assert not any("definition" in t.workload.__dict__ for t in waiting)


def test_errors():
    with pytest.raises(WorkloadError, match="unknown network 'resnet19'; did you mean 'resnet18'"):
        network("resnet19")
    with pytest.raises(WorkloadError, match="at least 1"):
        network("resnet18", batch=0)
    with pytest.raises(WorkloadError, match="unknown suite 'ansor'"):
        suite("ansor")


def test_resnet18_convolutions_have_the_published_operation_counts():
    mflop = {name: round(w.flops / 1e6, 1) for name, w in suite("autotvm-resnet18")}
    expected = [236.0, 231.2, 25.7, 115.6, 12.8, 231.2, 115.6, 12.8, 231.2, 115.6, 12.8, 231.2]
    assert mflop == {f"C{i}": x for i, x in enumerate(expected, 1)}


@pytest.mark.parametrize(
    ("name", "cases"),
    [("ansor-ops", 80), ("ansor-subgraphs", 16), ("autotvm-resnet18", 12), ("metaschedule-ops", 12), ("int8-ops", 9)],
)
def test_suites_have_their_cases(name, cases):
    found = suite(name)
    assert len(found) == len({c.name for c in found}) == len({c.workload for c in found}) == cases
    assert all(c.workload.flops > 0 for c in found)
    assert set(suites()) == {"ansor-ops", "ansor-subgraphs", "autotvm-resnet18", "metaschedule-ops", "int8-ops"}


def test_some_cases():
    ansor = {c.name: c.workload.label for c in suite("ansor-ops")}
    assert ansor["GMM-2-b1"] == "matmul(m=512, n=32, k=512)"
    assert ansor["GMM-2-b16"] == "batch_matmul(batch=16, m=512, n=32, k=512)"
    assert ansor["GRP-1-b1"] == "conv2d(n=1, ci=64, co=128, h=56, w=56, k=3, stride=2, padding=1, groups=4)"
    assert ansor["C3D-4-b16"] == "conv3d(n=16, ci=512, co=512, d=16, h=7, w=7, k=3, padding=1)"
    assert ansor["NRM-4-b1"] == "l2_norm(batch=1, rows=4096, cols=4096)"
    meta = {c.name: c.workload.label for c in suite("metaschedule-ops")}
    assert list(meta) == ["C1D", "C2D", "C3D", "GMM", "GRP", "DIL", "DEP", "T2D", "NRM", "CBR", "TBG", "SFM"]
    assert meta["T2D"] == "conv2d_transpose(n=1, ci=512, co=256, h=4, w=4, k=4, stride=2, padding=1)"
