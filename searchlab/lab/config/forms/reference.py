"""The reference of experiments as a page: tables made from the models, prose around them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from searchlab.lab.config.checks.effort import EFFORTS
from searchlab.lab.config.experiment import Ablate, Budget, Claim, Experiment, ReportSettings, Source, Sweep
from searchlab.lab.config.measuring import LocalMeasure, Ray, Replay, Timing

_TOP = """\
# Experiments in YAML

*This page is made by `searchlab schema --markdown`; do not edit it.*

An experiment is one file. The smallest one:

```yaml
workloads: [matmul]
```

A whole one:

```yaml
name: space-vs-space
target: {native: {threads: 1}}
workloads:
  - matmul:m=512,n=512,k=512            # as on the command line
  - {conv2d: {ci: 64, co: 64, h: 56, w: 56, k: 3, padding: 1}}
model: gbt
strategy: evolutionary
budget: {trials: 256, batch: 16}
measure: {local: {repeats: 5}}
seeds: 0..9
sweep:
  space: [template, sketch, task-mapping]
  strategy: [annealing, {evolutionary: {population: 512}}]
report: {baseline: template/annealing}
expect:
  - {better: {space: sketch}, than: {space: template}, on: final, note: the claim of a paper}
```

`searchlab run FILE` runs it, `searchlab run FILE --dry-run` shows what would be run. Mistakes are refused before
anything runs, with file, line, and what is accepted. For completion in an editor, write the schema to a file with
`searchlab schema --out experiment.schema.json` and put this on the first line of the experiment:
`# yaml-language-server: $schema=experiment.schema.json`.

## Keys
"""

_COMPONENTS = """\
## Components

`space`, `model`, `strategy` and `target` are a name, or a name with options; the first three may also be an import
path:

```yaml
workloads: [matmul]
space: sketch
model: {gbt: {objective: regression}}
strategy: "searchlab.strategies:Random"
```

There are pages about [spaces](spaces.md), [cost models](models.md) and [strategies](strategies.md);
[components](components.md) lists them all. Options are checked against what the component takes. `model: none` is no
model. `model: auto` and `strategy: auto`, which stand where none is named, become those that suit the workloads: `gbt`
and `evolutionary`; for recorded tables `none` and `bayesian`, or `evolutionary` if anything compared has a model.

## Workloads

One, or a list of these:

