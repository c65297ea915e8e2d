"""What the tests let a forked process do; each function takes a dict and returns one."""

import contextlib
import ctypes
import fcntl
import gc
import io
import json
import os
import signal
import struct
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

import psutil
from msgspec import structs

from jobs import __main__ as byhand
from jobs import run
from jobs.benchmarks import accelerator, images, step_loop
from jobs.benchmarks.alexnet import AlexNetTraining
from jobs.benchmarks.alexnet_network import Network
from jobs.benchmarks.malware import GreyNetwork
from jobs.benchmarks.micro import ReadingLoop
from jobs.data import pipeline
from jobs.errors import NoGpuError
from jobs.lazy_imports import np, tf
from jobs.system import page_cache
from tests.jobs.jobs_factory import eventually, judged_in_time, was_held_up

_LIBC = ctypes.CDLL(None)
_IN_OPEN = 0x20
_NOBODY = 65534
STILL_S = 0.3  # for so long nothing more must happen


class _Leases:
    """Write leases on files: who opens one waits, and the holder is told (fcntl(2), F_SETLEASE)."""

    def __init__(self, names):
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        self._held = {name: os.open(name, os.O_RDONLY) for name in names}
        for fd in self._held.values():
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def waiting(self):
        return [name for name, fd in self._held.items() if fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK]

    def release(self):
        for fd in self._held.values():
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(fd)


class _Opened:
    """The names of the files that were opened in a folder, in order (inotify(7))."""

    def __init__(self, folder):
        self._fd = _LIBC.inotify_init1(os.O_NONBLOCK)
        _LIBC.inotify_add_watch(self._fd, os.fsencode(folder), _IN_OPEN)

    def names(self):
        names = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                while data:
                    length = struct.unpack_from("iIII", data)[3]
                    name, data = data[16 : 16 + length].rstrip(b"\0"), data[16 + length :]
                    names.append(os.fsdecode(name))
        return names


def _kind(settings):
    return {"micro": ReadingLoop, "alexnet": AlexNetTraining}[settings["benchmark"]["name"]]


def _paths(argument):
    return [Path(name) for name in argument["names"]]


def _build(argument):
    """Build the pipeline as its benchmark does: TensorFlow's own seed takes part in the order."""
    names, settings = argument["names"], argument["settings"]
    tf.random.set_seed(settings["seed"])
    if _kind(settings) is AlexNetTraining:
        return pipeline.build_labelled(names, settings, argument.get("device", "/CPU:0"))
    return pipeline.build_unlabelled(names, settings)


def reads_at_once(argument):
    """Count the files that are being opened at one time while none of them lets itself be opened."""
    leases = _Leases(argument["names"])
    iterator = iter(_build(argument))
    threading.Thread(target=lambda: list(iterator), daemon=True).start()
    eventually(lambda: len(leases.waiting()) >= argument["expected"])
    time.sleep(STILL_S)
    return {"value": len(leases.waiting())}


def opened_ahead(argument):
    """Name the files that the pipeline has opened when one batch was taken."""
    opened = _Opened(argument["folder"])
    iterator = iter(_build(argument))
    next(iterator)
    names = []

    def enough():
        names.extend(opened.names())
        return len(names) >= argument["expected"]

    eventually(enough)
    time.sleep(STILL_S)
    return {"value": names + opened.names()}


def delivered(argument):
    """Return the batches: indices, bytes read, shape and type of the payload."""
    batches = []
    for index, size, payload in _build(argument):
        kind = [payload.shape.as_list(), payload.dtype.name]
        batches.append([index.numpy().tolist(), size.numpy().tolist(), *kind])
    return {"value": batches}


def temporary_files(argument):
    """Name what a run leaves in the temporary folder of its process."""
    tempfile.tempdir = argument["folder"]
    _measured(argument)
    return {"value": [path.name for path in Path(argument["folder"]).iterdir()]}


def contents(argument):
    """Return what the pipeline delivers for each file where it does not decode."""
    pairs = {}
    for index, _size, payload in _build(argument):
        pairs.update(zip(index.numpy().tolist(), [text.hex() for text in payload.numpy()], strict=True))
    return {"value": [pairs[index] for index in range(len(argument["names"]))]}


