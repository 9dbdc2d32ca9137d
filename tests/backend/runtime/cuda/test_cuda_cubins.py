"""Compiled kernels on disk: believed only where they are whole and of this key, written by many processes at once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin, nvrtc
from eqsat.runtime.cuda.compiler.store import CACHE_VARIABLE, Store, kernel_folder, key_of

SPAWN = multiprocessing.get_context("spawn")
CODE = 'extern "C" __global__ void {}(float* a) {{ a[threadIdx.x] = {}.0f; }}'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kernels")


def test_what_is_put_is_got_and_nothing_else(store: Store) -> None:
    assert store.get("a") is None
    store.put("a", b"first")
    store.put("b", b"")
    store.put("a", b"second")
    assert (store.get("a"), store.get("b"), store.get("c")) == (b"second", b"", None)
    assert sorted(p.name for p in store.folder.iterdir()) == ["a.kernel", "b.kernel"]


def test_an_entry_changed_in_any_byte_counts_as_missing_and_is_written_again(store: Store) -> None:
    store.put("key", b"payload of some bytes")
    whole = store.path("key").read_bytes()
    for place in range(len(whole)):
        for torn in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
            whole[:place] + b"?" + whole[place:],
        ):
            store.path("key").write_bytes(torn)
            assert store.get("key") is None, (place, torn)
    store.path("key").write_bytes(whole + b"\0")
    assert store.get("key") is None
    store.put("key", b"anew")
    assert store.get("key") == b"anew"


def test_entries_of_another_key_or_program_are_not_believed(store: Store) -> None:
    store.put("mine", b"1")
    store.path("other").write_bytes(store.path("mine").read_bytes())
    store.path("foreign").write_bytes(b"\x7fELF" + bytes(4096))
    store.path("folder").mkdir()
    assert store.get("other") is None and store.get("foreign") is None and store.get("folder") is None


def test_the_entries_unused_for_longest_are_dropped_and_files_of_others_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=10_000)
    (tmp_path / "notes.txt").write_bytes(bytes(20_000))
    for i in range(8):
        store.put(f"k{i}", bytes(1000))
        os.utime(store.path(f"k{i}"), (i, i))
    store.get("k0")  # used just now
    for i in range(8, 11):
        store.put(f"k{i}", bytes(1000))
    held = {i for i in range(11) if store.get(f"k{i}") is not None}
    assert {0, 8, 9, 10} <= held and 1 not in held
    assert sum(p.stat().st_size for p in tmp_path.glob("*.kernel")) <= 10_000
    assert (tmp_path / "notes.txt").exists()


def test_what_a_killed_process_left_is_cleared_away_and_what_one_is_writing_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=3000)
    for name, age in ((".abandoned.kernel", 7200), (".at_work.kernel", 0)):
        (tmp_path / name).write_bytes(bytes(2000))
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    store.put("a", bytes(1500))
    assert not (tmp_path / ".abandoned.kernel").exists() and (tmp_path / ".at_work.kernel").exists()
    assert store.get("a") == bytes(1500)


def test_a_folder_that_cannot_be_written_is_said_once_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = Store(tmp_path / "file" / "kernels")
    with pytest.warns(RuntimeWarning, match=f"compiled kernels are not kept: .*set {CACHE_VARIABLE}"):
        store.put("a", b"1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("b", b"2")
    assert store.get("a") is None


def test_a_full_disk_leaves_no_part_of_an_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"kept")
    monkeypatch.setattr(Path, "replace", _full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        store.put("b", b"lost")
    monkeypatch.undo()
    assert [p.name for p in store.folder.iterdir()] == ["a.kernel"] and store.get("a") == b"kept"


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_folder_is_named_by_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    assert kernel_folder() == tmp_path / "named"
    monkeypatch.delenv(CACHE_VARIABLE)
    assert kernel_folder().name == "kernels" and "eqsat" in kernel_folder().parts


def test_keys_tell_where_one_part_ends_and_the_next_begins() -> None:
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", "")}) == 4


def _put_and_get(folder: Path, writer: int) -> int:
    """Writes and reads what others write as well; how often an entry was there. Every one is whole or missing."""
    store, found = Store(folder, limit=60_000), 0
    for turn in range(60):
        key = f"k{(turn // 2 * 7 + writer) % 20}"  # each twice: alone, one finds none of its first time
        held = store.get(key)
        if held is not None:
            assert len(held) == 4000 and len(set(held)) == 1, key
            found += 1
        store.put(key, bytes([writer]) * 4000)
    return found


def test_many_processes_write_and_drop_the_same_entries(tmp_path: Path) -> None:
    with warnings.catch_warnings(), ProcessPoolExecutor(4, mp_context=SPAWN) as pool:
        warnings.simplefilter("error")
        found = list(pool.map(_put_and_get, [tmp_path] * 4, range(4)))
    assert sum(found) > 0
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 60_000


def _compile(folder: Path, number: int) -> tuple[bytes, int]:
    from eqsat.runtime.cuda.compiler.cubins import Cubins

    compiled = Cubins(Store(folder)).get(CODE.format("k", number))
    return compiled.cubin, compiled.registers


class TestCubins:
    """NVRTC needs its packages, and neither a GPU nor a driver."""

    @pytest.fixture(autouse=True)
    def _packages(self) -> Iterator[None]:
        pytest.importorskip("cuda.bindings.nvrtc")
        yield

    def test_processes_that_compile_the_same_kernels_get_the_same(self, tmp_path: Path) -> None:
        with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
            made = list(pool.map(_compile, [tmp_path] * 6, [0, 0, 1, 1, 0, 1]))
        assert len(set(made)) == 2 and len(list(tmp_path.iterdir())) == 2

    def test_a_kernel_read_back_is_the_one_compiled_and_a_bad_entry_is_compiled_again(self, store: Store) -> None:
        from eqsat.runtime.cuda.compiler.cubins import Cubins

        cubins, code = Cubins(store), CODE.format("k", 3)
        first = cubins.get(code, "sm_80")
        path = store.path(cubins.key(code, "sm_80"))
        whole = path.read_bytes()
        assert Cubins(store).get(code, "sm_80") == first and first.registers > 0 and first.spill_bytes == 0
        for bad in (b"", whole[:100], whole[:-1] + b"?", b"\x7fELF" + whole):
            path.write_bytes(bad)
            assert Cubins(store).get(code, "sm_80") == first
            assert store.get(path.stem) is not None

    def test_a_cubin_is_of_its_code_options_and_architecture(self, store: Store) -> None:
        from eqsat.runtime.cuda.compiler.cubins import Cubins

        cubins, code = Cubins(store), CODE.format("k", 3)
        for arguments in ((code, "sm_80"), (code, "sm_90"), (code, "sm_90", ("--fmad=false",)), (code + "\n", "sm_90")):
            cubins.get(*arguments)
        assert len(list(store.folder.iterdir())) == 4

    def test_kernels_are_compiled_at_once_and_kept(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        from eqsat.runtime.cuda.compiler import cubins as module

        codes = [CODE.format("k", i % 8) for i in range(16)]
        module.Cubins(store).prepare(codes, "sm_80")
        assert len(list(store.folder.iterdir())) == 8
        monkeypatch.setattr(module, "compile_cubin", None)  # nothing is compiled again
        again = module.Cubins(store)
        again.prepare(codes, "sm_80")
        assert len({again.get(code, "sm_80").cubin for code in codes}) == 8

    def test_one_kernel_of_many_that_does_not_compile_is_named(self, store: Store) -> None:
        from eqsat.runtime.cuda.compiler.cubins import Cubins

        with pytest.raises(BackendError, match="broken: "):
            Cubins(store).prepare([CODE.format("k", 1), CODE.format("broken", "absent"), CODE.format("k", 2)])

    def test_without_a_folder_kernels_are_kept_by_the_process_alone(self, tmp_path: Path) -> None:
        from eqsat.runtime.cuda.compiler.cubins import Cubins

        (tmp_path / "file").write_text("")
        cubins = Cubins(Store(tmp_path / "file"))
        with pytest.warns(RuntimeWarning, match="not kept"):
            first = cubins.get(CODE.format("k", 4))
        assert cubins.get(CODE.format("k", 4)) is first

    def test_a_kernel_that_does_not_compile_is_named_with_its_source_and_log_and_not_kept(self, store: Store) -> None:
        from eqsat.runtime.cuda.compiler.cubins import Cubins

        with pytest.raises(BackendError, match=r"broken: .*broken\.cu\(1\).*absent") as caught:
            Cubins(store).get(CODE.format("broken", "absent + 1"))
        source, log = caught.value.remedy.removeprefix("its source is in ").split(", the compiler's log in ")
        assert "absent" in Path(source).read_text() and "absent" in Path(log).read_text()
        assert not store.folder.exists()
        with pytest.raises(BackendError, match="for sm_1"):
            Cubins(store).get(CODE.format("k", 1), "sm_1")


class TestCompilers:
    """NVRTC through whichever package is there."""

    @pytest.fixture(autouse=True)
    def _looked_for_anew(self) -> Iterator[None]:
        nvrtc.cache_clear()
        yield
        nvrtc.cache_clear()

    def test_without_any_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("cuda.bindings.nvrtc", "cupy_backends.cuda.libs.nvrtc"):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(BackendError, match=r"(?s)cuda\.bindings: .*cupy: .*pip install 'eqsat\[cuda13\]'"):
            compile_cubin(CODE.format("k", 1))

    def test_without_cuda_bindings_cupy_compiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """CuPy cannot be installed everywhere; what stands in for it has the functions of its NVRTC module."""
        monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
        monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.nvrtc", _LikeCuPy())
        compiled = compile_cubin(CODE.format("k", 1), "sm_80", ("--fmad=false",))
        assert (compiled.cubin, compiled.registers, compiled.shared, compiled.version) == (b"cubin", 12, 32, "13.9")
        with pytest.raises(BackendError, match=r"k: the kernel does not compile: k\.cu: error: no"):
            compile_cubin(CODE.format("k", "absent"))

    def test_a_compiler_that_does_not_say_registers_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
        monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.nvrtc", _LikeCuPy(log=""))
        with pytest.raises(BackendError, match="does not say how many registers"):
            compile_cubin(CODE.format("k", 1))


class _LikeCuPy(ModuleType):
    class NVRTCError(RuntimeError):
        pass

    def __init__(
        self,
        log: str = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nUsed 12 registers, 32 bytes smem",
    ) -> None:
        super().__init__("nvrtc")
        self.log = log

    def getVersion(self) -> tuple[int, int]:  # noqa: N802 - CuPy's name
        return 13, 9

    def createProgram(self, text: str, name: str, headers: tuple[str, ...], names: tuple[str, ...]) -> str:  # noqa: N802
        assert "struct bf16" in text and (headers, names) == ((), ())
        return text

    def compileProgram(self, program: str, options: tuple[str, ...]) -> None:  # noqa: N802
        assert "--std=c++17" in options and any(o.startswith("--gpu-architecture=sm_") for o in options)
        if "absent" in program:
            self.log = "k.cu: error: no"
            raise self.NVRTCError("6")

    def getProgramLog(self, program: str) -> str:  # noqa: N802
        return self.log

    def getCUBIN(self, program: str) -> bytes:  # noqa: N802
        return b"cubin"

    def destroyProgram(self, program: str) -> None:  # noqa: N802
        pass
