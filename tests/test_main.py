"""The `explorer` command: its answers, its exit codes, and its one line when something is wrong."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

import explorer_serve.start
from explorer import plotlyjs
from explorer.__main__ import main
from explorer.config import Config
from explorer.profile import Profile

SMALL = {"n_layers": 2, "d_model": 16, "n_ctx": 8, "n_seeds": 1}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output without a server's first line, and standard error of one command,
    run here."""
    try:
        code = main(arguments)
    except SystemExit as ended:  # argparse's way out
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    return code, captured.out.removeprefix("Starting …\n"), captured.err


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_measure_prints_the_profile_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL), encoding="utf-8")
    code, out, err = answer(capsys, "measure", str(file))
    assert (code, err) == (0, "")
    profile = Profile.from_json(out)
    assert profile.config == Config(**SMALL)
    assert profile["second_moment", "resid_post"].shape == (1, 2)


def test_measure_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SMALL).encode())))
    code, out, _ = answer(capsys, "measure", "-")
    assert code == 0
    assert json.loads(out)["config"]["n_layers"] == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"n_layer": 2}', "n_layer is not a field"),
        ('{"n_layers": 0}', "n_layers must be a whole number between 1 and 1024; got 0"),
        ('{"n_layers": 1024, "d_model": 2048}', "weights and activations must fit into"),
        ('{"n_layers": ', "config must be JSON; got"),
    ],
)
def test_measure_refuses_a_bad_config(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    code, out, err = answer(capsys, "measure", str(file))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("explorer: ")
    assert err.count("\n") == 1


def test_measure_refuses_a_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nothing.json")
    for path, why in (
        (missing, "No such file or directory"),
        ("a\0b.json", "no path has the character NUL"),
    ):
        code, out, err = answer(capsys, "measure", path)
        assert (code, out) == (2, "")
        assert err == f"explorer: config must be a file that can be read; got {path!r} ({why})\n"


@pytest.mark.parametrize("command", ["serve", "lab"])
def test_a_port_in_use_is_one_line(
    command: str, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(
        capsys, command, "--host", "127.0.0.1", "--port", str(taken_port), "--no-browser"
    )
    assert (code, out) == (1, "")
    assert err == f"explorer: cannot serve on 127.0.0.1 port {taken_port}: Address already in use\n"


@pytest.mark.parametrize("command", ["serve", "lab"])
def test_a_missing_notebook_is_one_line(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(explorer_serve.start, "PACKAGE", tmp_path / "explorer")
    code, out, err = answer(capsys, command, "--no-browser")
    assert (code, out) == (1, "")
    assert err == (
        f"explorer: the notebook explorer.ipynb must be in {tmp_path}/explorer/notebooks or {tmp_path}/notebooks; "
        "it is in neither\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("dance",), "invalid choice: 'dance'"),
        (("serve", "--port", "eighty"), "must be a whole number between 1 and 65535; got 'eighty'"),
        (("serve", "--preheat", "-1"), "must be a whole number between 0 and 64; got '-1'"),
        (("serve", "--max-pages", "0"), "must be a whole number of at least 1; got '0'"),
        (
            ("serve", "--base-url", "explorer"),
            "must begin and end with / and be a plain path; got 'explorer'",
        ),
        (
            ("serve", "--metrics-from", "10.0.0.1/8"),
            "must be a network such as 10.0.0.0/8; got '10.0.0.1/8'",
        ),
        (("serve", "--port", "65536"), "must be a whole number between 1 and 65535; got '65536'"),
        (("measure",), "the following arguments are required: CONFIG.json"),
    ],
)
def test_bad_usage(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize("command", ["serve", "lab", "measure", "probe"])
def test_help_names_every_command_and_is_no_start(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "--help")
    assert code == 0
    assert f"  {command} " in out
    with pytest.raises(SystemExit, match=r"^0$"):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: explorer {command}")


def test_a_host_that_is_not_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "serve", "--host", "no.such.host.invalid", "--no-browser")
    assert (code, out) == (1, "")
    assert err.startswith("explorer: cannot serve on no.such.host.invalid port 8866: ")
    assert err.count("\n") == 1


def listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("localhost", port)) == 0


def test_any_notebook_server_of_the_environment_sends_plotly(tmp_path: Path) -> None:
    """As on Binder behind its proxy, or in a JupyterLab of one's own: with nothing but what was
    installed."""
    port = free_port()
    options = [
        f"--port={port}",
        "--ServerApp.base_url=/user/me/",
        "--ServerApp.allow_unauthenticated_access=False",
    ]
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", *options]
    homes = {
        name: str(tmp_path)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | homes, stderr=subprocess.DEVNULL
    ) as server:
        try:
            while not listens(port):  # it says where it is before it does
                assert server.poll() is None
                time.sleep(0.1)
            with urlopen(f"http://localhost:{port}/user/me/{plotlyjs.path()}", timeout=60) as sent:
                assert sent.read() == plotlyjs.part()
        finally:
            server.terminate()


@pytest.mark.parametrize("command", ["serve", "lab"])
def test_a_server_says_that_it_starts_before_it_imports_anything(command: str) -> None:
    without = "import sys; sys.modules['explorer.command'] = None"
    program = f"{without}; from explorer.__main__ import main; main(['{command}'])"
    started = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert started.stdout == "Starting …\n"
    assert "ModuleNotFoundError" in started.stderr


def imports_lark(statement: str) -> bool:
    """Whether a new process that runs a statement ends with lark, which compiles the grammar of
    IRIs, imported."""
    program = f"import sys; {statement}; print('lark' in sys.modules)"
    # tests/early keeps processes of the tests from compiling it
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(place for place in places if Path(place).name != "early")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    return done.stdout.strip() == "True"


@pytest.mark.parametrize("server", ["explorer_serve.server", "jupyterlab.labapp"])
def test_servers_start_without_compiling_a_grammar(server: str) -> None:
    assert not imports_lark(
        f"import explorer_serve.start; explorer_serve.start._prepare(); import {server}"
    )


def test_jsonschema_still_compiles_a_grammar_unless_it_is_kept_from_it() -> None:
    """When this fails, `explorer_serve.start` need not keep it from it any longer."""
    assert imports_lark("import nbformat")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EXPLORER_GRACE_SECONDS", "soon"),
        ("EXPLORER_IDLE_SECONDS", "-1"),
        ("EXPLORER_MAX_MEMORY_MB", ""),
    ],
)
def test_a_wrong_variable_is_told_when_the_server_starts(
    variable: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    assert answer(capsys, "serve", "--port", str(free_port()), "--no-browser") == (
        1,
        "",
        f"explorer: {variable} must be a number of at least 0; got {value!r}\n",
    )


def test_no_place_for_temporary_files_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    for variable in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "MALLOC_ARENA_MAX", plotlyjs.SERVED):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))  # put back afterwards
    code, out, err = answer(capsys, "serve", "--port", str(free_port()), "--no-browser")
    assert (code, out) == (1, "")
    assert err == (
        "explorer: the folder for temporary files must be one that can be written, as TMPDIR may name: "
        "No such file or directory\n"
    )