def order_of_list(argument):
    tf.random.set_seed(argument.get("process_seed", argument["seed"]))
    elements = pipeline.shuffled_paths(argument["names"], argument["seed"])
    return {"value": [int(index) for index, _ in elements.as_numpy_iterator()]}


def order_with_a_late_file(argument):
    """Return the order of delivery where one file cannot be read until two others have had their chance."""
    leases = _Leases([argument["late"]])
    iterator = iter(_build(argument))
    order = []

    def take():
        for index, _size, _payload in iterator:
            order.extend(index.numpy().tolist())

    thread = threading.Thread(target=take)
    thread.start()
    eventually(lambda: len(order) > 1, within_s=1.0 if argument["settings"]["benchmark"]["deterministic"] else 30.0)
    leases.release()
    thread.join()
    return {"value": order}


def transformations(argument):
    """Return those of the lists of transformations, last first, that the optimised graph ends in."""
    from tensorflow.python.data.experimental.ops import testing  # noqa: PLC0415

    dataset, found = _build(argument), []
    first = [] if argument["settings"]["benchmark"].get("prefetch_to_device") else ["OptionsDataset"]
    for last in argument["lasts"]:
        try:
            iter(dataset.apply(testing.assert_prev([(name, {}) for name in (*first, *last)])))
            found.append(last)
        except tf.errors.InvalidArgumentError as error:
            if "Asserted transformation" not in str(error):
                raise
    return {"value": found}


def _loop(argument):
    """Make a benchmark ready without what stands round it."""
    paths = _paths(argument)
    return _kind(argument["settings"])(argument["settings"], images.RankImages(paths[0].parent, paths, paths))


def _measured(argument, watched=None):
    return _loop(argument).measure(watched or contextlib.nullcontext())


def measure(argument):
    return {"value": _measured(argument)}


def measure_watched(argument):
    """Count the files of the dataset that are opened before what watches a run comes, and while it is there."""
    opened, seen = _Opened(argument["folder"]), []

    @contextlib.contextmanager
    def watched():
        time.sleep(STILL_S)
        seen.append(len(opened.names()))
        yield
        seen.append(len(opened.names()))

    _measured(argument, watched())
    return {"value": seen}


def residency_as_nobody(argument):
    os.setuid(_NOBODY)
    if argument["method"] == "mincore":
        page_cache._has_cachestat = lambda: False  # noqa: SLF001 - as before Linux 6.5
    found = page_cache.residency([Path(name) for name in argument["names"]])
    return {"value": [asdict(found), found.fraction]}


def execute_as_nobody(argument):
    """Run on files of somebody else; `readable_io` as for a process that was this user's from its start."""
    run.execute(argument["request"])  # imports all it needs: nobody may not even look into this checkout
    os.setuid(_NOBODY)
    _LIBC.prctl(4, int(argument["readable_io"]), 0, 0, 0)  # PR_SET_DUMPABLE: who owns /proc/self
    request = argument["request"]
    return {"value": judged_in_time(lambda: run.execute(request), request)}


def by_hand(argument):
    """Run the command line of a benchmark; return what it printed and its exit code. Others may be loud."""
    defaults = byhand.Limits()
    byhand.Limits = lambda **given: structs.replace(
        defaults,
        **{
            **given,
            "other_device_max": 1,
            "other_cpu_max": 1e9,
            "stolen_max": 1e4,
            "delayed_max": 1,
            "time_error_max": 0.2,
        },
    )
    for _ in range(1 if "--checkpoint" in argument["words"] else 3):  # as `judged_in_time`; snapshots would stay
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                byhand.main([argument.get("benchmark", "micro"), *argument["words"]])
        except SystemExit as end:
            figures, code = json.loads(printed.getvalue() or "null"), end.code
        if not was_held_up(figures or {}):
            break
    return {"value": [figures, code]}


def requested(argument):
    """List the files that a run says it will ask for, and those that it then delivers."""
    settings = argument["settings"]
    dataset = _build(argument).take(settings["iterations"] or -1)  # -1: all
    paths = _paths(argument)
    number = _kind(settings).count_images_read(settings, len(paths))
    promised = [str(path) for path in images.first_files(paths, number, settings["seed"])]
    delivered = [argument["names"][index] for batch in dataset for index in batch[0].numpy().tolist()]
    return {"value": [promised, delivered]}


