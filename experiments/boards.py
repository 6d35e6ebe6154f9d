"""What is shown of the leaderboard, as records and words: boards of methods by gold rows, goals, choices, trials.

A board compares methods over the same trials alone: those that have all of its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.captions import commits, hardware
from experiments.standings import (
    BASE,
    LEVEL,
    NEAR,
    PLAIN,
    SIMPLE,
    Foretold,
    Gain,
    Line,
    Prediction,
    Standing,
    below,
    corrected,
    coverage,
    foretold,
    foretold_best,
    gains,
    kept,
    over_simple,
    prediction,
    projection,
    rows_error,
    standing,
    without_looking,
)
from experiments.tables import MISSING, joined, markdown
from experiments.tasks import SPLITS, TASKS, Task, data_of
from wdistill.methods.reaching import REACH
from wdistill.pages.accuracies import FEWEST
from wdistill.pages.tables import Grid
from wdistill.pages.words import chance, count, duration, listed, signed

LISTED = (  # in documents, as far as a board has them
    *("best", "corrected-retrained+gold", "retrained+gold", "corrected+gold", "corrected", "logistic+gold", "mixed+gold"),
    *("paper+gold", "paper", "unweighted", "labels+gold", "oracle"),
)
MEASURE = f"Points of test accuracy over {BASE} (all rows of the teacher at weight 1, and the gold rows as labels)"
MEANING = (
    f"{MEASURE}, mean over tasks ± standard error over trials; beneath, the tasks that were won, the worst task, the same "
    f"over {PLAIN}, and the share that a method has of the oracle's gain over {PLAIN}."
)
NONE_YET = "No trials yet."


@dataclass(frozen=True)
class Plan:
    """What the leaderboard consists of once all of it has been run."""

    tasks: tuple[Task, ...]
    methods_of: Callable[[Task], Iterable[str]]  # names, in the order of the file
    gold: tuple[int, ...]  # sizes of the gold set, ascending
    trials: int  # of every task and size

    def half(self, half: str) -> list[Task]:
        return [task for task in self.tasks if task.half == half]

    @property
    def middle(self) -> int:
        """The size that goals are about, and boards are sorted by."""
        return self.gold[len(self.gold) // 2]


@dataclass(frozen=True)
class Board:
    """Methods by number of gold rows, all over the same trials."""

    title: str
    tasks: tuple[str, ...]  # that it is to rest on
    trials: Mapping[int, Mapping[str, int]]  # gold rows → task → trials that it does rest on
    rows: tuple[tuple[str, tuple[Standing | None, ...]], ...]  # method, and its standing by number of gold rows
    of: int  # trials that there are to be of every task

    def rests_on(self, gold: int) -> str:
        """Tasks and trials of a column: "6 of 7 tasks, 3 to 5 of 5 trials"."""
        counts = [each for each in self.trials[gold].values() if each]
        if not counts:
            return "no trials yet"
        return f"{len(counts)} of {count(len(self.tasks), 'task')}, {_span(counts)} of {count(self.of, 'trial')}"

    @property
    def lacks(self) -> str:
        """Tasks that a column does not have; "" where none lacks any."""
        without = {gold: [task for task, each in counts.items() if not each] for gold, counts in self.trials.items()}
        told = [f"at {gold:,} gold rows {listed(tasks)}" for gold, tasks in without.items() if tasks]
        return f"Still without a trial: {'; '.join(told)}." if told else ""


@dataclass(frozen=True)
class Goal:
    """One target, and what has become of it."""

    name: str
    reached: bool | None  # None where there is nothing to judge by
    final: bool  # whether all trials that it is judged by are there
    told: str

    @property
    def verdict(self) -> str:
        if self.reached is None:
            return "cannot be judged yet"
        return ("reached" if self.reached else "not reached") + ("" if self.final else " so far")


def boards(plan: Plan, lines: Sequence[Line], half: str) -> list[Board]:
    """The methods that run everywhere, soft targets: over a half, and over its tasks whose teacher can be retrained."""
    mine = plan.half(half)
    own = [task for task in mine if not task.external]
    found = [board(plan, lines, "All tasks of this half", mine)]
    if _shared(plan, own) != _shared(plan, mine):
        found.append(board(plan, lines, "Tasks whose teacher can be retrained", own))
    return [each for each in found if each.tasks]


def all_methods(plan: Plan, lines: Sequence[Line], targets: str = "soft") -> list[Board]:
    """Every method, over the tasks that are for all; a teacher that is a table, and cannot be retrained, stands apart."""
    found = []
    for half in ("confirmation", "tuning"):
        whole = [task for task in plan.half(half) if task.all_methods]
        groups = {
            "teachers that can be retrained": [task for task in whole if not task.external],
            "external teachers": [task for task in whole if task.external],
        }
        found += [board(plan, lines, f"{half.capitalize()} half, {name}", tasks, targets) for name, tasks in groups.items()]
    return [each for each in found if each.tasks]


def board(plan: Plan, lines: Sequence[Line], title: str, tasks: Sequence[Task], targets: str = "soft") -> Board:
    """All methods that each of the tasks runs, those with the largest gain first; and labels alone if all trials have it."""
    names, methods = tuple(task.name for task in tasks), _shared(plan, tasks)
    known = [line for line in lines if line["task"] in names and set(methods) <= set(line["accuracies"].get(targets, {}))]
    if SIMPLE not in methods and known and all(SIMPLE in line["accuracies"][targets] for line in known):
        methods = [*methods, SIMPLE]
    trials = {gold: {name: sum(_at(line, name, gold) for line in known) for name in names} for gold in plan.gold}
    rows = [(method, tuple(standing(known, method, gold, targets=targets) for gold in plan.gold)) for method in methods]
    middle = plan.gold.index(plan.middle)

    def place(row: tuple[str, tuple[Standing | None, ...]]) -> float:
        first = next((each.mean for each in (row[1][middle], *row[1]) if each is not None), None)
        return -first if first is not None else 0.0

    return Board(title, names, trials, tuple(sorted(rows, key=place)), plan.trials)


def goals(plan: Plan, lines: Sequence[Line]) -> list[Goal]:
    """The targets that were set before the runs, all of them on the confirmation half with soft targets."""
    names = [task.name for task in plan.half("confirmation")]
    mine = [line for line in lines if line["task"] in names]
    whole = {gold: all(_count(mine, name, gold) >= plan.trials for name in names) for gold in plan.gold}
    return [
        _safe(mine, plan, final=all(whole.values())),
        _gaining(mine, plan, final=whole[plan.middle]),
        _predicting(mine, final=all(whole.values()), others=[line for line in lines if line["task"] not in names]),
    ]


def _safe(mine: Sequence[Line], plan: Plan, *, final: bool) -> Goal:
    name = f"best is never significantly below {BASE} on any task (paired t, one-sided, Holm-corrected over tasks, 5 %)"
    found = gains(mine, "best")
    tested: dict[tuple[str, int], tuple[float, bool]] = {}
    for gold in plan.gold:
        tested |= below([line for line in mine if line["gold"] == gold], "best")
    if not tested:
        return Goal(name, None, final, f"No task has {FEWEST} trials that differ yet.")
    lost = [f"{_place(*key)} ({points(found[key])} points, {chance(p)})" for key, (p, sure) in tested.items() if sure]
    trials = _trials(found[key] for key in tested)
    compared = f"{count(len(tested), 'comparison')}, corrected at each number of gold rows, {trials}"
    if lost:
        return Goal(name, False, final, f"Below on {listed(lost)}, of {compared}.")
    worst = min(tested, key=lambda key: found[key].mean)
    lower = sum(each.mean < 0 for each in found.values())
    low = f"lowest on {_place(*worst)}, {points(found[worst])} points, {chance(tested[worst][0])}"
    told = f"In none of {compared}; {low}; means below 0 in {lower}"
    needed = f"A loss of {_least_seen(plan):.1f} standard errors would count, of {plan.trials} trials"
    return Goal(name, True, final, f"{told} of {len(found)}. {needed}.")


def _least_seen(plan: Plan) -> float:
    """Standard errors by which one task has to be below for the test to say so."""
    from scipy.stats import t

    return float(t.isf(LEVEL / len(plan.half("confirmation")), plan.trials - 1))


def _gaining(mine: Sequence[Line], plan: Plan, *, final: bool) -> Goal:
    name = f"best gains at least 1.0 point over {BASE} on average at {plan.middle:,} gold rows"
    found = standing(mine, "best", plan.middle)
    if found is None:
        return Goal(name, None, final, f"No trial with {plan.middle:,} gold rows yet.")
    short = f": {1.0 - found.mean:.2f} short" if found.mean < 1.0 else ""
    tasks = f"{found.tasks} of {count(len(plan.half('confirmation')), 'task')}"
    tuned = {task.data for task in plan.half("tuning")}
    fresh = standing([line for line in mine if data_of(line["task"]) not in tuned], "best", plan.middle)
    apart = f"; over the {fresh.tasks} whose data no tuning task has, {points(fresh)}" if fresh else ""
    rows, simple = rows_error(mine, "best", plan.middle), over_simple(mine, "best", plan.middle)
    shared = f" The test rows, which the trials of a task share, add a standard error of {rows:.2f}." if rows else ""
    hard = standing(mine, "best", plan.middle, targets="hard")
    harder = f" With hard targets, {count(hard.tasks, 'task')}: {points(hard)}." if hard else ""
    others = f"{shared}{_simpler(simple)}{harder}"
    return Goal(name, found.mean >= 1.0, final, f"{points(found)} points over {tasks}{short}{apart}.{others}")


def _simpler(found: tuple[float, list[str]] | None) -> str:
    if found is None:
        return ""
    gain, tasks = found
    where = f" ({SIMPLE} on {listed(tasks)})" if tasks else ""
    return f" Over the better of {BASE} and {SIMPLE} on each task{where}: {signed(gain)}."


def _predicting(mine: Sequence[Line], *, final: bool, others: Sequence[Line]) -> Goal:
    """Judged by every task at every size, means over trials; other readings of the target stand beside it.

    `others`: lines of the other half, whose mean gain is what one would say of any task without looking at it.
    """
    name = f"the predicted gain of corrected targets is within ±{NEAR:g} point of the realised one for 80 % of the tasks, "
    name += "each size by itself"
    found, single = foretold(mine, REACH["soft"]), coverage(mine, reach=REACH["soft"])
    if found is None or single is None:
        return Goal(name, None, final, "No trial to foretell yet.")
    far = max(found.predicted, key=lambda key: abs(found.predicted[key] - found.realised[key]))
    told = f"{_near(found)}, {100 * found.within:.0f} %, foretold as `wdistill advise` does"
    short = f": {80 - 100 * found.within:.0f} percentage points short" if found.within < 0.8 else ""
    tasks = [task_near(found, task) for task in dict.fromkeys(task for task, _ in found.predicted)]
    whole = f"means over sizes: {sum(tasks)} of {count(len(tasks), 'task')}"
    chosen = foretold_best(mine, REACH["soft"])
    taken = f"; of best, which may leave the targets alone: {_near(chosen)}" if chosen else ""
    came = f"{signed(found.predicted[far])} points predicted, {signed(found.realised[far])} came"
    readings = f"{whole}{taken}. {foretelling_one(single)}{_blind(found, others)}"
    return Goal(
        name, found.within >= 0.8, final, f"{told}{short}; furthest off {_place(*far)}: {came}. Other readings: {readings}."
    )


def _blind(found: Prediction, others: Sequence[Line]) -> str:
    """How near one comes by always saying the mean gain of the other half; "" where there is none."""
    seen = foretold(others, REACH["soft"])
    if seen is None:
        return ""
    usual = sum(seen.realised.values()) / len(seen.realised)
    blind = without_looking(found, usual)
    return (
        f". Saying {signed(usual)} of every task, the tuning half's mean, would be near in {_near(blind)}: root mean square "
        f"{blind.off:.2f} points, of the prediction {found.off:.2f}"
    )


def _near(found: Prediction) -> str:
    return f"{round(found.within * len(found.predicted))} of {len(found.predicted)} tasks and sizes"


def task_near(found: Prediction, task: str) -> bool:
    """Whether a task's gain, mean over sizes, came within a point of the one predicted."""
    gaps = [found.realised[key] - each for key, each in found.predicted.items() if key[0] == task]
    return abs(sum(gaps) / len(gaps)) <= NEAR


