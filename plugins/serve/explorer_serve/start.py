"""Starts what shows the page: standalone Voilà for those who look, JupyterLab for those who write.

Both run in this process until Ctrl-C. The notebooks, and the template that keeps Voilà from loading
anything from another host, come with the package: from the checkout in an editable install, else
from inside the wheel."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from jupyter_core.paths import jupyter_data_dir

import explorer
from explorer import log, plotlyjs
from explorer.command import CommandError
from explorer.limits import memory_limit, process_count
from explorer.memory import LEDGER, PAGE, WORKER, Ledger, environment, machine_memory
from explorer.tasks.broker import ADDRESS, KEY, Broker
from explorer.tasks.cluster import Cluster
from explorer.tasks.pool import Pool
from explorer_serve.zygote import FORKS, ForkProvisioner, Zygote

if TYPE_CHECKING:
    from explorer_serve.server import Server

PACKAGE = Path(explorer.__file__).parent
PAGE_NOTEBOOK = "explorer.ipynb"
PREHEATED = 1
"""Kernels that wait for a visitor. Each has built the page and had its first design measured."""
MOST_PAGES = 100
"""Pages at a time, at most: each takes some ten of the 1,023 sockets that libzmq has."""
SHARE, SERVER = 0.9, 300e6
"""Part of the machine's memory that may be used; then bytes of it for the server itself."""
FILES, FILES_PER_PAGE = 65_536, 20
"""Open files: as many as are asked of the system, and what a page takes of them."""
DRAIN = 30
"""Seconds for which open pages go on when the server is asked to end."""
CONNECTIONS = 400
"""HTTP connections at a time, at most."""
NUMBERS = (
    "EXPLORER_GRACE_SECONDS",
    "EXPLORER_IDLE_SECONDS",
    "EXPLORER_MAX_MEMORY_MB",
    "EXPLORER_MAX_ACTIVATION_MB",
    "EXPLORER_NOISE_MB",
    "EXPLORER_PROCESSES",
    "EXPLORER_KERNEL_MB",
    "EXPLORER_RACE_STEPS",
    "EXPLORER_RACE_SECONDS",
    "EXPLORER_MAX_SECONDS",
    "EXPLORER_LOOK_SECONDS",
    "EXPLORER_RETRY_SECONDS",
    "EXPLORER_SILENCE_SECONDS",
)
"""Environment variables that kernels read as numbers: a wrong one is told when the server
starts."""
FOR_STRANGERS = {
    "EXPLORER_KERNEL_MB": "500",
    "EXPLORER_MAX_MEMORY_MB": "2000",
    "EXPLORER_MAX_SECONDS": "60",
    "EXPLORER_IDLE_SECONDS": "900",
    "EXPLORER_RACE_STEPS": "5000",
    "EXPLORER_RACE_SECONDS": "600",
}
"""Limits of `public`, unless the environment has others: memory of a kernel and of a design;
processor-seconds of a design; seconds of an idle page; steps of a race, and seconds after which it
stands still."""
WORKPLACE = "explorer-serve-"
LONGEST_ROOT = 60
"""Bytes of a path in which it may be made: the broker's socket is in it, whose address has at most
103."""
SETTINGS = Path(__file__).with_name("jupyter")
"""`voila.json`, `labconfig/` and the template, found by Jupyter when this folder is on its paths.
What they are for:

- A visitor chooses nothing on the server: no template, no theme, no file beside the page, no
  traceback.
- Of the installed JupyterLab extensions only those that draw widgets are sent.
- The page may load nothing from another host, and no other host may show it
  (`Content-Security-Policy`).
- What a visitor may send and is sent: `visits`; how many kernels there are, and how long each
  lives: `kernels`; what requests may cost: `server`. SECURITY.md says why.
- One kernel a visitor. When it dies it is not replaced, for the new one would know nothing of the
  page. The page says so (`page.js` of the template).
- JupyterLab asks its makers for news, updates and extensions, and a person for leave to do so; here
  it asks nobody.
- Notebook servers, too, send plotly.js, which a browser then keeps (`jupyter_server_config.d/`,
  installed where any of the environment looks).
"""