def labelled(argument):
    """Return the labels of each file as they are delivered, and the devices that the batches stand on."""
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    rows, devices = [], set()
    for index, _size, pixels, one_hot in _build(argument):
        rows.extend(zip(index.numpy().tolist(), one_hot.numpy().tolist(), strict=True))
        devices |= {tensor.device.rpartition("device:")[2] for tensor in (pixels, one_hot)}
    return {"value": [rows, sorted(devices)]}


def opened_at_each_step(argument):
    """Count the files opened by the end of each step, where a step lasts until no more are opened."""
    opened, files, counts = _Opened(argument["folder"]), set(), []

    def step(_images, _labels):
        time.sleep(STILL_S)
        files.update(name for name in opened.names() if name)  # without a name: somebody looks into the folder
        counts.append(len(files))

    accelerator.emulated_step = lambda _step_s: step
    _measured(argument)
    return {"value": counts}


def cpu_of_a_run(argument):
    """Return the figures of a run and the processor's time that it took after it was prepared."""
    loop = _loop(argument)
    before = time.process_time()
    figures = loop.measure(contextlib.nullcontext())
    return {"value": [figures, time.process_time() - before]}


def refusal(argument):
    """Return the name and the words of the error that ends a run; the step may be one that fails."""

    def step(_images, _labels):
        raise tf.errors.ResourceExhaustedError(None, None, "out of memory")

    if argument.get("step_fails"):
        accelerator.emulated_step = lambda _step_s: step
    try:
        _measured(argument)
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return {"value": [type(error).__name__, str(error)]}
    return {"value": None}


def choose(argument):
    """Choose each accelerator where TensorFlow finds the GPUs beside it; return the choices and what stays visible."""
    found = []
    for name, gpus in argument["cases"]:
        visible = []
        tf.config.list_physical_devices = lambda _kind, gpus=gpus: gpus
        tf.config.set_visible_devices = lambda devices, _kind, visible=visible: visible.append(devices)
        try:
            found.append([accelerator.choose_accelerator(name), *visible])
        except NoGpuError as error:
            found.append(["refused", "nvidia-smi" in str(error)])
    return {"value": found}


def described(argument):
    """Name each accelerator where TensorFlow tells of its GPU what is beside it."""
    found = []
    tf.config.get_visible_devices = lambda _kind: ["gpu"]
    for name, details in argument["cases"]:
        tf.config.experimental.get_device_details = lambda _gpu, details=details: details
        found.append(accelerator.accelerator_label(name))
    return {"value": found}


def grey(argument):
    """Return the images that the benchmark malware takes files for."""
    load = pipeline._loader(argument["benchmark"], None)  # noqa: SLF001
    return {"value": [load(0, name)[2].numpy().tolist() for name in argument["names"]]}


def one_step(argument):
    """Train `GreyNetwork` for a step; return how its weights changed, the gradients there, and what is saved of it."""
    network = GreyNetwork(argument["classes"], 0, argument["benchmark"])
    network.reset()
    network.kernels[-1].assign(tf.ones_like(network.kernels[-1]) * 0.01)
    size = argument["benchmark"]["image_size"]
    images = tf.random.stateless_uniform((4, size, size, 1), (1, 2))
    labels = tf.one_hot([0, 1, 2, 0], argument["classes"])
    weights = [*network.kernels, *network.biases]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, network._logits(images)))  # noqa: SLF001
    gradients, before = tape.gradient(loss, weights), [weight.numpy() for weight in weights]
    network.train(images, labels)
    changed = [(weight.numpy() - old).tolist() for weight, old in zip(weights, before, strict=True)]
    return {"value": [changed, [each.numpy().tolist() for each in gradients], list(network.state)]}


def _network(argument):
    return Network(argument["classes"], argument.get("seed", 0), argument["benchmark"])


def network_size(argument):
    network = _network(argument)
    return {"value": [network.parameters, network.state_bytes]}


