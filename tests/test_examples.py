"""The example programs run as a user runs them: in a process of their own, by their command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PNG = b"\x89PNG\r\n\x1a\n"
LAST_LINE = re.compile(
    r"(?P<env>\S+) seed (?P<seed>\d+): (mean return (?P<mean>-?[\d.]+) over the last (?P<count>\d+) episodes"
    r"|no episode finished), (?P<rate>[\d,]+) steps/s \((?P<steps>[\d,]+) steps in [\d.]+ s, "
    r"without [\d.]+ s of compilation\), gae by (?P<implementation>triton|xla) on (?P<backend>\w+)"
)


def last_line_of(program: str, *flags: str) -> str:
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / program), *flags],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def run_ppo(out: Path, *flags: str) -> re.Match[str]:
    """What the last line of `examples/ppo.py` says."""
    for package in ("flax", "gymnax", "matplotlib", "optax", "tqdm"):
        pytest.importorskip(package)
    line = last_line_of("ppo.py", "--out", str(out), *flags)
    said = LAST_LINE.fullmatch(line)
    assert said is not None, line
    return said


@pytest.mark.slow
@pytest.mark.parametrize(("env", "seed"), [("CartPole-v1", 0), ("Pendulum-v1", 3)])
def test_ppo_smoke(tmp_path: Path, env: str, seed: int) -> None:
    out = tmp_path / "curves" / "curve.png"
    said = run_ppo(out, "--smoke", "--env", env, "--seed", str(seed))
    assert (said["env"], int(said["seed"])) == (env, seed)
    assert int(said["rate"].replace(",", "")) > 0
    assert out.read_bytes().startswith(PNG)
    if env == "CartPole-v1":  # episodes of some twenty steps: even a smoke run finishes enough of them
        assert int(said["count"]) >= 100
        assert 8 <= float(said["mean"]) <= 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "needs", "last_line"),
    [
        ("torch_ppo.py", ("gymnasium",), r"CartPole-v1 seed 0: mean return (\d\d\.\d) over the last 100 episodes, .*"),
        ("token_gae.py", (), r"mean score (\d\.\d\d) at first, \d\.\d\d over the last updates \(at most 9\.58\); .*"),
        ("mjx_torch.py", ("brax",), r"inverted_pendulum by mjx: mean return (\d+\.\d) over the last \d+ episodes; .*"),
        ("brax_ppo.py", ("brax",), r".* ours GAE: mean return (\d+\.\d) at first, \d+\.\d at last, .* gae by \w+"),
    ],
)
def test_other_smokes(program: str, needs: tuple[str, ...], last_line: str) -> None:
    for package in (*needs, *(() if program == "brax_ppo.py" else ("torch",)), "tqdm"):
        pytest.importorskip(package)
    line = last_line_of(program, "--smoke")
    assert re.fullmatch(last_line, line), line
