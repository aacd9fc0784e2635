"""What leaves the house: a wheel that carries the notebook and the page's files, and versions that were tested."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import explorer

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it lies in a site-packages: no checkout beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_wheel_carries_every_file_of_the_package(unpacked: Path) -> None:
    source, packed = ROOT / "explorer", unpacked / "explorer"
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    assert [file for file in files if "__pycache__" not in file.parts and not (packed / file).is_file()] == []


def test_wheel_says_that_it_has_types(unpacked: Path) -> None:
    assert (unpacked / "explorer" / "py.typed").is_file()


def test_wheel_brings_its_extension_to_notebook_servers(unpacked: Path) -> None:
    extensions = "etc/jupyter/jupyter_server_config.d/explorer.json"
    (installed,) = unpacked.glob(f"*.data/data/{extensions}")
    assert installed.read_bytes() == (ROOT / "explorer/jupyter" / extensions.removeprefix("etc/jupyter/")).read_bytes()


def test_the_version_is_that_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert explorer.__version__ == declared
    told = subprocess.check_output([sys.executable, "-m", "explorer", "--version"], text=True)
    assert told == f"explorer {declared}\n"


def test_wheel_finds_its_own_notebook(unpacked: Path) -> None:
    code = "import explorer.serve; print(explorer.serve.notebooks())"
    found = subprocess.check_output([sys.executable, "-c", code], cwd=unpacked, text=True)
    assert Path(found.strip()) == unpacked / "explorer" / "notebooks"
    original = (ROOT / "notebooks" / "explorer.ipynb").read_bytes()
    assert (unpacked / "explorer" / "notebooks" / "explorer.ipynb").read_bytes() == original


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_tested_version_is_in_the_range_we_promise(requirement: Requirement) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    assert requirement.name in pins, f"constraints.txt does not say which {requirement.name} was tested"
    assert pins[requirement.name] in requirement.specifier


RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >> "{log}"\n{then}\n'


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere plain pip takes a torch without CUDA")
@pytest.mark.parametrize("with_uv", [True, False])
def test_set_up_asks_uv_for_the_torch_of_this_machine_where_uv_is_there(tmp_path: Path, with_uv: bool) -> None:
    """The recipe alone: programs that write down how they are called, and a uv that fails as it does offline."""
    log = tmp_path / "calls"
    programs = {
        "bin/python3": f'mkdir -p {tmp_path}/.venv/bin && cp {tmp_path}/bin/python3 {tmp_path}/.venv/bin/python',
        **({"bin/uv": "exit 2"} if with_uv else {}),
    }
    for name, then in programs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(RECORDER.format(log=log, then=then), encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    subprocess.run(["make", ".venv/.installed"], cwd=tmp_path, env={"PATH": path}, check=True, capture_output=True)
    calls = [line for line in log.read_text(encoding="utf-8").splitlines() if " install " in line]
    assert [call.split()[0] for call in calls] == (["uv", "python"] if with_uv else ["python"])
    assert not with_uv or "--torch-backend auto -c constraints.txt torch" in calls[0]
    assert "pip install" in calls[-1]
    assert "-c constraints.txt -e .[models,test]" in calls[-1]
