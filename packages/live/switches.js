"use strict";
// Live hooks: a card for each, with a switch for each listener. What is turned on here ends with
// this page.

const client = Array.from(crypto.getRandomValues(new Uint8Array(8)),
  (b) => b.toString(16).padStart(2, "0")).join("");
const listeners = [["stats", "Statistics"], ["histogram", "Histogram"], ["print", "Print"],
  ["non-finite", "Tell non-finite"]];
const once = [["record", "Record", "npz"], ["checkpoint", "Checkpoint", ""]];

async function ask(request) {
  const answer = await fetch(`/switch?client=${client}`, {
    method: "POST", body: JSON.stringify(request),
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
  }).catch(() => null);
  const said = answer ? await answer.json().catch(() => ({})) : {};
  if (!answer || !answer.ok) throw new Error(said.error || "The program does not answer.");
  return said;
}

class HookCard {
  constructor(hook) {
    this.number = hook.number;
    this.mine = new Map();  // kind: number of what was turned on
    this.seen = new Set();  // numbers that the process has told of
    this.figure = make("figure", $("hooks"), "", "hook");
    this.figure.id = `hook-${hook.number}`;
    make("h3", this.figure, hook.name || "(no name)");
    const leaves = hook.leaves.map(([path, type]) => `${path} ${type}`.trim()).join(", ");
    make("p", this.figure, [leaves, hook.place, hook.transforms, hook.program]
      .filter(Boolean).join(" · "), "where");
    this.others = make("p", this.figure, "", "where");
    const switches = make("div", this.figure, "", "switches");
    this.buttons = new Map();
    for (const [kind, label] of listeners) {
      const b = make("button", switches, label);
      b.onclick = () => this.toggle(kind);
      this.buttons.set(kind, b);
    }
    const settings = make("div", this.figure, "", "switches");
    const field = (label, value, title) => {
      const box = make("label", settings, `${label} `);
      const input = make("input", box);
      Object.assign(input, { type: "number", min: label === "every" ? 1 : 0, value, title });
      input.onchange = () => this.change();
      return input;
    };
    this.every = field("every", 1, "Shows firings 0, this, twice this, ...");
    this.keep = field("keep last", 0,
      "0: the program waits while it is looked at. Else it does not, and older copies are lost");
    const acts = make("div", this.figure, "", "switches");
    const box = make("label", acts, "name ");
    this.file = make("input", box);
    this.file.value = (hook.name || "hook").replace(/[^A-Za-z0-9_-]+/g, "_").replace(/^_/, "");
    this.file.title = "Of the file or folder that is made where the program runs";
    for (const [kind, label, ending] of once) {
      const b = make("button", acts, label);
      b.onclick = () => this.toggle(kind, ending);
      this.buttons.set(kind, b);
    }
    this.addEnd();
    this.said = make("p", this.figure, "", "said");
    this.said.setAttribute("role", "status");
  }
  settings() {
    const every = Math.max(Math.round(+this.every.value) || 1, 1);
    const keep = Math.max(Math.round(+this.keep.value) || 0, 0);
    return { every, keep_last: keep };
  }
  async say(doing) {
    try {
      await doing();
      this.said.textContent = "";
    } catch (e) {
      this.said.textContent = e.message;
    }
    this.show();
  }
  toggle(kind, ending) {
    return this.say(async () => {
      const on = this.mine.get(kind);
      if (on) {
        this.mine.delete(kind);
        await ask({ off: on });
        return;
      }
      const request = { on: this.number, listener: kind, ...this.settings() };
      if (ending !== undefined) request.file = this.file.value + (ending && `.${ending}`);
      this.mine.set(kind, (await ask(request)).number);
    });
  }
  addEnd() {  // asks first, and not where a double click would answer
    const row = make("div", this.figure, "", "switches apart");
    const button = make("button", row, "End the run");
    const question = make("span", row), lost = make("span", question);
    const no = make("button", question, "Let it run"), yes = make("button", question, "End it");
    const ask = (asking) => { button.hidden = asking; question.hidden = !asking; };
    button.onclick = () => {
      const steps = [...state.bars.values()].map((b) => `${b.done} of ${b.total}`).join(", ");
      lost.textContent = `The run${steps && `, at ${steps} steps,`} gives no results: what it has `
        + "computed is lost. What listeners have seen, files and checkpoints stay. ";
      ask(true);
      no.focus();
    };
    no.onclick = () => { ask(false); button.focus(); };
    yes.onclick = () => { ask(false); this.toggle("end"); };
    ask(false);
  }
  change() {
    return this.say(async () => {
      for (const number of this.mine.values()) await ask({ change: number, ...this.settings() });
      if (this.own) await ask({ own: this.number, ...this.settings() });
    });
  }
  take(hook) {
    const there = new Map(hook.listeners.map((l) => [l.number, l]));
    for (const number of there.keys()) this.seen.add(number);
    // What comes now may have been written before it was turned on.
    for (const [kind, number] of this.mine)
      if (this.seen.has(number) && !there.has(number)) this.mine.delete(kind);
    const first = !this.shown;
    this.shown = true;
    this.own = hook.own;
    if (hook.own && first) {
      this.every.value = hook.own.every;
      this.keep.value = hook.own.keep_last;
    }
    const mine = new Set(this.mine.values());
    const text = (what, l) => `${what}, every ${l.every}${l.async ? ", beside the program" : ""}`;
    const lines = hook.listeners.filter((l) => !mine.has(l.number)).map((l) => text(l.what, l));
    if (hook.own) lines.unshift(text("the program's own listener", hook.own));
    this.others.textContent = lines.join("; ");
    this.figure.dataset.listeners = hook.listeners.map((l) => `${l.what} ${l.every}`).join(",");
    this.show();
  }
  show() {
    for (const [kind, b] of this.buttons) b.setAttribute("aria-pressed", this.mine.has(kind));
  }
}

function hooksNews(hooks) {
  const there = new Set(hooks.map((h) => h.number));
  for (const [number, card] of state.hooks)
    if (!there.has(number)) { card.figure.remove(); state.hooks.delete(number); }
  for (const h of hooks) {
    if (!state.hooks.has(h.number)) state.hooks.set(h.number, new HookCard(h));
    state.hooks.get(h.number).take(h);
  }
}