def validated(lines: Sequence[Line]) -> str:
    """How well gains were foretold over all tasks and trials, for documents."""
    said = []
    for targets in ("soft", "hard"):
        found, single = prediction(lines, targets), coverage(lines, targets)
        if found is not None and single is not None:
            said.append(f"{targets.capitalize()} targets: {foretelling(found)}. {foretelling_one(single)}.")
    if not said:
        return joined(["Not yet: that takes trials of three data sets."])
    sizes = sorted({line["gold"] for line in lines})
    planned = [told for gold, then in pairwise(sizes) if (told := planning(lines, gold, then))]
    return joined([*said, *targets_told(lines), *planned, provenance_in_words(lines)])


def targets_told(lines: Sequence[Line]) -> list[str]:
    """What was promised of the targets themselves."""
    found = kept(lines)
    if found is None:
        return []
    came = f"{signed(found.promised)} points promised on average, {signed(found.came)} came"
    inside = f"{100 * found.covered:.0f} % of {found.trials:,} trials are inside their 95 % interval"
    return [f"Accuracy of the corrected targets over the teacher's, before any student: {came}; {inside}."]


def planning(lines: Sequence[Line], gold: int, then: int) -> str:
    """What more gold rows were said to bring, and what they brought; "" where nobody was asked."""
    found = projection(lines, gold, then)
    if found is None:
        return ""
    return (
        f"More gold, from {gold:,} to {then:,} rows, {count(found.trials, 'trial')}: projected gain of the targets "
        f"{signed(found.projected)} points, realised {signed(found.realised)}, off by {found.off:.2f} (root mean square)."
    )