| form | what it is |
|---|---|
| `matmul:m=512,n=512` | a workload with parameters, as on the command line |
| `{matmul: {m: 512, n: 512}}` | the same |
| `{suite: ansor-ops}`, `{suite: resnet18}`, `{suite: "resnet18:batch=16"}` | all workloads of a suite or network |
| `{network: resnet18}`, `{network: "resnet18:batch=16"}` | a [network](#networks) as one thing, with one budget |
| `{network: {name: block, tasks: {matmul: 4, softmax: 1}}}` | one of your own: tasks, and how often each occurs |
| `{table: matmul-256}` | a recorded table that comes with searchlab |
| `{table: results/gemm.json}` | a recorded table: a file of searchlab or in the T4 format, beside this file |
| `{table: results}`, `{table: "results/*.json"}` | all tables of a folder, or of a pattern |

Tables are looked up, not measured: `measure` is replay, there is no `space`, and a cost model has to work from knobs.

```yaml
workloads: [{table: [matmul-256, softmax-128x1024]}]
model: {gbt: {view: knobs}}
sweep: {strategy: [random, local, evolutionary]}
```

## Networks

A network is searched as a whole: its tasks share one budget, and its time is that of one run of all of them, each as
often as it occurs (its weight). `budget.trials` counts for each task, so that five tasks have five times as many
trials together. `budget.scheduler` says whose turn the next batch is: *gradient* gives it to the task that promises to
shorten the whole most, by how it got on lately and by what similar tasks have reached (Ansor's rule); *round-robin*
goes in turns. Each task has a study of its own, with its own model.

```yaml
workloads:
  - network:
      name: block
      tasks: {"dense:m=128,n=256,k=256": 4, "softmax:rows=512,cols=128": 1}
sweep: {budget.scheduler: [gradient, round-robin]}
```

Everything that compares entries compares networks by their times. What is about programs is about their tasks:
run-offs, `searchlab best` and its libraries, `leaderboard validate`, and histories. With `tables:` in the place of
`tasks:` a network consists of recorded tables.

## History

What earlier runs measured on other tasks: run folders and files of records (`.jsonl`), one or a list, relative to this
file. The model learns from it, too, so it may know something before the first trial; [transfer](models.md#transfer)
is the model that is made for it.

    history: ../runs/autotvm
    model: transfer
    ablate: {remove: {history: {history: null}}}

- Measurements of the workload and the target that are being searched are left out: they would be the answers. So are
  those whose knobs no longer fit their space. The log of the run says how many there are of each.
- A point that was measured several times counts once, with its fastest time.
- A run folder knows the options of its spaces; records in a file are read as if there had been none.
- The model has to look at programs. Knobs (`view: knobs`) differ from space to space and are refused, and recorded
  tables have no programs.
- Cells are known by what a history held, not by where it lies: if it has grown since, they are other cells.

## Budget
"""

_SWEEP = """\
## Sweeps

A sweep gives settings several values; every combination becomes an entry of the comparison. Keys are `target`, `space`,
`model`, `strategy`, `history`, `budget`, `measure`, and dotted ones for options: `strategy.population`,
`budget.trials`.
"""

_SWEEP_MORE = """
```yaml
workloads: [matmul]
sweep:
  grid: {space: [template, sketch]}                        # each of these
  zip: {model: [none, gbt], strategy: [random, annealing]} # with none + random, and with gbt + annealing
```

```yaml
workloads: [matmul]
sweep:
  - {name: autotvm, space: template, strategy: annealing}
  - {name: ansor, space: sketch, strategy: evolutionary}
```

Entries are called by what varies among them: `sketch/gbt/evolutionary`, or by their `name`.

## Ablations
"""

_ABLATE = """
```yaml
workloads: [matmul]
ablate:
  base: {strategy: evolutionary, model: gbt}
  remove:
    cost model: {model: none}
    crossover: {strategy.crossover: 0}
  replace:
    annealing: {strategy: annealing}
  path: [cost model, crossover]
```

This compares `full`, `without cost model`, `without crossover`, `annealing`, and, along the path, `bare` (without both)
and what each step adds, up to the full thing; steps that are among the others already are not repeated. With a sweep,
every combination of the sweep is ablated.

## Report
"""

_EXPECT = """\
## Expectations

A statement says which entries are better than which, or as good, by a measure: `final` (the time of what was found),
`trials-to-target` (how soon it came within `report.target` of the best known), `auc` (how fast it was over the whole
search). Entries are named by text, with `*` for several, or by factors.
"""

_REST = """
```yaml
workloads: [matmul]
sweep: {strategy: [random, evolutionary], space: [sketch, template]}
expect:
  - {better: {strategy: evolutionary}, than: {strategy: random}, on: trials-to-target, by: 2}
  - {same: sketch/evolutionary, as: "template/*", within: 1.1}
```

## Include

`include: base.yaml` (or a list) puts other files below this one, relative to it: what this file says wins. `budget` and
`report` are joined key by key, everything else is taken whole. A later file of the list wins over an earlier one.

## Overrides

`searchlab run FILE key=value ...` changes an experiment without a new file: `seeds=0..2`, `budget.trials=32`,
`strategy.population=64`. Values are YAML. Commas make a sweep, `strategy=random,local`; a setting that gets one value
is no longer swept over. A baseline and statements about entries that an override takes away are left out.

## What words mean

Words that readers of YAML disagree on are refused where a value is expected: `yes`, `no`, `on`, `off` (write `true`,
`false`, or quotes), `010`, `0b1`, `1_000`, `1:30`; so are `.inf` and `.nan`. `1e-3` is a number. Keys are given once.
Anchors, aliases and `<<` work; tags are not accepted.

## Cells

A cell is one combination on one workload with one seed. Its id is a hash of all that decides what it measures, so the
same cell is the same in every file: names, reports and claims may change without a new measurement.

```python
from searchlab.lab.cells import cells
from searchlab.lab.config import from_data

sweep = {"strategy": ["random", "local"]}
experiment = from_data({"name": "look", "workloads": [{"table": "matmul-256"}], "sweep": sweep})
assert [c.entry for c in cells(experiment)][:2] == ["random", "local"]
```
"""


def page() -> str:
    """The page."""
    return "\n".join(
        [
            _TOP,
            _table(Source),
            _COMPONENTS,
            _table(Budget),
            "## Measure\n\n`local`, `ray` or `replay`, alone or with settings, such as `{local: {repeats: 5}}`.\n",
            f"{_sentence(Timing)} For `local` and `ray`:\n",
            _table(Timing),
            *(_kind(m) for m in (LocalMeasure, Ray, Replay)),
            "## Effort\n",
            _efforts(),
            _SWEEP,
            _table(Sweep),
            _SWEEP_MORE,
            _table(Ablate),
            _ABLATE,
            _table(ReportSettings),
            _EXPECT,
            _table(Claim),
            _REST,
        ]
    )


def _kind(model: type[BaseModel]) -> str:
    inherited = Timing.model_fields if issubclass(model, Timing) else {}
    name = model.__name__.removesuffix("Measure").lower()
    return f"`{name}`: {_sentence(model)}\n\n{_table(model, inherited)}"


def _table(model: type[BaseModel], without: Any = ()) -> str:
    rows = ["| key | default | what it is |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in without:
            said = str(field.description).replace("|", "\\|")
            rows.append(f"| `{field.alias or name}` | {_default(model, name, field)} | {said} |")
    return "\n".join(rows) + "\n"


def _default(model: type[BaseModel], name: str, field: Any) -> str:
    shown = {"measure": "`local`", "seeds": "by effort", "space": "`sketch`", "trials": "by effort"}
    if issubclass(model, Experiment | Budget) and name in shown:
        return shown[name]
    value = field.default
    if field.is_required() or isinstance(value, BaseModel) or field.default_factory is not None or value == ():
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{_yaml(value)}`" if value != "" else ""


def _yaml(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _efforts() -> str:
    rows = ["| effort | what for | trials | batch | seeds | repeats |", "|---|---|---|---|---|---|"]
    for name, e in EFFORTS.items():
        rows.append(f"| `{name}` | {e.about} | {e.trials} | {e.batch} | 0..{e.seeds - 1} | {e.repeats} |")
    return (
        "\n".join(rows)
        + "\n\nWhat the file says itself wins. A budget in seconds has no limit of trials unless it gives one.\n"
    )


def _sentence(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]
