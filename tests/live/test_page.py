"""The live page in a browser: what it shows, and what its switches do.
Needs LIVE_PAGE, the program whose page it is.
POSTERN_TEST_PICTURES names a folder for pictures.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import time
import zipfile

import numpy as np
import pytest
from browser import Browser, found

pytestmark = pytest.mark.skipif(not found(), reason="no chromium and chromedriver")

PICTURES = os.environ.get("POSTERN_TEST_PICTURES")
CARD = (
    "[...document.querySelectorAll('.hook')]"
    ".find((c) => c.querySelector('h3').textContent === 'noise')"
)


class Program:
    """Two trainings of so many steps, with pauses of so many milliseconds."""

    def __init__(self, steps, pause, folder="", report=""):
        self.process = subprocess.Popen(
            [os.environ["LIVE_PAGE"], str(steps), str(pause), str(folder), "0", str(report)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def last(self):
        """What the last step of a training showed."""
        while not (found := re.match(r"last (.*)", line := self.process.stdout.readline())):
            assert line
        return np.float32(found[1])


def points(browser, name):
    return browser.run(
        "const s = [...state.series.values()].find((s) => s.about.name === arguments[0]);"
        "return s ? s.points : []",
        name,
    )


def eventually(test, limit=30):
    """What it returns, once that is true, or when the time is over."""
    end = time.monotonic() + limit
    while not (value := test()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def press(browser, text, card=CARD):
    browser.run(
        f"[...{card}.querySelectorAll('button')]"
        ".find((b) => b.textContent === arguments[0]).click()",
        text,
    )


def test_values_are_those_tapped():
    with Program(60, 5) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        last = program.last()
        browser.wait(
            "const s = [...state.series.values()].find((s) => s.about.name === 'loss');"
            "return s && s.firings === 120"
        )
        shown = points(browser, "loss")
        assert len(shown) == 120
        assert np.float32(shown[-1][1]) == last
        cells = browser.run(
            "return [...document.querySelectorAll('#values tbody tr')]"
            ".map((r) => [...r.cells].map((c) => c.textContent))"
        )
        row = next(r for r in cells if r[0] == "loss")
        assert row[1] == "120" and float(row[2]) == pytest.approx(float(last), rel=1e-4)
        assert browser.run("return document.querySelector('#progress p').textContent").startswith(
            "training: 60 of 60"
        )
        assert "loss" in browser.run("return document.getElementById('lines').textContent")
        assert browser.run("return document.getElementById('process').textContent").startswith(
            f"process {program.process.pid}"
        )
        assert browser.run("return document.querySelectorAll('#devices tbody tr').length") > 0
        browser.run("document.querySelector('#programs details').open = true")
        browser.wait(
            "return document.querySelector('#programs pre').textContent.includes('scan[length=60')"
        )
        assert not browser.errors()


def test_switches_work_and_end_with_the_page(tmp_path):
    with Program(100000, 5, tmp_path) as program, Browser() as browser:
        browser.open(program.url)
        browser.wait(f"return Boolean({CARD})")
        press(browser, "Statistics")
        press(browser, "Histogram")
        browser.wait(
            "const s = [...state.series.values()].find((s) => s.about.name === 'noise'); "
            "return s && s.firings > 20"
        )
        browser.wait(
            "return [...state.histograms.values()].some((h) => h.heading.textContent === 'noise')"
        )
        browser.wait(
            f"return {CARD}.dataset.listeners.split(',').sort().join() === 'histogram 1,stats 1'"
        )
        browser.run(
            f"const e = {CARD}.querySelector('input[type=number]'); e.value = 50; e.onchange()"
        )
        browser.wait(f"return {CARD}.dataset.listeners.includes('stats 50')")
        press(browser, "Record")
        browser.wait(f"return {CARD}.dataset.listeners.includes('record 50')")
        # Both see the same firings from here on.
        firings = "[...state.series.values()].find((s) => s.about.name === 'noise').firings"
        browser.wait(f"return {firings} > arguments[0] + 1", browser.run(f"return {firings}"))
        press(browser, "Record")
        browser.wait(f"return !{CARD}.dataset.listeners.includes('record')")
        press(browser, "Record")  # the file is there
        browser.wait(
            f"return {CARD}.querySelector('.said').textContent"
            ".includes(\"there is a file 'noise.npz'\")"
        )
        assert eventually(lambda: zipfile.is_zipfile(tmp_path / "noise.npz"))
        kept = np.load(tmp_path / "noise.npz")
        assert kept[kept.files[0]].shape[1:] == (256,)
        press(browser, "Statistics")
        browser.wait(f"return {CARD}.dataset.listeners === 'histogram 50'")
        press(browser, "Checkpoint")
        browser.wait(
            f"return {CARD}.dataset.listeners === 'histogram 50' "
            f"&& !{CARD}.querySelector('.said').textContent"
        )
        assert eventually(lambda: list(tmp_path.glob("noise/*/manifest*")))
        assert list(tmp_path.rglob("*.safetensors"))
        with Browser() as other:  # sees them, and after the first one has gone that they are off
            other.open(program.url)
            other.wait(f"return Boolean({CARD}) && {CARD}.dataset.listeners === 'histogram 50'")
            browser.open("about:blank")
            other.wait(f"return {CARD}.dataset.listeners === ''")
            assert not other.errors()
            # It stands apart, asks first, and nothing that answers is where a second click falls.
            end = f"[...{CARD}.querySelectorAll('.apart button')].find((b) => !b.hidden)"
            assert other.run(f"return {end}.parentElement.querySelectorAll('input').length") == 0
            middle = other.run(
                f"{end}.scrollIntoView(); "
                f"const s = {end}.getBoundingClientRect(); "
                "return [(s.left + s.right) / 2, (s.top + s.bottom) / 2]"
            )
            press(other, "End the run")
            asks = other.run(f"return {CARD}.querySelector('.apart').textContent")
            assert "of 100000 steps" in asks and "what it has computed is lost" in asks
            there = other.run("return document.elementFromPoint(...arguments[0]).tagName", middle)
            assert there != "BUTTON"
            press(other, "Let it run")
            time.sleep(0.5)
            assert program.process.poll() is None
            press(other, "End the run")
            press(other, "End it")
            program.process.wait(30)  # its result is not to be had: the program ends with an error


def test_the_title_says_which_program_runs_where():
    with Program(20, 1) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        program.last()
        browser.wait("return document.title.includes(', run ')")
        host = socket.gethostname()
        name = pathlib.Path(os.environ["LIVE_PAGE"]).name
        title = browser.run("return document.title")
        assert re.fullmatch(rf"{re.escape(name)} on {re.escape(host)}, run \d+", title)
        heading = browser.run("return document.querySelector('h1').textContent")
        assert name in heading and f"on {host}, run " in heading
        assert "arguments: 20 1" in browser.run(
            "return document.getElementById('process').textContent"
        )


def test_histograms_begin_before_the_page_was_opened():
    with Program(300, 0) as program, Browser() as browser:
        program.last()
        program.last()
        browser.open(program.url)
        histogram = "[...state.histograms.values()][0]"
        browser.wait(f"return {histogram} && {histogram}.end === 600")
        columns = browser.run(f"return columnsOf({histogram})")
        assert len(columns) > 50
        assert columns[0]["begin"] == 0 and columns[-1]["end"] == 600
        for before, after in zip(columns, columns[1:]):
            assert before["end"] == after["begin"]
        for c in columns:
            assert sum(c["bins"]) == 256 * (c["end"] - c["begin"])
        browser.run("choose('axis', 'time')")
        columns = browser.run(f"return columnsOf({histogram})")
        assert len(columns) > 50 and columns[0]["begin"] > 1.7e9
        assert all(c["begin"] <= c["end"] for c in columns)
        assert not browser.errors()


def test_axes_have_names_and_ticks_in_steps_and_time():
    with Program(200, 15) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        chart = "state.charts.get('gradient norm')"
        browser.wait(f"return {chart} && {chart}.lines[0].firings > 200")
        browser.run("document.getElementById('pause').click()")

        def drawn():
            browser.run(
                "const paints = CanvasRenderingContext2D.prototype;"
                "window.fill = window.fill || paints.fillText;"
                "window.said = [];"
                "paints.fillText = function (t, ...at) {"
                "  said.push(t); fill.call(this, t, ...at); };"
                f"{chart}.draw()"
            )
            return browser.run("return said")

        assert {"step", "mean", "0", "100"} <= set(drawn())
        means = browser.run(f"return {chart}.inView({chart}.lines[0].points).map((p) => p[1])")
        browser.run("choose('what', 'norm'); choose('axis', 'time')")
        said = drawn()
        assert {"time", "norm"} <= set(said) and "step" not in said
        assert sum(bool(re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?", t)) for t in said) > 1
        view = browser.run(f"return {chart}.inView({chart}.lines[0].points)")
        assert all(abs(p[0] - time.time()) < 100 for p in view)
        assert all(a[0] <= b[0] for a, b in zip(view, view[1:]))
        assert [abs(m) for m in means] == pytest.approx([p[1] for p in view])  # of one element
        browser.run("choose('compare', 'runs')")
        assert any(re.fullmatch(r"[\d.]+ s", t) for t in drawn())  # since its start
        ends = browser.run(f"return drawnIn({chart}).map((d) => d.points[0][6])")
        assert ends == [0] * len(ends)
        cells = browser.run(
            "const head = [...document.querySelectorAll('#values th')].map((c) => c.textContent);"
            "const row = [...document.querySelectorAll('#values tbody tr')]"
            "  .find((r) => r.cells[0].textContent === 'gradient norm');"
            "return head.map((name, i) => [name.trim(), row.cells[i].textContent])"
        )
        values = dict(cells)
        assert values["rms"] == values["norm"] == values["last mean"]
        assert not browser.errors()


def test_images_and_texts_are_shown():
    with Program(20, 1) as program, Browser() as browser:
        browser.open(program.url)
        browser.wait("return document.querySelectorAll('#images img').length === 1")
        browser.wait("return document.querySelector('#images img').naturalWidth === 16")
        program.last()
        program.last()
        browser.wait(
            "return document.querySelector('#images figcaption').textContent.includes('step 1,')"
        )
        assert (
            browser.run("return document.querySelector('#texts pre').textContent")
            == "rate  0.01\nbatch 256\nnoise <normal>"
        )
        assert not browser.errors()


def test_what_is_compiled_and_gone_is_shown():
    with Program(5, 1) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        program.last()
        browser.wait("return document.querySelectorAll('#programs details').length > 0")
        browser.run("take({ compiling: [{ name: 'large', seconds: 2 }] })")
        shown = "const c = document.getElementById('compiling'); return [c.hidden, c.textContent]"
        assert browser.run(shown) == [False, "Compiling large for 2.0 s"]
        browser.run("take({ compiling: [] })")
        assert browser.run(shown)[0]
        browser.run("take({ gone: [...state.programs.keys()] }); take({ gone: [1] })")
        summary = browser.run("return document.querySelector('.gone summary').textContent")
        assert summary.endswith(", gone") and summary.count("gone") == 1


@pytest.mark.parametrize("width", [390, 1000, 1900])
def test_cards_fill_the_width_and_nothing_is_wider(width):
    with Program(20, 1) as program, Browser(width=width, phone=width < 500) as browser:
        browser.open(program.url)
        program.last()
        browser.wait("return state.charts.size === 2 && state.histograms.size === 1")
        left = browser.run(
            "return ['curves', 'histograms'].map((id) => {"
            "  const box = document.getElementById(id).getBoundingClientRect();"
            "  const cards = [...document.getElementById(id).children];"
            "  return box.right - Math.max(...cards.map((c) => c.getBoundingClientRect().right));"
            "})"
        )
        assert left == pytest.approx([0, 0], abs=1)
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits_and_can_be_read(tmp_path, width):
    with Program(20, 1, "-", tmp_path / "r.html") as program:
        program.last()
        program.last()
        assert eventually(lambda: (tmp_path / "r.html").exists())
    with Browser(width=width, phone=width < 500) as browser:
        browser.open(f"file://{tmp_path / 'r.html'}")
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert browser.run("return document.querySelectorAll('svg text').length") > 10
        assert browser.run("return document.images[0].naturalWidth") == 16
        sizes = browser.run(
            "return [...document.querySelectorAll('figure svg')].map((s) =>"
            "  parseFloat(getComputedStyle(s.querySelector('text')).fontSize)"
            "  * s.clientWidth / s.viewBox.baseVal.width)"
        )
        assert min(sizes) >= 10
        rows = "return [...document.querySelectorAll('tr')].map((r) => r.offsetHeight)"
        assert max(browser.run(rows)) < 50  # names are on one line
        if PICTURES:
            browser.picture(pathlib.Path(PICTURES) / f"report-{width}.png")


def test_curves_are_zoomed_smoothed_and_compared():
    with Program(50, 2) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        program.last()
        chart = "state.charts.get('loss')"
        browser.wait(f"return {chart} && {chart}.lines[0].firings === 100")
        browser.run(f"{chart}.canvas.focus()")
        browser.run(f"{chart}.canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: '+' }}))")
        left, right = browser.run(f"return {chart}.zoom")
        assert 0 < left < right < 100
        rough = browser.run(f"return {chart}.inView({chart}.lines[0].points).map((p) => p[1])")
        browser.run(
            "const e = document.getElementById('smooth'); e.value = 0.9; e.oninput({ target: e })"
        )
        smooth = browser.run(f"return {chart}.inView({chart}.lines[0].points).map((p) => p[1])")
        assert len(smooth) == len(rough) and smooth != rough
        browser.run(
            "const e = document.getElementById('smooth'); e.value = 0; e.oninput({ target: e })"
        )
        browser.run(
            "const e = document.getElementById('compare'); e.value = 'runs'; "
            "e.onchange({ target: e })"
        )
        drawn = browser.run(f"return drawnIn({chart})")
        assert len(drawn) == 2 and all(
            len(d["points"]) == 50 and d["points"][0][0] == 0 for d in drawn
        )
        assert [d["faint"] for d in drawn] == [True, False]
        browser.click("#save")
        folder = pathlib.Path(browser.folder.name)
        for _ in range(100):
            if saved := list(folder.glob("curves-*.json")):
                break
            time.sleep(0.1)
        curves = {c["title"]: c["points"] for c in json.loads(saved[0].read_text())["curves"]}
        assert curves["loss"] == points(browser, "loss")
        log = folder / "other.jsonl"
        log.write_text(
            "\n".join(
                json.dumps(
                    {"step": i, "time": 0, "tap": "loss", "device": 0, "values": {"loss": i / 10}}
                )
                for i in range(10)
            )
        )
        table = folder / "table.csv"
        table.write_text(
            'step,time,device,"a,b (jvp)",'
            "gradient norm.min,gradient norm.mean,gradient norm.max,loss\n"
            "0,1,0,7,1,2,3,0.5\n1,2,0,7,1,2,3,0.25\n"
        )
        broken = folder / "broken.json"
        broken.write_text("{")
        browser.give_files("#open", saved[0], log, table, broken)
        browser.wait(f"return drawnIn({chart}).length === 6")
        assert "broken.json" in browser.run("return document.getElementById('lines').textContent")
        browser.wait(f"return {chart}.caption.textContent.includes('other.jsonl')")
        norms = browser.run(
            "return drawnIn(state.charts.get('gradient norm'))"
            ".filter((line) => line.faint && line.label === 'table.csv')"
        )
        assert [line["points"] for line in norms] == [[[0, 2, 1, 3], [1, 2, 1, 3]]]
        assert not browser.errors()


def test_files_have_names_as_listeners_write_them():
    with Program(5, 1) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        curves = browser.run(
            "return [...curvesIn(arguments[0])]",
            json.dumps(
                {
                    "step": 50,
                    "time": 1764000000.5,
                    "tap": "train",
                    "device": 0,
                    "values": {
                        "train[1]": 0.5,
                        "train.norm": {
                            "count": 9,
                            "nan": 0,
                            "inf": 0,
                            "min": 1,
                            "mean": 2,
                            "max": 3,
                        },
                    },
                }
            )
            + "\n",
        )
        assert curves == [
            ["train[1]", {"points": [[50, 0.5, 0.5, 0.5]]}],
            ["train.norm", {"points": [[50, 2, 1, 3]]}],
        ]
        curves = dict(
            browser.run(
                "return [...curvesIn(arguments[0])]",
                'step,time,device,"loss (jvp,transpose)","a ""b"" c",norm.min,norm.mean,norm.max\n'
                "3,1,0,0.5,7,1,2,3\n",
            )
        )
        assert curves["loss (jvp,transpose)"]["points"] == [[3, 0.5, 0.5, 0.5]]
        assert curves['a "b" c']["points"] == [[3, 7, 7, 7]]
        assert curves["norm"]["points"] == [[3, 2, 1, 3]]
        drawn = browser.run(
            "state.files = [{ name: 'f', "
            "curves: new Map([['loss (jvp)', { points: [[0, 1, 1, 1]] }]]) }];"
            "const lines = [{ points: [], about: { transforms: 'jvp' } }];"
            "return drawnIn({ title: 'loss', lines }).map((line) => line.label)"
        )
        assert drawn == [None, "f (jvp)"]
        assert not browser.errors()


def test_what_is_held_is_bounded():
    with Program(5, 1) as program, Browser() as browser:
        browser.open(program.url)
        program.last()
        program.last()
        browser.wait(
            "const s = [...state.series.values()].find((s) => s.about.name === 'loss'); "
            "return s && s.firings === 10"
        )
        news = (
            "for (let i = 0; i < arguments[0]; ++i) "
            "source.dispatchEvent(new MessageEvent('news', { data: '{}' }));"
        )
        browser.run("source.close(); Object.defineProperty(document, 'hidden', { value: true })")
        browser.run("document.getElementById('pause').click()")
        browser.run("source.dispatchEvent(new MessageEvent('whole', { data: '{\"seconds\":1}' }))")
        # as it was when it paused
        assert browser.run("return [state.series.size > 0, held.length]") == [True, 1]
        browser.run(news, 600)
        assert browser.run("return held.length") <= 600
        assert browser.run(
            "return [state.paused, document.getElementById('pause').ariaPressed]"
        ) == [False, "false"]
        assert browser.run("return state.series.size") == 0
        browser.run(news, 2000)
        assert browser.run("return held.length") <= 600
        assert not browser.errors()


@pytest.mark.skipif(not PICTURES, reason="POSTERN_TEST_PICTURES names no folder")
@pytest.mark.parametrize(
    "name, how",
    [
        ("desktop-light", {"width": 1440, "height": 1900}),
        ("desktop-dark", {"width": 1440, "height": 1900, "dark": True}),
        ("phone-light", {"width": 390, "height": 2400, "phone": True}),
        ("phone-dark", {"width": 390, "height": 2400, "phone": True, "dark": True}),
    ],
)
def test_pictures(name, how):
    with Program(300, 10) as program, Browser(**how) as browser:
        browser.open(program.url)
        browser.wait(f"return Boolean({CARD})")
        press(browser, "Statistics")
        press(browser, "Histogram")
        browser.click("#record")
        time.sleep(5)
        browser.picture(pathlib.Path(PICTURES) / f"{name}.png")