class ServeError(CommandError):
    """Nothing can be served; the message is one line that says why."""


def notebooks() -> Path:
    """The folder with the notebooks: inside an installed wheel, beside the package in a checkout.

    Raises:
        ServeError: the page's notebook is in neither place.
    """
    places = (PACKAGE / "notebooks", PACKAGE.parent / "notebooks")
    for place in places:
        if (place / PAGE_NOTEBOOK).is_file():
            return place
    raise ServeError(
        f"the notebook {PAGE_NOTEBOOK} must be in {places[0]} or {places[1]}; it is in neither"
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The operator's choices for a server.

    Args:
        browser: whether to open a browser.
        preheat: kernels that have run the notebook before their visitor comes; 0 for none.
        max_pages: pages at a time; None for as many as memory holds.
        base_url: the path below which the page is, as a proxy passes it on.
        allow_host: names besides this machine's own by which a request may call the server; "*" for
            any.
        metrics_from: networks, such as 10.0.0.0/8, that may read the numbers at /metrics besides
            this machine.
        drain_seconds: how long open pages go on after SIGTERM.
        public: sets limits for visitors whom nobody knows; there are as many pages as memory holds
            at these limits.
        scheduler: address of a Dask cluster that computes in place of this machine's processes;
            empty for none.
    """

    host: str
    port: int
    browser: bool = False
    notebook: str = PAGE_NOTEBOOK
    preheat: int = PREHEATED
    max_pages: int | None = None
    base_url: str = "/"
    allow_host: Sequence[str] = ()
    metrics_from: Sequence[str] = ()
    drain_seconds: float = DRAIN
    public: bool = False
    scheduler: str = ""


def serve(options: Options) -> None:
    """Serves a notebook as a page, with standalone Voilà, until it is interrupted.

    Raises:
        ServeError: the port is taken or not allowed, the host is not this machine's, the notebook
            is missing, an environment variable is wrong, or there is no place for temporary files.
    """
    page = _page(options.notebook)
    if options.public:
        os.environ.update(FOR_STRANGERS | os.environ)
    try:
        for variable in NUMBERS:
            environment(variable, 0)
        pool = Cluster(options.scheduler, "--scheduler").pool if options.scheduler else None
        if pool:
            os.environ["EXPLORER_PROCESSES"] = str(pool.slots)
    except ValueError as error:
        raise ServeError(str(error)) from None
    _must_be_free(options.host, options.port)
    _prepare()
    os.environ[plotlyjs.SERVED] = "to visitors"
    workplace = _workplace()
    try:
        _serve(page, options, workplace, pool)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _serve(page: Path, options: Options, workplace: Path, pool: Pool | None) -> None:
    host, preheat = options.host, options.preheat
    files = _open_files()
    connections = min(CONNECTIONS, files // 3)
    ledger, memory = Ledger(os.environ[LEDGER]), SHARE * machine_memory() - SERVER
    ledger.open(memory)
    slots = 0 if pool else process_count()
    largest = max(PAGE, environment("EXPLORER_KERNEL_MB", 0) * 1e6)
    most, budget = shared_out(
        memory, slots, largest, files - connections, preheat, options.max_pages
    )
    ledger.open(budget)
    if hasattr(socket, "AF_UNIX"):  # elsewhere each kernel has workers of its own
        pool = pool or Pool(slots)
        broker = Broker(pool, workplace)
        os.environ[ADDRESS], os.environ[KEY] = broker.address, broker.key
    zygote = Zygote()  # it imports while the server does
    if FORKS:
        ForkProvisioner.zygote, os.environ["JUPYTER_DEFAULT_PROVISIONER_NAME"] = (
            zygote,
            "explorer-zygote",
        )
    from explorer_serve import server
    from explorer_serve.metrics import FAULTS, THIS_MACHINE

    log.listen(on_fault=FAULTS.inc)
    app = server.Server(
        config_file_paths=[str(SETTINGS)],
        most_connections=connections,
        readers=[*THIS_MACHINE, *options.metrics_from],
        hosts=["localhost", host, socket.gethostname(), socket.getfqdn(), *options.allow_host],
    )
    app.pool, app.notebooks = pool, tuple(pages().values())
    app.initialize(
        [
            str(page),
            f"--Voila.root_dir={notebooks()}",
            "--no-browser",
            f"--Voila.ip={host}",
            f"--port={options.port}",
            f"--Voila.base_url={options.base_url}",
            f"--Voila.connection_dir_root={workplace}",
            f"--Kernels.max_pages={most}",
            f"--preheat_kernel={preheat > 0}",
            f"--pool_size={preheat}",
        ]
    )
    log.adopt(app.log)
    app.voila_configuration.strip_sources = not server.is_lesson(page)
    app.voila_configuration.config.VoilaConfiguration.resources = {
        "first_picture": zygote.picture,
        "plotly": plotlyjs.path(),
        **about_pages(),
    }
    address = f"http://{_reachable(host)}:{options.port}{options.base_url}"
    few = ""
    if files < (most + preheat) * FILES_PER_PAGE + connections:
        few = f"Open files are limited to {files:,} (ulimit -n), which is too few for {most} pages"
    _run(app, address, few, options)


def _run(app: Server, address: str, few: str, options: Options) -> None:
    """Announces the server, and lets it run until it is ended."""
    from tornado.ioloop import IOLoop

    loop = IOLoop.current()
    # nothing breaks off halfway
    signal.signal(signal.SIGINT, lambda *_: loop.add_callback_from_signal(loop.stop))
    signal.signal(
        signal.SIGTERM, lambda *_: loop.add_callback_from_signal(app.drain, options.drain_seconds)
    )
    loop.add_callback(
        print, f"Transformer Signal Explorer is at {address} (Ctrl-C stops it)", flush=True
    )
    if few:
        loop.add_callback(print, few, flush=True)
    if options.browser:
        loop.add_callback(
            lambda: threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        )
    app.start()


def about_pages() -> dict[str, float | str]:
    """Texts and times for the template: version and limits of the server, and when idle pages are
    asked and ended."""
    from explorer_serve.kernels import ASKED, IDLE

    idle, page = environment("EXPLORER_IDLE_SECONDS", IDLE), environment("EXPLORER_KERNEL_MB", 0)
    seconds = environment("EXPLORER_MAX_SECONDS", 0)
    designs = f"designs to {memory_limit() / 1e9:.3g} GB" + (
        f" and {seconds:.3g} processor-seconds" if seconds else ""
    )
    limits = [
        f"Transformer Signal Explorer {version('transformer-signal-explorer')}",
        *([f"{page:,.0f} MB a page"] if page else []),
        designs,
        f"idle pages end after {idle / 60:.3g} min",
    ]
    return {"about": " · ".join(limits), "idle": idle, "warning": min(ASKED, idle / 2)}


def shared_out(
    memory: float, slots: int, largest: float, files: int, preheat: int, max_pages: int | None
) -> tuple[int, float]:
    """Pages at a time, and bytes of the ledger: of pages, kernels that wait, and workers together.

    Args:
        memory: bytes for all of them.
        slots: workers.
        largest: bytes that a page may take.
        files: open files that pages may have.
        preheat: kernels that wait for a visitor.
        max_pages: pages that the operator wants, whether or not there is memory; None for as many
            as there is room for.
    """
    room = min(
        int((memory - slots * WORKER) / largest) - preheat,
        MOST_PAGES,
        files // FILES_PER_PAGE - preheat,
    )
    most = max(1, room) if max_pages is None else max_pages
    return most, max(memory, slots * WORKER + (most + preheat) * PAGE)


def pages() -> dict[str, Path]:
    """Our notebooks by their names without their ending; a lesson's starts with its folders."""
    folder = notebooks()
    paths = (*sorted(folder.glob("*.ipynb")), *sorted(folder.glob("lessons/**/*.ipynb")))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def _page(name: str) -> Path:
    """One of our notebooks by its name, with or without its ending."""
    known = pages()
    if name.removesuffix(".ipynb") not in known:
        raise ServeError(f"the notebook must be one of {', '.join(known)}; got {name!r}")
    return known[name.removesuffix(".ipynb")]


def lab(host: str, port: int, *, browser: bool, options: Sequence[str] = ()) -> None:
    """Opens the notebooks in JupyterLab until it is interrupted; `options` are JupyterLab's own.

    Raises:
        ServeError: as `serve` does.
    """
    folder = notebooks()
    _must_be_free(host, port)
    _prepare()
    from jupyterlab.labapp import LabApp

    where = [
        f"--ip={host}",
        f"--port={port}",
        *([] if browser else ["--no-browser"]),
        "--ServerApp.kernel_websocket_connection_class=explorer_serve.visits.Prompt",
    ]
    os.chdir(folder)  # JupyterLab shows where it stands, unless `options` say otherwise
    LabApp.launch_instance([*where, f"--LabApp.default_url=/lab/tree/{PAGE_NOTEBOOK}", *options])


def _must_be_free(host: str, port: int) -> None:
    """Refuses an address that the server could not listen on, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:  # taken, not allowed, or not ours; the socket module repeats the address after the reason
        reason = str(error.strerror).partition(" (while ")[0]
        raise ServeError(f"cannot serve on {host} port {port}: {reason}") from None


def _prepare() -> None:
    """Puts our settings and template on Jupyter's paths, whichever way the package was installed.

    And has threads share what they have freed: with a store each, as glibc gives them, a kernel
    grew by 1 MB a move.

    And keeps jsonschema, which Jupyter checks its files with, from its checks of IRIs: it would
    compile their grammar for two processor-seconds as soon as it is imported, and no file of
    Jupyter's has an IRI to check. For Python a module that is None in `sys.modules` is one that is
    not installed, which jsonschema does without."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    for variable in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH"):
        known = os.environ.get(variable)
        os.environ[variable] = os.pathsep.join([str(SETTINGS), *([known] if known else [])])


