"""What TensorFlow does once in each process at its first use, and what of it a run need not do.

TensorFlow has no public interface for it: where another version refuses, in whatever way, its runs start later.
"""

from __future__ import annotations

from contextlib import suppress


def before_fork() -> None:
    """Complete TensorFlow's registries of operations and kernels, once for all runs that are forked from this process.

    No operation runs, no device is touched and no thread is started.
    """
    with suppress(Exception):
        from tensorflow.python.framework import kernels, op_def_registry  # noqa: PLC0415 - costs seconds

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("a name that no operation has")  # the first of these lists all operations there are


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
