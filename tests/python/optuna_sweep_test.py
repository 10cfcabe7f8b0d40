"""Optuna's side of a sweep, with a study that keeps to ask and tell; with Optuna itself where it is installed."""
import sys
import threading

import pytest

from outboard import optuna_sweep


class Trial:
    def __init__(self, study, number):
        self.study, self.number, self.reported = study, number, []

    def report(self, value, step):
        self.reported.append((step, value))

    def should_prune(self):
        return self.study.prunes(self)


class Study:
    def __init__(self, prunes=lambda trial: False):
        self.prunes, self.trials, self.told = prunes, [], {}

    def ask(self):
        self.trials.append(Trial(self, len(self.trials)))
        return self.trials[-1]

    def tell(self, trial, value=None, state=None):
        assert trial.number not in self.told, "a trial is told of once"
        self.told[trial.number] = value if state is None else state


def run(study, program, space=None, **options):
    options = {"trials": 1, "jobs": 2, **options}
    return optuna_sweep.optimize(study, [sys.executable, "-u", "-c", program, "{n}"],
                                 space or {"n": lambda trial: trial.number}, **options)


def test_lines_are_read_as_a_sweep_reads_them():
    assert optuna_sweep.read_line("epoch (step=10 loss=0.5, acc=1) cost_micro_usd=7 3x=1 name=text") == {
        "step": 10, "loss": 0.5, "acc": 1, "cost_micro_usd": 7}
    assert str(optuna_sweep.read_line("loss=nan")["loss"]) == "nan"


def test_values_of_programs_are_told_to_the_study():
    study = Study()
    results = run(study, """if True:
        import sys
        n = int(sys.argv[1])
        for step in range(3):
            print(f"step={step} loss={n + 1 / (step + 1)}")
    """, trials=5, jobs=3)
    assert study.told == {n: pytest.approx(n + 1 / 3) for n in range(5)}
    assert {r.number for r in results} == set(range(5)) and all(r.state == "complete" and r.step == 2 for r in results)
    assert study.trials[4].reported == [(0, 5.0), (1, 4.5), (2, pytest.approx(4 + 1 / 3))]


def test_reports_by_the_pipe_have_the_cost():
    study = Study()
    results = run(study, """if True:
        import os
        with os.fdopen(int(os.environ["OUTBOARD_REPORT_FD"]), "w") as reports:
            reports.write("step=4 loss=0.25 cost_micro_usd=1500\\n")
    """)
    assert study.told == {0: 0.25} and results[0].cost_usd == 0.0015


def test_a_trial_that_the_study_gives_up_is_stopped():
    study = Study(prunes=lambda trial: trial.number == 0 and len(trial.reported) == 2)
    results = run(study, """if True:
        import sys, time
        for step in range(10**9 if sys.argv[1] == "0" else 3):
            print(f"step={step} loss=1")
            time.sleep(0.01)
    """, trials=2)
    assert study.told == {0: "pruned", 1: 1.0}
    assert {r.number: r.state for r in results} == {0: "pruned", 1: "complete"}


@pytest.mark.parametrize("program, why", [
    ("import sys; print('out of luck'); sys.exit(3)", "exit code 3: out of luck"),
    ("print('step=1 accuracy=0.5')", "it reported no loss"),
    ("import time; print('step=1 loss=nan', flush=True); time.sleep(100)", "loss is nan at step 1"),
])
def test_what_goes_wrong_is_told_as_failed(program, why):
    study = Study()
    results = run(study, program)
    assert study.told == {0: "failed"} and results[0].why == why


def test_money_is_divided_and_bounds_all():
    bounds = []
    study = Study()
    program = """if True:
        import os
        bound = float(os.environ["CLOUD_MAX_COST"])
        print(f"step=0 loss={bound}")
        print(f"step=1 loss={bound} cost_micro_usd={int(1e6 * bound)}")
    """
    results = run(study, program, trials=4, jobs=1, max_cost=2.0, on_result=lambda r: bounds.append(r.value))
    assert bounds == [0.5] * 4 and sum(r.cost_usd for r in results) == pytest.approx(2.0)


def test_a_program_that_is_not_there_is_a_failure_of_its_trial():
    study = Study()
    results = optuna_sweep.optimize(study, ["/nowhere/train", "{n}"], {"n": lambda trial: 1}, trials=2)
    assert study.told == {0: "failed", 1: "failed"} and "No such file" in results[0].why


@pytest.mark.parametrize("wrong", [
    {"command": "./train {n}"}, {"command": ["./train"]}, {"trials": 0}, {"jobs": 0}, {"max_cost": 0.0}, {"command": []},
])
def test_wrong_arguments_start_nothing(wrong):
    study = Study()
    arguments = {"command": ["./train", "{n}"], "space": {"n": lambda trial: 1}, "trials": 1, **wrong}
    with pytest.raises(ValueError):
        optuna_sweep.optimize(study, **arguments)
    assert not study.trials


def test_an_error_of_the_study_ends_the_others():
    started = threading.Event()

    def suggest(trial):
        if trial.number == 1:
            started.wait(60)
            raise RuntimeError("no such distribution")
        started.set()
        return 0
    study = Study()
    with pytest.raises(RuntimeError, match="no such distribution"):
        run(study, "import time; time.sleep(100)", {"n": suggest}, trials=2)
    assert study.told == {0: "failed"}


def test_with_optuna_itself():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=1))
    optuna_sweep.optimize(study, [sys.executable, "-c", "import sys; print('step=0 loss=' + sys.argv[1])", "{x}"],
                          {"x": lambda trial: trial.suggest_float("x", 0, 1)}, trials=4, jobs=2)
    assert study.best_value == min(trial.params["x"] for trial in study.trials)
