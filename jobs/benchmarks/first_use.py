"""What TensorFlow does once in each process at its first use, and what of it a run need not do.

TensorFlow has no public interface for it: where another version refuses, in whatever way, its runs start later.
"""

from __future__ import annotations

from collections.abc import Mapping, MappingView, Sequence
from contextlib import suppress


def before_fork() -> None:
    """Complete what TensorFlow and Python look up at the first use, once for all runs forked from this process.

    No operation runs, no device is touched and no thread is started.
    """
    with suppress(Exception):
        from tensorflow.python.framework import kernels, op_def_registry  # noqa: PLC0415 - costs seconds

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("a name that no operation has")  # the first of these lists all operations there are
        _know_types()


def _know_types() -> None:
    """Let Python find out which abstract types those are that a pipeline is built of; it goes through all there are."""
    from tensorflow.python.data.ops import ignore_errors_op  # noqa: F401, PLC0415 - else imported by each run
    from tensorflow.python.framework import composite_tensor, ops, tensor, tensor_conversion_registry  # noqa: PLC0415
    from tensorflow.python.types import core  # noqa: PLC0415

    concrete = (bool, int, float, str, bytes, tuple, list, dict, ops.EagerTensor, ops.SymbolicTensor, tensor.TensorSpec)
    for each in concrete:
        tensor_conversion_registry.get(each)
        for abstract in (Mapping, MappingView, Sequence, composite_tensor.CompositeTensor, core.TensorProtocol):
            issubclass(each, abstract)


def run_operations_directly() -> None:
    """Run operations outside the pipeline directly, not each in a function of its own as TensorFlow does by default.

    The optimization passes over such a function take some 4 ms for each kind of operation in each process, which was
    the largest part of a run's cost beyond its work. The function that the pipeline maps is not affected.
    """
    with suppress(Exception):
        from tensorflow.python import pywrap_tfe  # noqa: PLC0415 - costs seconds
        from tensorflow.python.eager import context  # noqa: PLC0415

        context.ensure_initialized()
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, False)  # noqa: FBT003, SLF001