def _batch(argument, number):
    """Make batch `number` of a task that can be learned: one quarter of each image is bright, and says the class."""
    rng, size, classes = np.random.default_rng(number), argument["benchmark"]["image_size"], argument["classes"]
    images = rng.uniform(0, 0.5, (argument["batch_size"], size, size, 3)).astype(np.float32)
    labels = rng.integers(0, classes, argument["batch_size"])
    for image, label in zip(images, labels, strict=True):
        image[:, size * label // classes : size * (label + 1) // classes] += 0.5
    return tf.constant(images), tf.one_hot(labels, classes)


def _everything(network):
    """Return all variables, by name, as nested lists."""
    state = {name: value if isinstance(value, list) else [value] for name, value in network.state.items()}
    return {name: [variable.numpy().tolist() for variable in variables] for name, variables in state.items()}


def fit(argument):
    """Train on batches number `start` to `stop`; return losses, traces and, after each step, the last bias and Adam's.

    A state may be restored before (`restore`) and saved after (`save`).
    """
    network = _network(argument)
    network.warm_up(argument["batch_size"], accelerator.HOST)
    if "restore" in argument:
        tf.train.Checkpoint(**network.state).read(argument["restore"]).assert_consumed()
    losses, followed = [], []
    for number in range(argument["start"], argument["stop"]):
        losses.append(network.train(*_batch(argument, number)))
        last = [variables[-1].numpy().tolist() for variables in (network.biases, network.means, network.squares)]
        followed.append(last)
    if "save" in argument:
        tf.train.Checkpoint(**network.state).write(argument["save"])
    traces = network._step.experimental_get_tracing_count()  # noqa: SLF001 - in the clock there must be none
    labels = [_batch(argument, number)[1].numpy().tolist() for number in range(argument["start"], argument["stop"])]
    return {"value": {"losses": losses, "traces": traces, "followed": followed, "labels": labels}}


def state_after_warm_up(argument):
    """Return all variables after a warm-up, and those of a network that was only reset."""
    warm, fresh = _network(argument), _network(argument)
    warm.warm_up(argument["batch_size"], accelerator.HOST)
    fresh.reset()
    return {"value": [_everything(warm), _everything(fresh)]}


def losses_without_learning(argument):
    """Return the losses of one batch, again and again, where only the dropout can make a difference."""
    network = _network(argument)
    network.reset()
    network.kernels[-1].assign(tf.random.stateless_normal(network.kernels[-1].shape, (1, 2)))
    batch = _batch(argument, 0)
    losses = [network.train(*batch) for _ in range(3)]
    network.steps.assign(0)
    return {"value": [losses, [network.train(*batch) for _ in range(3)]]}


def tracked_within_the_clock(argument):
    """Return how many objects the garbage collector would look through while a run's clock runs."""
    counts = []

    def counted(_loop):
        counts.append(len(gc.get_objects()))

    step_loop.StepLoop.begin = counted  # comes first between the two stamps of the clock
    run.execute(argument["request"])
    return {"value": counts}


def where_steps_are_called(argument):
    """Return, for the step of the warm-up and one of the clock, where its batch stood and in what scope it was called.

    A second processor stands for the GPU: TensorFlow prepares a step anew where either is another.
    """
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    accelerator.DEVICES["cpu"] = "/CPU:1"
    called, train = [], Network.train

    def traced(network, images, labels):
        scope = tf.constant(0).device  # where an operation goes that nobody placed
        called.append([images.device, labels.device, scope, network.kernels[0].device])
        return train(network, images, labels)

    Network.train = traced
    settings = {**argument["settings"], "accelerator": {"name": "cpu", "step_s": None}}
    _measured({**argument, "settings": settings})
    return {"value": called}


def first_use_of_tensorflow(_argument):
    """Count the threads before and after what is done before a fork; then name the function that an operation is in."""
    before = psutil.Process().num_threads()
    accelerator.prepare_fork()
    after = psutil.Process().num_threads()
    accelerator.run_operations_directly()
    try:
        tf.io.decode_jpeg(b"no image")
    except tf.errors.OpError as error:
        return {"value": [before, after, "__wrapped__" in str(error)]}
    return {"value": None}
