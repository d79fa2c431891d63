"""Imports large libraries once, and forks for each client what would otherwise start cold."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import types
from pathlib import Path
from typing import ClassVar

# What takes long of all that a run of the harness or of medtasks imports besides these two.
LIBRARIES = (
    *("accelerate", "aiohttp", "datasets", "datasets.packaged_modules.json.json", "evaluate", "loguru", "nltk"),
    *("openai", "pandas", "PIL.Image", "pydantic", "pytablewriter", "rich.console", "sacrebleu", "scipy.stats"),
    *("sklearn.metrics", "tenacity", "torch", "torch.distributed.run", "torchvision", "typer"),
    *("transformers.models.auto.modeling_auto", "transformers.pipelines"),
)
OWN = {"lmms_eval", "lm_eval", "medtasks"}
# What Python and libraries in C have read by then, besides what libraries ask for when they are imported.
EARLY = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "LD_", "LC_", "LANG")
# What the forked process follows, whenever it was read; of COLUMNS and LINES only a menu that nobody shows is made.
FOLLOWED = {"COLUMNS", "HF_HOME", "LINES", "OLDPWD", "PATH", "PWD", "PYTHONPATH", "SHLVL", "TMPDIR", "_"}
KNOWS_FORKS = {"jemalloc_bg_thd"}  # a thread of pyarrow's


class WatchedEnvironment(os._Environ):  # type: ignore[type-arg]
    """Knows which variables were asked for."""

    asked: ClassVar[set[str]] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        value: str = super().__getitem__(name)
        return value


def import_libraries() -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the variables that the libraries have looked at, and those that they have set."""
    before = dict(os.environ)
    os.environ.__class__ = WatchedEnvironment
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    os.environ.__class__ = os._Environ
    assert OWN.isdisjoint(sys.modules), "must be imported by each process itself"
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("[0-9]*/comm")}
    assert len(threads - KNOWS_FORKS) == 1, f"one of the threads {threads} would be lost in a fork"
    seen = {name for name in {*WatchedEnvironment.asked, *before} if name in WatchedEnvironment.asked or early(name)}
    made = {name: value for name, value in os.environ.items() if before.get(name) != value}
    return {name: before.get(name) for name in seen - FOLLOWED}, made


def early(name: str) -> bool:
    return name.startswith(EARLY) and name not in FOLLOWED


class Server:
    """Waits for clients and for the processes that it has forked for them."""

    def __init__(self, listener: socket.socket, executable: str) -> None:
        self.listener, self.executable = listener, executable
        self.hf_home = Path(os.environ["HF_HOME"])  # a link to the folder that the running processes have
        self.path = sys.path[1:]
        self.running: dict[int, socket.socket] = {}  # clients by process
        self.selector = selectors.DefaultSelector()
        self.seen, self.made = import_libraries()
        gc.collect()
        gc.freeze()

    def serve(self) -> list[str] | None:
        """Serve until standard input ends; return the arguments of a process in that process, else None."""
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        while True:
            for key, _ in self.selector.select():
                if key.data is None:
                    for process in self.running:
                        os.killpg(process, signal.SIGKILL)
                    return None
                arguments = key.data()
                if arguments is not None:
                    return list(arguments)

    def accept(self) -> list[str] | None:
        """Fork for a client, or let it start cold."""
        client, _ = self.listener.accept()
        message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
        try:
            arguments, folder, environment = json.loads(message).values()
            why = self.refusal(arguments, environment)
            if why:
                sys.stdout.write(f"{why}: {' '.join(arguments[:4])}\n")
                sys.stdout.flush()
                client.close()
                return None
            process = os.fork()
            if process == 0:
                self.become(folder, environment, streams, client)
                return list(arguments)
            client.send(b"+")
            self.watch(process, client)
        finally:
            for stream in streams:
                os.close(stream)
        return None

    def refusal(self, arguments: list[str], environment: dict[str, str]) -> str:
        """Say why a forked process would run otherwise than a cold one, or nothing."""
        if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-c", "-m", "-P", "-u")):
            return "options of Python"
        for name in {*self.seen, *filter(early, environment)}:
            if environment.get(name) not in (self.seen.get(name), self.made.get(name)):
                return f"{name}={environment.get(name)} instead of {self.seen.get(name)}"
        home = Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        if home != self.hf_home and (not self.hf_home.is_symlink() or self.hf_home.readlink() != home):
            if self.running:
                return f"HF_HOME={home}, which is not that of another process"
            self.hf_home.unlink(missing_ok=True)
            home.mkdir(parents=True, exist_ok=True)
            self.hf_home.symlink_to(home)
        return ""

    def watch(self, process: int, client: socket.socket) -> None:
        """Pass a client's signals on to its process, its end too, and tell it of the end of the process."""
        ended = os.pidfd_open(process)
        self.running[process] = client

        def forward() -> None:
            number = client.recv(1)
            if number:
                os.kill(process, number[0])
            else:
                self.selector.unregister(client)
                os.killpg(process, signal.SIGKILL)

        def end() -> None:
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            del self.running[process]
            self.selector.unregister(ended)
            os.close(ended)
            with contextlib.suppress(KeyError):
                self.selector.unregister(client)
            with contextlib.suppress(OSError):
                client.send(str(code).encode())
            client.close()

        self.selector.register(client, selectors.EVENT_READ, forward)
        self.selector.register(ended, selectors.EVENT_READ, end)

    def become(self, folder: str, environment: dict[str, str], streams: list[int], client: socket.socket) -> None:
        """Make this process the one that a client has asked for, but for its program."""
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self.selector.close()
        for other in (self.listener, client, *self.running.values()):
            other.close()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment | self.made, HF_HOME=str(self.hf_home))
        time.tzset()
        tempfile.tempdir = None
        sys.executable = self.executable
        entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path[:] = [*map(os.path.abspath, entries), *self.path]
        importlib.invalidate_caches()
        sys.modules["numpy"].random.seed()


def run(arguments: list[str]) -> None:
    """Do what Python does with these arguments."""
    option = arguments.pop(0) if arguments[0] in ("-P", "-u") else ""
    if option == "-u":
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    first, *others = arguments
    folder = {"-m": os.getcwd(), "-c": ""}.get(first, os.path.dirname(os.path.realpath(first)))
    if option != "-P":
        sys.path.insert(0, folder)
    module = program = name = ""
    if first == "-m":
        module = others.pop(0)
    elif first == "-c":
        program, name = others.pop(0), "<string>"
    else:
        program, name = Path(first).read_text("utf-8"), first
        main.__dict__.update(__file__=first, __cached__=None)
    sys.argv[:] = [first, *others]
    if module:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]  # what Python itself calls
    else:
        exec(compile(program, name, "exec", dont_inherit=True), main.__dict__)


def end(code: object, *, interrupted: bool = False) -> None:
    """End as Python does, but without clearing a thousand modules, which takes as long as the program."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)


if __name__ == "__main__":
    from quick_yaml import read_yaml_quickly  # type: ignore[import-not-found]  # a file beside this script

    read_yaml_quickly()
    asked = Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).serve()
    if asked is not None:
        itself = sys.modules["__main__"]  # whose names live as long as its functions run
        try:
            run(asked)
        except SystemExit as reason:
            end(reason.code)
        except BaseException as error:  # noqa: BLE001  # whatever ends a program
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            end(1, interrupted=isinstance(error, KeyboardInterrupt))
        end(None)
