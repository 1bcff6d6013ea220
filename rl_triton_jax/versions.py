"""Everything that depends on a version of JAX, jaxlib, jax-triton or Triton. No other module asks."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any


def _release(name: str) -> tuple[int, ...]:
    """The release numbers of an installed distribution, () where it is missing."""
    try:
        text = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ()
    numbers = []
    for part in text.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


# ---- Triton


@functools.cache
def why_no_triton() -> str | None:
    """Why Triton kernels cannot be compiled in this process, or None where they can."""
    if importlib.util.find_spec("triton") is None:
        return "the package `triton` is not installed (pip install 'rl_triton_jax[cuda13]')"
    try:
        import_triton()
    except Exception as error:  # a broken install is a reason like any other
        return f"importing `triton` failed: {error}"
    return None


@functools.cache
def import_triton() -> Any:
    # Triton 3.9 warns that the default of FMA fusion will change; we set it explicitly at every compilation.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")
        return importlib.import_module("triton")


def make_ast_source(kernel: Any, signature: dict[str, str], constants: dict[str, Any], aligned: set[str]) -> Any:
    """A Triton `ASTSource`; `aligned` names parameters divisible by 16."""
    import_triton()
    from triton.compiler import ASTSource

    names = list(kernel.arg_names)
    signature = {name: "constexpr" if name in constants else signature[name] for name in names}
    constexprs = {(names.index(name),): value for name, value in constants.items()}
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    return ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)


def compile_options(num_warps: int, num_stages: int) -> dict[str, Any]:
    """Compiler options that every route shares. FMA fusion is asked for explicitly: Triton 3.10 turns it off by default."""
    return {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}


def make_target(backend: str, arch: int | str, warp: int) -> Any:
    import_triton()
    from triton.backends.compiler import GPUTarget

    return GPUTarget(backend, arch, warp)


def compile_kernel(source: Any, target: Any, num_warps: int, num_stages: int) -> Any:
    """A compiled kernel, from Triton's own cache where it is there."""
    triton = import_triton()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")
        return triton.compile(source, target=target, options=compile_options(num_warps, num_stages))


def launcher(compiled: Any, grid: tuple[int, int, int]) -> Callable[..., None]:
    """`launch(stream, *arguments)` does what `compiled[grid](*arguments)` does, without its look-ups for each call.

    Loads the kernel on the current GPU. A pointer may be given as its address, which is then believed.
    """
    runtime = import_triton().knobs.runtime
    x, y, z = grid
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata

    def launch(stream: int, *arguments: Any) -> None:
        if runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls:  # a profiler is at work
            compiled[grid](*arguments, stream=stream)
        else:
            run(x, y, z, stream, function, metadata, None, None, None, *arguments)

    return launch


def triton_ir(source: Any, target: Any, num_warps: int, num_stages: int) -> tuple[str, str]:
    """(kernel name, Triton IR text) without line information, which would hold source paths. Stops after the IR stage."""
    triton = import_triton()
    from triton._C import libtriton

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")
        backend = triton.compiler.compiler.make_backend(target)
        options = backend.parse_options(compile_options(num_warps, num_stages))
    context = libtriton.ir.context()
    libtriton.ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    module = stages["ttir"](module, {})
    return source.name, module.str_nodebug()


# ---- XLA's own Triton custom call

# (jaxlib, Triton) pairs whose IR XLA was seen to read and run rightly on a GPU. `tests/gpu` is the proof.
XLA_TRITON_KNOWN_GOOD: frozenset[tuple[tuple[int, int], tuple[int, int]]] = frozenset({((0, 11), (3, 6))})


@functools.cache
def xla_triton_is_known_good() -> bool:
    jaxlib, triton = _release("jaxlib"), _release("triton")
    return (jaxlib[:2], triton[:2]) in XLA_TRITON_KNOWN_GOOD


# ---- jax-triton


@functools.cache
def why_no_jax_triton() -> str | None:
    """Why jax-triton cannot be used in this process, or None where it can."""
    if importlib.util.find_spec("jax_triton") is None:
        return "the package `jax-triton` is not installed (pip install 'rl_triton_jax[cuda13]')"
    try:
        import_jax_triton()
    except Exception as error:
        return f"importing `jax_triton` failed: {error}"
    return None


@functools.cache
def import_jax_triton() -> Any:
    """jax-triton, imported late: it needs jaxlib's GPU plugin, and it changes TRITON_CACHE_DIR, which is put back here."""
    triton = import_triton()
    if _release("jax-triton") >= (0, 4) and triton.__version__.startswith("3.6."):
        # 0.4 was written for Triton 3.7, whose NVIDIA driver has this constant; it serves tensor descriptors only.
        driver = importlib.import_module("triton.backends.nvidia.driver")
        if not hasattr(driver, "TMA_TF32"):
            vars(driver)["TMA_TF32"] = 11
    before = os.environ.get("TRITON_CACHE_DIR")
    try:
        return importlib.import_module("jax_triton")
    finally:
        if before is None:
            os.environ.pop("TRITON_CACHE_DIR", None)
        else:
            os.environ["TRITON_CACHE_DIR"] = before