def foretelling(found: Prediction) -> str:
    """Slope, correlation and share within a point, of means over trials."""
    sign = "+" if found.intercept >= 0 else "−"
    return (
        f"{100 * found.within:.0f} % of {len(found.predicted)} tasks and sizes, each foretold by the tasks of all other "
        f"data sets, are within ±{NEAR:g} point of the predicted gain; realised = {found.slope:.2f} · predicted {sign} "
        f"{abs(found.intercept):.2f}, correlation {found.correlation:.2f}"
    ).replace("-", "−")


def foretelling_one(found: Foretold) -> str:
    """What a single user can expect."""
    near, covered = f"{100 * found.near:.0f} %", f"{100 * found.covered:.0f} %"
    return f"Of {found.trials:,} single trials {near} are within ±{NEAR:g} point, and {covered} inside their 95 % interval"


def choices(plan: Plan, lines: Sequence[Line]) -> Grid | None:
    """On how many trials `best` corrected the targets, and on how many it stayed with the teacher's own."""
    known = [line for line in lines if "best" in line["why"]]
    if not known:
        return None

    def cell(names: Collection[str], gold: int) -> str:
        mine = [corrected(line) for line in known if line["task"] in names and line["gold"] == gold]
        return f"{sum(mine)} of {len(mine)}" if mine else MISSING

    rows = [(task.name, *(cell([task.name], gold) for gold in plan.gold)) for task in plan.tasks]
    total = ("all tasks", *(cell([task.name for task in plan.tasks], gold) for gold in plan.gold))
    return Grid(("targets corrected", *_sizes(plan)), (*rows, total))


