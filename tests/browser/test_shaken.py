"""Kernels that are to answer late do: else the tests that are run with `EXPLORER_SHAKE` say
nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from explorer_serve.zygote import ForkProvisioner, Zygote

SHAKEN = str(Path(__file__).with_name("shaken"))
SLIDER = "import ipywidgets; slider = ipywidgets.IntSlider(); print(slider.comm.comm_id)"
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forks on Linux alone")


async def moved() -> int:
    """A slider is made, and moved by its page; the process of its kernel."""
    kernels = AsyncMappingKernelManager()  # type: ignore[no-untyped-call]
    name = await kernels.start_kernel(env=dict(os.environ))
    kernel: Any = kernels.get_kernel(name)
    client, words = kernel.client(), list[str]()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        await client.execute_interactive(
            SLIDER,
            output_hook=lambda message: words.append(message["content"].get("text", "")),
            timeout=60,
        )
        update = {
            "comm_id": "".join(words).strip(),
            "data": {"method": "update", "state": {"value": 3}},
        }
        client.shell_channel.send(client.session.msg("comm_msg", update))
        await client.execute_interactive("slider.value = 4", timeout=60)
        return int(kernel.provisioner.pid)
    finally:
        client.stop_channels()
        await kernels.shutdown_all()


@pytest.mark.parametrize(
    "provisioner", ["local-provisioner", pytest.param("explorer-zygote", marks=ON_LINUX)]
)
def test_kernels_answer_late(
    provisioner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both what a browser sends and what it is sent waits, in JupyterLab's kernels and in those of
    a server."""
    log = tmp_path / "delays"
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [SHAKEN, os.environ.get("PYTHONPATH", "")]))
    )
    monkeypatch.setenv("EXPLORER_SHAKE", "0.2")
    monkeypatch.setenv("EXPLORER_SHAKE_LOG", str(log))
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", provisioner)
    zygote = Zygote()
    monkeypatch.setattr(ForkProvisioner, "zygote", zygote)
    try:
        with ThreadPoolExecutor(1) as thread:
            kernel = thread.submit(asyncio.run, moved()).result()
    finally:
        zygote.end()
    delays = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
    assert {what for process, what in delays if int(process) == kernel} == {"taken", "told"}
