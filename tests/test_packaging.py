"""What leaves the house: a wheel that carries the notebook and the page's files, and versions that
were tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import explorer

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]


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
    assert [
        file for file in files if "__pycache__" not in file.parts and not (packed / file).is_file()
    ] == []


def test_wheel_says_licence_author_and_pythons(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    said = message_from_string(metadata.read_text(encoding="utf-8"))
    # ours, and that of the plotly.js which the package carries
    licences = ["LICENSE", "explorer/plotlyjs/LICENSE"]
    assert said["License-Expression"] == "BSD-3-Clause AND MIT"
    assert said.get_all("License-File") == licences
    for licence in licences:
        packed = metadata.parent / "licenses" / licence
        assert packed.read_text(encoding="utf-8") == text(licence)
    assert said["Author"] == "The Transformer Signal Explorer authors"
    assert said["Author"] in text("LICENSE")
    pythons = re.findall(r":: (3\.\d+)$", "\n".join(said.get_all("Classifier", [])), re.MULTILINE)
    assert said["Requires-Python"] == f">={pythons[0]}"
    assert re.findall(r'"(3\.\d+)"', text(".github/workflows/test.yml")) == pythons
    assert f"Python {pythons[0]} to {pythons[-1]}" in text("README.md")


def test_citation_and_changelog_have_the_version() -> None:
    version, released = (
        re.search(rf"^{field}: (\S+)$", text("CITATION.cff"), re.MULTILINE)[1]  # type: ignore[index]
        for field in ("version", "date-released")
    )
    assert version == PROJECT["version"]
    assert f"## {version} ({released})" in text("CHANGELOG.md")


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = page if not path else page.parent / path
        assert there.exists(), target
        if anchor:
            heads = re.findall(
                r"^#+ (.+)$", there.read_text(encoding="utf-8").lower(), re.MULTILINE
            )
            assert anchor in [re.sub(r"[^\w -]", "", head).replace(" ", "-") for head in heads], (
                target
            )


def test_the_first_page_is_short() -> None:
    assert len(text("README.md").splitlines()) <= 200


def test_wheel_brings_its_extension_to_notebook_servers(unpacked: Path) -> None:
    extensions = "etc/jupyter/jupyter_server_config.d/explorer.json"
    (installed,) = unpacked.glob(f"*.data/data/{extensions}")
    assert (
        installed.read_bytes()
        == (
            ROOT / "plugins/serve/explorer_serve/jupyter" / extensions.removeprefix("etc/jupyter/")
        ).read_bytes()
    )


def test_the_version_is_that_of_the_project() -> None:
    assert explorer.__version__ == PROJECT["version"]
    told = subprocess.check_output([sys.executable, "-m", "explorer", "--version"], text=True)
    assert told == f"explorer {explorer.__version__}\n"


def test_wheel_finds_its_own_notebook(unpacked: Path) -> None:
    code = "import explorer_serve.start; print(explorer_serve.start.notebooks())"
    found = subprocess.check_output([sys.executable, "-c", code], cwd=unpacked, text=True)
    assert Path(found.strip()) == unpacked / "explorer" / "notebooks"
    original = (ROOT / "notebooks" / "explorer.ipynb").read_bytes()
    assert (unpacked / "explorer" / "notebooks" / "explorer.ipynb").read_bytes() == original


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_tested_version_is_in_the_range_we_promise(requirement: Requirement) -> None:
    tested = re.findall(r"^([\w.-]+)==(\S+)$", text("constraints.txt"), re.MULTILINE)
    pins = {name.lower().replace("_", "-"): version for name, version in tested}
    assert requirement.name in pins, f"constraints.txt does not say which {requirement.name}"
    assert pins[requirement.name] in requirement.specifier


RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >> "{log}"\n{then}\n'


class Checkout:
    """The Makefile's recipes alone: programs that write down how they are called, and a uv that
    fails, as offline."""

    def __init__(self, folder: Path, with_uv: bool = False) -> None:
        self.folder, self.log = folder, folder / "calls"
        self.log.touch()
        copies = "for name in python explorer; do cp {0}/bin/python3 {0}/.venv/bin/$name; done"
        self.program("python3", f"mkdir -p {folder}/.venv/bin && {copies.format(folder)}")
        if with_uv:
            self.program("uv", "exit 2")
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            (folder / name).write_bytes((ROOT / name).read_bytes())

    def program(self, name: str, then: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(RECORDER.format(log=self.log, then=then), encoding="utf-8")
        path.chmod(0o755)

    def make(self, *targets: str) -> list[str]:
        """The calls of installers that making the targets takes."""
        self.log.write_text("", encoding="utf-8")
        path = f"{self.folder}/bin:/usr/bin:/bin"
        subprocess.run(
            ["make", *targets], cwd=self.folder, env={"PATH": path}, check=True, capture_output=True
        )
        return [
            line
            for line in self.log.read_text(encoding="utf-8").splitlines()
            if " install " in line
        ]


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere plain pip takes a torch without CUDA"
)
@pytest.mark.parametrize("with_uv", [True, False])
def test_set_up_asks_uv_for_the_torch_of_this_machine_where_uv_is_there(
    tmp_path: Path, with_uv: bool
) -> None:
    calls = Checkout(tmp_path, with_uv).make(".venv/.installed")
    assert [call.split()[0] for call in calls] == (["uv", "python"] if with_uv else ["python"])
    assert not with_uv or "--torch-backend auto -c constraints.txt torch" in calls[0]
    assert "pip install" in calls[-1]
    assert calls[-1].endswith("-c constraints.txt -e .[sweeps]")


def test_the_page_needs_no_test_packages_and_the_tests_add_them_to_its_environment(
    tmp_path: Path,
) -> None:
    checkout = Checkout(tmp_path)

    def extras(*targets: str) -> list[str]:
        return [call.split()[-1] for call in checkout.make(*targets)]

    assert extras("run") == [".[sweeps]"]
    assert "explorer serve" in checkout.log.read_text(encoding="utf-8")
    assert extras("lab") == []
    assert extras("test") == [".[docs,models,sweeps,test]"]
    assert extras("run", "lab", "test") == []
    for age, stamp in ((60, "installed"), (50, "installed-tests")):  # older than the requirements
        os.utime(tmp_path / f".venv/.{stamp}", (time.time() - age,) * 2)
    assert extras("test") == [".[sweeps]", ".[docs,models,sweeps,test]"]
    assert extras("test", "run") == []


def test_an_install_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    working = (tmp_path / "bin/python3").read_text(encoding="utf-8")
    for target, installed in (("run", ".[sweeps]"), ("test", ".[docs,models,sweeps,test]")):
        # A shell that was started with SIGINT ignored, as behind nohup, does not die of it.
        interrupted = working.replace(
            "echo", 'case "$*" in *install*) kill -INT $$; exit 130;; esac; echo'
        )
        for program in (tmp_path / "bin/python3", tmp_path / ".venv/bin/python"):
            if program.exists():
                program.write_text(interrupted, encoding="utf-8")
        with pytest.raises(subprocess.CalledProcessError):
            checkout.make(target)
        for program in (tmp_path / "bin/python3", tmp_path / ".venv/bin/python"):
            program.write_text(working, encoding="utf-8")
        assert [call.split()[-1] for call in checkout.make(target)] == [installed]
        assert checkout.make(target) == []
