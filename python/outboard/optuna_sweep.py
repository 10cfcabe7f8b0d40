"""Optuna as the source of a sweep's settings: each trial is a program with a session, and a device, of its own.

    import optuna
    from outboard import optuna_sweep

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.HyperbandPruner())
    optuna_sweep.optimize(
        study, ["./train", "--lr", "{lr}", "--batch", "{bs}"],
        {"lr": lambda trial: trial.suggest_float("lr", 1e-4, 1e-2, log=True),
         "bs": lambda trial: trial.suggest_categorical("bs", [64, 128])},
        trials=40, jobs=8, max_cost=2.0)

The program reports as to `outboard sweep` (docs/sweeps.md): by outboard.report, or by lines such as `step=10 loss=0.31`.
What it reports is the study's intermediate value at that step; a trial that the study's pruner gives up is stopped, and
costs no more. This file imports no Optuna: it needs of a study ask and tell, and of a trial number, report and should_prune.
"""
from __future__ import annotations

import collections
import collections.abc
import dataclasses
import math
import os
import re
import signal
import subprocess
import threading
from typing import Any

_WORD = re.compile(r"[(\[]?([A-Za-z_][A-Za-z0-9_./-]*)=([^\s,;)\]]+)[,;)\]]*$")
_LINE_MAX = 4096
_END_WITHIN_S = 15.0  # a session is closed in that time; after it the process is killed


@dataclasses.dataclass
class TrialResult:
    """What became of one trial."""
    number: int
    settings: dict[str, Any]
    state: str            # "complete", "pruned", "failed"
    value: float | None   # the last value that was reported
    step: int | None
    cost_usd: float
    why: str = ""         # of a trial that failed


def read_line(line: str) -> dict[str, float]:
    """The words NAME=NUMBER of a line."""
    words = {}
    for word in line[:_LINE_MAX].split():
        found = _WORD.match(word)
        if found is None:
            continue
        try:
            words[found[1]] = float(found[2])
        except ValueError:
            continue
    return words


def _command(command: collections.abc.Sequence[str], settings: dict[str, Any]) -> list[str]:
    """The command with {name} replaced; braces around anything else stay."""
    words = []
    for word in command:
        for name, value in settings.items():
            word = word.replace("{" + name + "}", str(value))
        words.append(word)
    return words


