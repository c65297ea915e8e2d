"""What TensorFlow does once in each process at its first use, and what of it a run need not do.

There is no public word for any of it: a version that does not know these is left as it is, and its runs start later.
"""

from __future__ import annotations

from contextlib import suppress


def before_fork() -> None:
    """Have TensorFlow complete its registries of operations and kernels, once for all runs that are forked from here.

    No operation runs, no device is touched and no thread is started.
    """
    with suppress(ImportError, AttributeError):
        from tensorflow.python.framework import kernels, op_def_registry  # noqa: PLC0415 - costs seconds

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("a name that no operation has")  # the first of these lists all operations there are


def run_operations_directly() -> None:
    """Have TensorFlow run what is outside the pipeline operation by operation, without a function around each.

    Each kind of operation costs a process some 4 ms otherwise, for the passes over its function: together they were the
    largest part of what a run cost beyond its work. The function that the pipeline maps stays one.
    """
    with suppress(ImportError, AttributeError):
        from tensorflow.python import pywrap_tfe  # noqa: PLC0415 - costs seconds
        from tensorflow.python.eager import context  # noqa: PLC0415

        context.ensure_initialized()
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, False)  # noqa: FBT003, SLF001
