"""What TensorBoard's own reader finds in the event files that listen::tensorboard writes."""
import csv
import json
import os
import pathlib
import random
import struct
import subprocess
import zlib

import numpy
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.plugins.hparams import metadata
from tensorboard.util import tensor_util

PROGRAM = os.environ["METRICS_RUN"]
STEPS = 40


def run(folder, steps=STEPS, *more):
    command = [PROGRAM, folder, str(steps), *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    truth = {}
    for line in done.stdout.split("\n")[:-1]:  # the last one may be cut
        _, step, *numbers = line.split()
        truth[int(step)] = [float(n) for n in numbers]
    return done, truth


def event_files(folder):
    return sorted(pathlib.Path(folder).glob("events.out.tfevents.*"))


def values(folder):
    """{tag: [(step, tensor, plug-in's name, its content)]}, as TensorBoard goes through it."""
    found = {}
    for file in event_files(folder):
        for event in event_file_loader.EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                data = value.metadata.plugin_data
                tensor = tensor_util.make_ndarray(value.tensor)
                entry = (event.step, tensor, data.plugin_name, data.content)
                found.setdefault(value.tag, []).append(entry)
    return found


def samples(png):
    """The samples of a PNG without filters, by the standard's layout."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert checksum == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + size
    width, height, bits, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {0: 1, 2: 3, 6: 4}[color]
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), numpy.uint8)
    rows = rows.reshape(height, 1 + width * channels)
    assert bits == 8 and not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def check_values(found, truth):
    """That all that is in the folder is true; how many steps."""
    for step, loss, plugin, _ in found["train/[1]"]:
        assert plugin == "scalars" and loss.dtype == numpy.float32
        assert loss == numpy.float32(truth[step][0])
    for step, times, _, _ in found["train/[2][1]"]:
        assert times == 3 * step
    for step, bins, plugin, _ in found["train/[2][0]"]:
        w = numpy.float32(truth[step][2:]).astype(float)
        assert plugin == "histograms" and bins.shape == (8, 3)
        assert bins[0, 0] == w.min() and bins[-1, 1] == w.max()
        assert (bins[1:, 0] == bins[:-1, 1]).all()
        assert bins[:, 2].sum() == len(w)
        assert (bins[:, 2] == numpy.histogram(w, 8)[0]).all()
    return len(found["train/[1]"])


def test_every_value_comes_back(tmp_path):
    done, truth = run(tmp_path)
    assert done.returncode == 0, done.stderr
    found = values(tmp_path)
    assert check_values(found, truth) == STEPS
    assert [step for step, *_ in found["train/[1]"]] == list(range(STEPS))
    for step, parts, plugin, _ in found["image"]:
        assert plugin == "images" and list(parts[:2]) == [b"8", b"2"]
        expected = numpy.clip(numpy.float32(truth[step][2:]), 0, 1).astype(float) * 255
        assert (samples(parts[2]).ravel() == numpy.floor(expected + 0.5)).all()
    ((_, text, plugin, _),) = found["about"]
    assert plugin == "text" and text.item() == b"*two* words"
    ((step, final, *_),) = found["final"]
    assert step == STEPS and final == numpy.float32(truth[STEPS - 1][0])
    ((_, _, plugin, content),) = found[metadata.SESSION_START_INFO_TAG]
    start = metadata.parse_session_start_info_plugin_data(content).hparams
    assert plugin == metadata.PLUGIN_NAME
    assert {k: v.WhichOneof("kind") for k, v in start.items()} == {
        "rate": "number_value",
        "layers": "number_value",
        "name": "string_value",
        "nesterov": "bool_value",
    }
    assert (start["rate"].number_value, start["layers"].number_value) == (0.5, 3)
    assert (start["name"].string_value, start["nesterov"].bool_value) == ("first", True)


def test_tables_say_the_same(tmp_path):
    _, truth = run(tmp_path)
    table = list(csv.DictReader(open(tmp_path / "loss.csv")))
    assert list(table[0]) == ["step", "time", "device", "loss[1]"]
    for step, row in enumerate(table):
        assert numpy.float32(row["loss[1]"]) == numpy.float32(truth[step][0])
    assert len(table) == STEPS
    lines = [json.loads(line) for line in open(tmp_path / "all.jsonl")]
    assert [line["step"] for line in lines] == list(range(STEPS))
    for line in lines:
        _, times, *all_of = truth[line["step"]]
        assert (numpy.float32(line["values"]["train[2][0]"]) == numpy.float32(all_of)).all()
        assert line["values"]["train[2][1]"] == times and line["tap"] == "train"


def test_killed_at_any_moment_what_was_written_is_read(tmp_path):
    chosen, killed, steps = random.Random(3), 0, 0
    for _ in range(6):
        done, truth = run(tmp_path, 100_000, chosen.randrange(200_000))
        assert done.returncode == -9, done.stderr
        # Whoever was told of a step by the last tap of the loop finds it in all files.
        loader = event_file_loader.EventFileLoader(str(event_files(tmp_path)[-1]))
        tags = [(event.step, value.tag) for event in loader.Load() for value in event.summary.value]
        written = [step for step, tag in tags if tag == "train/[1]"]
        assert written[: len(truth)] == list(range(len(truth)))
        steps += len(truth)
    assert steps > 0
    assert len(event_files(tmp_path)) == 6
    lines = open(tmp_path / "all.jsonl").read().split("\n")
    for line in lines[:-1]:
        json.loads(line)


def test_a_record_that_is_cut_costs_that_record(tmp_path):
    run(tmp_path, 3)
    file = event_files(tmp_path)[0]
    whole = file.read_bytes()
    before = len(values(tmp_path)["train/[1]"])
    for cut in [*range(1, 30), 60]:
        file.write_bytes(whole[:-cut])
        found = values(tmp_path)
        assert len(found["train/[1]"]) == before and "final" not in found
    with open(tmp_path / "all.jsonl", "a") as lines:
        lines.write('{"step":3,"ti')
    done, truth = run(tmp_path, 3)  # the next process goes on beside it
    assert "ended in the middle of a line, whose 13 bytes are removed" in done.stderr
    assert check_values(values(tmp_path), truth) == 2 * before
    assert [json.loads(line)["step"] for line in open(tmp_path / "all.jsonl")] == [0, 1, 2] * 2


def test_a_clock_that_was_ahead_does_not_hide_what_comes(tmp_path):
    run(tmp_path, 2)
    (file,) = event_files(tmp_path)
    file.rename(tmp_path / "events.out.tfevents.9999999990.ahead.1")
    run(tmp_path, 2)
    assert [f.name[20:30] for f in event_files(tmp_path)] == ["9999999990", "9999999991"]


def test_two_processes_do_not_share_a_folder(tmp_path):
    command = [PROGRAM, tmp_path, "1000000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        first.stdout.readline()
        second, _ = run(tmp_path, 1)
        first.kill()
    assert second.returncode == 1
    assert "another process writes to" in second.stderr and "a folder of its own" in second.stderr