def jax_triton_call(
    operands: Any,
    *,
    kernel: Any,
    out_types: Any,
    grid: tuple[int, int, int],
    num_warps: int,
    num_stages: int,
    arch: int | str | None,
    constants: dict[str, Any],
) -> Any:
    """`jax_triton.triton_call` under its name for each argument in the installed version."""
    call = import_jax_triton().triton_call
    if _release("jax-triton") >= (0, 4):
        rest: dict[str, Any] = {
            "out_type": out_types,
            "backend_options": {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True},
        }
    else:
        rest = {"out_shape": out_types, "num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")
        return call(
            *operands,
            kernel=kernel,
            grid=grid,
            compute_capability=arch if isinstance(arch, int) else None,
            **rest,
            **constants,
        )


# ---- torch


def torch_watchers() -> tuple[Callable[[], Any], Callable[[], int]]:
    """Two functions: what `torch.func` transformation is at work, or None; how many dispatch modes (`FakeTensorMode`, tracers)
    see every operation. Nothing public tells."""
    import torch

    functorch = getattr(torch._C, "_functorch", None)
    transformation = getattr(functorch, "peek_interpreter_stack", lambda: None)
    return transformation, getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def like_tensors(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function that says of as many tensors whether kernels made for these serve them: same type, dtype, device, sizes,
    strides, whether a gradient is wanted, and nothing that stands for a tensor. One call in C++, by what torch's compiler
    guards its programs with. None where this torch has it not, or where a tensor is given twice, which that does not allow.
    """
    if len({id(x) for x in tensors}) < len(tensors) or not _guards_work():
        return None
    return _guard(tensors)


def _guard(tensors: Sequence[Any]) -> Callable[..., bool]:
    guards = importlib.import_module("torch._C._dynamo.guards").TensorGuards
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    return guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


@functools.cache
def _guards_work() -> bool:
    """They are torch's own and may change: whether they tell apart what has to be."""
    import torch

    with torch.enable_grad(), torch.inference_mode(False):
        x, y = torch.ones(2, 4), torch.ones(3)
        others = (
            torch.ones(4, 2).t(),
            torch.ones(2, 5),
            torch.ones(2, 4, 1),
            x.double(),
            x.to("meta"),
            torch.complex(x, x).conj().imag[:, :],
            x.clone().requires_grad_(),
            torch.nn.Parameter(x.clone()),
        )
        try:
            alike = _guard([x, y])
            return alike(x.clone(), y.clone()) is True and not any(alike(z, y) or alike(z, y.clone()) for z in others)
        except Exception:
            return False


def torch_stream() -> Callable[[int], int]:
    """A function that gives the current stream of a GPU as a number; the one that Triton's own launches take."""
    import torch

    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return quick or (lambda index: torch.cuda.current_stream(index).cuda_stream)


# ---- JAX


def custom_call(target: str, operands: Any, avals_in: Any, avals_out: Any, config: dict[str, Any]) -> Any:
    """An XLA custom call with a dictionary of attributes, every array row-major."""
    from jax._src.interpreters import mlir  # `custom_call` is not public
    from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]

    def attribute(value: Any) -> Any:
        if isinstance(value, bool):
            return ir.BoolAttr.get(value)
        if isinstance(value, int):
            return mlir.i32_attr(value)
        return ir.StringAttr.get(value)

    def row_major(avals: Any) -> list[list[int]]:
        return [list(reversed(range(a.ndim))) for a in avals]

    return mlir.custom_call(
        call_target_name=target,
        operands=list(operands),
        api_version=4,
        backend_config={name: attribute(value) for name, value in config.items()},
        result_types=[ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in avals_out],
        operand_layouts=row_major(avals_in),
        result_layouts=row_major(avals_out),
    ).results


def unify_varying_axes(operands: list[Any]) -> list[Any]:
    """Brings operands inside `shard_map` to the same set of varying mesh axes: without it gradients would be silently wrong."""
    import jax

    axes = [getattr(jax.typeof(x), "vma", frozenset()) for x in operands]
    union = frozenset().union(*axes)
    if not union:
        return operands
    return [
        jax.lax.pcast(x, tuple(sorted(union - own)), to="varying") if union - own else x
        for x, own in zip(operands, axes, strict=True)
    ]


def is_partitioned(ctx: Any) -> bool:
    """Whether XLA will split what is lowered here over several devices. (Inside `shard_map` that is done; an exported program
    cannot carry the Python functions that say how.)"""
    module = ctx.module_context
    return getattr(module.axis_context, "num_devices", 1) > 1 and not module.lowering_parameters.for_export


def without_mesh() -> Any:
    """A context in which new arrays lie on no mesh: inside one shard there is none, whatever `jax.set_mesh` says outside."""
    from jax.sharding import AbstractMesh, use_abstract_mesh

    return use_abstract_mesh(AbstractMesh((), ()))


def lower_with_devices(primitive: Any) -> None:
    """Asks JAX to tell the lowering of `primitive` which devices it is for, as `custom_partitioning` wants to know."""
    from jax._src import dispatch

    dispatch.prim_requires_devices_during_lowering.add(primitive)