def trials(plan: Plan, lines: Sequence[Line]) -> Grid:
    """How much of every task has been run."""
    rows = [
        (f"{task.name}, {task.half}", *(_of(_count(lines, task.name, gold), plan.trials) for gold in plan.gold))
        for task in plan.tasks
    ]
    return Grid(("trials", *_sizes(plan)), tuple(rows))


def run_so_far(plan: Plan, lines: Sequence[Line]) -> str:
    """In a sentence."""
    wanted = [(task.name, gold) for task in plan.tasks for gold in plan.gold]
    there = sum(min(plan.trials, _count(lines, *each)) for each in wanted)
    total = plan.trials * len(wanted)
    if there == total:
        return f"All {total:,} trials have been run."
    return f"{there:,} of {total:,} trials have been run; {total - there:,} are missing." if there else NONE_YET


def provenance(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """What the lines rest on, as names and values."""
    if not lines:
        return []
    numbers = sorted({line["trial"] for line in lines})
    versions = sorted(
        {
            f"{name} {line['environment'][name]}"
            for line in lines
            for name in ("torch", "scikit-learn")
            if name in line.get("environment", {})
        }
    )
    sources = {
        line["data"]["name"]: line["data"]["source"] for line in lines if not line.get("data", {}).get("official", True)
    }
    return [
        ("code", commits(lines)),
        ("hardware", ", ".join([*hardware(lines), *versions]) or MISSING),
        ("seeds", f"{_span(numbers)}, the numbers of the trials; rows are drawn with {_splits(lines)}"),
        *([("unofficial data", "; ".join(f"{name}: {told}" for name, told in sorted(sources.items())))] if sources else []),
        ("time", f"{duration(sum(line['seconds'] for line in lines))} on one thread"),
    ]


def _splits(lines: Sequence[Line]) -> str:
    """What is added to the number of a trial for the seed of its split, by half."""
    found = {task.half: SPLITS[task.half] for task in TASKS if task.name in {line["task"] for line in lines}}
    return listed([f"{added:,} more ({half})" for half, added in found.items()]) or MISSING


def provenance_in_words(lines: Sequence[Line]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in provenance(lines)) + "."


# ------------------------------------------------------------------------------------------------------------- markdown


def table(plan: Plan, lines: Sequence[Line]) -> str:
    """All boards, goals and counts as Markdown."""
    parts = ["### Leaderboard", run_so_far(plan, lines)]
    if not lines:
        return joined(parts)
    parts += [_listed(goals(plan, lines)), MEANING]
    for half in ("confirmation", "tuning"):
        parts += [f"#### {half.capitalize()} half, soft targets"]
        parts += [text for each in boards(plan, lines, half) for text in _board(plan, each)]
    for targets in ("soft", "hard"):
        parts += [f"#### All methods, {targets} targets"]
        parts += [text for each in all_methods(plan, lines, targets) for text in _board(plan, each)]
    chosen = choices(plan, lines)
    parts += ["#### What `best` chose", _grid(chosen)] if chosen else []
    parts += ["#### Trials", _grid(trials(plan, lines))]
    parts.append(provenance_in_words(lines))
    return joined(parts)


def brief(plan: Plan, lines: Sequence[Line]) -> str:
    """A dozen methods on the confirmation half and the goals, for documents."""
    if not lines:
        return joined([NONE_YET])
    mine = plan.half("confirmation")
    if not {line["task"] for line in lines} & {task.name for task in mine}:
        return joined([f"{run_so_far(plan, lines)} None is of the confirmation half, by which methods are judged."])
    whole = [task for task in mine if task.all_methods and not task.external]
    both = [board(plan, lines, "", mine), board(plan, lines, "", whole)]
    places = [(each, i) for each in both for i in range(len(plan.gold))]
    columns = [f"{gold:,} gold rows, {count(len(tasks), 'task')}" for tasks in (mine, whole) for gold in plan.gold]
    found = [dict(each.rows) for each in both]
    known = [method for method in LISTED if any(method in rows for rows in found)]
    rows = [
        [
            f"`{method}`",
            *(points(row[method][i]) if method in row else MISSING for row in found for i in range(len(plan.gold))),
        ]
        for method in known
    ]
    rests = ["rests on", *(each.rests_on(plan.gold[i]) for each, i in places)]
    said = (
        f"Confirmation half: all its {count(len(mine), 'task')}, and the {len(whole)} of them that are for all methods and "
        f"whose teacher can be retrained. "
        f"{MEASURE}, soft targets, mean over tasks ± standard error over trials. {run_so_far(plan, lines)}"
    )
    own = [line for line in lines if line["task"] in {task.name for task in mine}]
    return joined(
        [markdown(["method", *columns], [*rows, rests]), said, _listed(goals(plan, lines)), provenance_in_words(own)]
    )


def _listed(found: Sequence[Goal]) -> str:
    return "\n".join(f"- {goal.name[:1].upper()}{goal.name[1:]}: **{goal.verdict}**. {goal.told}" for goal in found)


def _board(plan: Plan, found: Board) -> list[str]:
    head = ["method", *(f"{gold:,} gold rows<br>{found.rests_on(gold)}" for gold in plan.gold)]
    rows = [[f"`{method}`", *("<br>".join(cells(each)) for each in standings)] for method, standings in found.rows]
    return [f"{found.title}: {listed(found.tasks)}. {found.lacks}".strip(), markdown(head, rows)]


def _grid(found: Grid) -> str:
    return markdown(found.columns, found.lines)


def cells(found: Standing | None) -> tuple[str, ...]:
    """The gain, and what stands beneath it."""
    if found is None:
        return (MISSING,)
    share = [f"{100 * found.share:.0f} % of the oracle".replace("-", "−")] if found.share is not None else []
    over = [f"over {PLAIN} {points(found.over)}", _won(found.over)] if found.over is not None else []
    own = ("0, the baseline",) if found.method == BASE else (points(found), _won(found))
    return *own, *over, *share


def _won(found: Standing) -> str:
    return f"won {found.wins} of {found.tasks}, worst {signed(found.worst)}"


# ---------------------------------------------------------------------------------------------------------------- words


def points(found: Standing | Gain | None) -> str:
    """With the standard error where there is one."""
    if found is None:
        return MISSING
    return signed(found.mean) + (f" ± {found.error:.2f}" if found.error is not None else "")


def _trials(found: Iterable[Gain]) -> str:
    """Over how many trials each: "2 to 5 trials each"."""
    return f"{_span([each.trials for each in found])} trials each"


def _shared(plan: Plan, tasks: Sequence[Task]) -> list[str]:
    """Methods that each of the tasks runs."""
    every = [list(plan.methods_of(task)) for task in tasks]
    return [method for method in every[0] if all(method in each for each in every)] if every else []


def _at(line: Line, task: str, gold: int) -> bool:
    return bool(line["task"] == task and line["gold"] == gold)


def _count(lines: Iterable[Line], task: str, gold: int) -> int:
    return sum(_at(line, task, gold) for line in lines)


def _sizes(plan: Plan) -> tuple[str, ...]:
    return tuple(f"{gold:,} gold rows" for gold in plan.gold)


def _place(task: str, gold: int) -> str:
    return f"{task} with {gold:,} gold rows"


def _of(number: int, wanted: int) -> str:
    return f"{number} of {max(number, wanted)}"


def _span(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