def _check(command: collections.abc.Sequence[str], space: dict, trials: int, jobs: int, max_cost: float | None) -> None:
    if isinstance(command, str) or not command:
        raise ValueError("command is a list of words, such as ['./train', '--lr', '{lr}']")
    if trials < 1 or jobs < 1:
        raise ValueError(f"trials = {trials}, jobs = {jobs}: at least one of each")
    if max_cost is not None and not max_cost > 0:
        raise ValueError(f"max_cost = {max_cost}: US dollars above zero, or None")
    used = {name for word in command for name in re.findall(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", word)}
    for name in space:
        if name not in used:
            raise ValueError(f"{{{name}}} is in no word of the command")


class _Budget:
    """Equal parts of what is left, for the trials that are left; what a trial leaves over is for those after it."""

    def __init__(self, max_cost: float | None, trials: int):
        self.left, self.trials = max_cost, trials
        self.lock = threading.Lock()

    def take(self) -> float | None | bool:
        """A trial's bound; None: none; False: nothing is left."""
        with self.lock:
            if self.left is None:
                return None
            part = math.floor(1e6 * self.left / max(1, self.trials)) / 1e6
            if part <= 0:
                return False
            self.left -= part
            self.trials -= 1
            return part

    def give_back(self, part: float | None, cost: float) -> None:
        if part is not None:
            with self.lock:
                self.left += max(0.0, part - cost)


def _stop(process: subprocess.Popen) -> None:
    """Ends it with all that it has started: first politely, so that its session is closed."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        try:
            process.wait(_END_WITHIN_S)
            return
        except subprocess.TimeoutExpired:
            continue


def _run(study, trial, command, settings, metric, bound, env, stopping) -> TrialResult:
    result = TrialResult(trial.number, settings, "failed", None, None, 0.0)
    reports, write = os.pipe()
    variables = {**os.environ, **(env or {}), "OUTBOARD_REPORT_FD": str(write), "OUTBOARD_TRIAL": str(trial.number)}
    if bound is not None:
        variables["CLOUD_MAX_COST"] = f"{bound:.6f}"
    try:
        process = subprocess.Popen(_command(command, settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=variables, pass_fds=[write], start_new_session=True)
    except OSError as error:
        os.close(reports)
        os.close(write)
        result.why = str(error)
        return result
    os.close(write)
    lock = threading.Lock()
    pruned = threading.Event()
    said: collections.deque[str] = collections.deque(maxlen=5)

    def take(line: str) -> None:
        words = read_line(line)
        with lock:
            result.cost_usd = max(result.cost_usd, words.get("cost_micro_usd", 0.0) / 1e6)
            if metric not in words or pruned.is_set():
                return
            value = words[metric]
            step = int(words.get("step", 0 if result.step is None else result.step + 1))
            if result.step is not None and step <= result.step:
                return  # the same line by both ways
            result.value, result.step = value, step
            if not math.isfinite(value):
                result.why = f"{metric} is {value} at step {step}"
                pruned.set()
            else:
                trial.report(value, step)
                if trial.should_prune():
                    result.state = "pruned"
                    pruned.set()
        if pruned.is_set():
            threading.Thread(target=_stop, args=(process,), daemon=True).start()

    def read(stream, keep: bool) -> None:
        with stream:
            for line in stream:
                if keep and line.strip():
                    said.append(line.rstrip())
                take(line)

    readers = [threading.Thread(target=read, args=(os.fdopen(reports, errors="replace"), False)),
               threading.Thread(target=read, args=(os.fdopen(os.dup(process.stdout.fileno()), errors="replace"), True))]
    process.stdout.close()
    for reader in readers:
        reader.start()
    while process.poll() is None:
        if stopping.wait(0.05) and not pruned.is_set():
            result.why = "the sweep was stopped"
            pruned.set()
            _stop(process)
    for reader in readers:
        reader.join()
    if result.state == "pruned" or result.why:
        return result
    if process.returncode != 0:
        result.why = f"exit code {process.returncode}" + (f": {said[-1]}" if said else "")
    elif result.value is None:
        result.why = f"it reported no {metric}"
    else:
        result.state = "complete"
    return result


def optimize(study, command: collections.abc.Sequence[str],
             space: dict[str, collections.abc.Callable[[Any], Any]], *, trials: int, jobs: int = 16,
             metric: str = "loss", max_cost: float | None = None, env: dict[str, str] | None = None,
             on_result: collections.abc.Callable[[TrialResult], None] | None = None) -> list[TrialResult]:
    """Runs `trials` trials of the study, `jobs` at a time, and tells it what came of each; returns the results in the
    order in which they ended.

    space: for each {name} of the command what the study's trial suggests. max_cost: US dollars for all of them together;
    when nothing is left, no more begin. A trial that exits with an error, reports no `metric`, or a value that is not
    finite, is told as failed. Ctrl-C ends the trials that run, as failed, and raises KeyboardInterrupt.

    Raises ValueError for a command without one of the names, or numbers below 1.
    """
    _check(command, space, trials, jobs, max_cost)
    budget = _Budget(max_cost, trials)
    results: list[TrialResult] = []
    errors: list[BaseException] = []
    asked = 0
    stopping = threading.Event()
    lock = threading.Lock()  # of the study, too: not all storages are for several threads

    def work() -> None:
        nonlocal asked
        while not stopping.is_set():
            bound = budget.take() if asked < trials else False
            with lock:
                if asked >= trials or bound is False:
                    return
                asked += 1
                trial = study.ask()
                settings = {name: suggest(trial) for name, suggest in space.items()}
            result = _run(study, trial, command, settings, metric, bound, env, stopping)
            budget.give_back(bound, result.cost_usd)
            with lock:
                if result.state == "complete":
                    study.tell(trial, result.value)
                else:
                    study.tell(trial, state=_state(trial, result.state))
                results.append(result)
                if on_result is not None:
                    on_result(result)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # of the study or of a suggestion: the others end, and it is raised below
            errors.append(error)
            stopping.set()

    workers = [threading.Thread(target=guarded) for _ in range(min(jobs, trials))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        stopping.set()
        for worker in workers:
            worker.join()
        raise
    if errors:
        raise errors[0]
    return results


def _state(trial, state: str):
    """As the study's own library names it; the text alone for a study that is none of Optuna's."""
    if type(trial).__module__.split(".")[0] != "optuna":
        return state
    import optuna  # the caller's
    return optuna.trial.TrialState.PRUNED if state == "pruned" else optuna.trial.TrialState.FAIL