def _workplace() -> Path:
    """Makes the folder for temporary files of this server and its kernels; those of servers that
    were killed go.

    Jupyter's and IPython's own folders are in it, too: a home that cannot be written is no
    hindrance, and nobody's start-up files run in a visitor's kernel."""
    try:
        root = Path(tempfile.gettempdir())
        if os.name == "posix" and len(os.fsencode(root)) > LONGEST_ROOT:
            root = Path("/tmp")  # noqa: S108 (the folder made there is nobody else's)
        for old in root.glob(f"{WORKPLACE}*"):
            process = old.name.removeprefix(WORKPLACE).partition("-")[0]
            if process.isdecimal() and not psutil.pid_exists(int(process)):
                shutil.rmtree(old, ignore_errors=True)  # another user's stays
        made = Path(tempfile.mkdtemp(prefix=f"{WORKPLACE}{os.getpid()}-", dir=root))
    except OSError as error:
        reason = f"{error.strerror}".partition(" [")[0]
        raise ServeError(
            f"the folder for temporary files must be one that can be written, as TMPDIR may name: {reason}"
        ) from None
    # where a person's own widgets may be installed
    os.environ["JUPYTER_PATH"] += os.pathsep + jupyter_data_dir()
    for variable in (
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_CONFIG_DIR",
        "IPYTHONDIR",
        "TMPDIR",
    ):
        name = variable.lower()
        (made / name).mkdir()
        os.environ[variable] = str(made / name)
    os.environ[LEDGER] = str(made / "memory.json")
    return made


def _open_files() -> int:
    """Raises this process's limit on open files as far as the system allows, and returns it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return FILES if soft == resource.RLIM_INFINITY else soft


def _reachable(host: str) -> str:
    """The host as it stands in an address that this machine's browser can open."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        return "localhost"
    return f"[{host}]" if ":" in host else host
