/* The parts of a page, as the kernel has them: one widget's model carries all of them, see `parts.py`.

   A view is given a part as its `model`. A person's acts are sent in their order, one at a time, so that no button
   overtakes the change of a slider before it, and a dragged slider sends no more than the kernel can answer. What a
   person sets is set here at once; until the kernel has handled it, what the kernel sends of it is older and ignored.

   The page shows the truth only as long as its kernel answers. Where it does not, the status line says so. */

const SILENCES = [300, 5000]; // milliseconds without an answer: the page is then stale; Python then does not answer
const REPAINT = 500; // milliseconds between looks at which cell of a lesson runs
const BUSY_ALLOWANCE = 50; // milliseconds of them in which a page that was busy handles answers that have arrived

const views = {}; // a view's name to its functions; each has a file of its own

class Part {
  state = {};
  sent = new Map(); // a trait's name to the number of the act with a person's last change, until that is answered
  listeners = new Map();

  constructor(page, number) {
    this.page = page;
    this.number = number;
  }

  get(name) {
    return this.state[name];
  }

  /** Listens to events, whose names are separated by spaces: `change:` and a trait, or `message`. */
  on(events, listener) {
    for (const event of events.split(" ")) {
      if (!this.listeners.has(event)) this.listeners.set(event, new Set());
      this.listeners.get(event).add(listener);
    }
  }

  off(events, listener) {
    for (const event of events.split(" ")) this.listeners.get(event)?.delete(listener);
  }

  /** Calls each listener of some events once. */
  emit(events, ...values) {
    const listeners = new Set(events.flatMap((event) => [...this.listeners.get(event) ?? []]));
    listeners.forEach((listener) => listener(...values));
  }

  /** Sets traits by what the kernel has sent. Returns the events to emit. */
  merge(state, handled) {
    const names = Object.keys(state).filter((name) => !(this.sent.get(name) > handled) && state[name] !== this.state[name]);
    for (const name of names) this.state[name] = state[name];
    return names.map((name) => `change:${name}`);
  }

  /** Sends a message of this part at once. */
  send(content, buffers) {
    this.page.post({ part: this, verb: "act", content, buffers });
  }

  /** Sends an act of a person after the acts before it; its answer calls `onAnswer`. */
  act(content, onAnswer = null) {
    this.page.queue({ part: this, verb: "act", content, onAnswer });
  }

  /** Sets and sends traits, as an act of a person. */
  change(changes) {
    Object.assign(this.state, changes);
    const number = this.page.queue({ part: this, verb: "set", content: { ...changes } });
    for (const name of Object.keys(changes)) this.sent.set(name, number);
    this.emit(Object.keys(changes).map((name) => `change:${name}`));
  }
}

/** Which cell of a served lesson still runs, in words; empty where none does. `page.js` of the template notes it. */
const runningText = () => {
  const cell = document.documentElement.dataset.running;
  return cell ? `The lesson is still running: ${cell}` : "";
};

const unanswered = new Set(); // the pages of this document that wait for an answer
const incomplete = new Map(); // the number of a file to the parts of it that have arrived

/** Saves a file that the kernel sends: `{file, media}`, with its bytes beside it. A large file comes in parts, which carry
    the `number` of the file and how many parts are `left`; each further part is requested. */
function receiveFile(part, { file, media, number, left }, bytes) {
  const received = [...(incomplete.get(number) ?? []), bytes];
  incomplete.set(number, received);
  if (left) {
    part?.send(["more", number, received.length]);
    return;
  }
  incomplete.delete(number);
  const url = URL.createObjectURL(new Blob(received, { type: media }));
  make("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may still be reading it
}

class Page {
  parts = new Map();
  top = null;
  number = 0; // of the last act
  flight = null; // the act that was sent and is not answered
  waiting = [];
  silence = 0; // how many of SILENCES have passed
  timers = [];
  listeners = new Set();

  constructor(model) {
    this.model = model;
    model.get("layout").on("msg:custom", (message, buffers) => { // see `runtime.tell`
      const { parts, to, content } = message, part = this.parts.get(to);
      if (parts) this.merge(message);
      else if (content.file) receiveFile(part, content, buffers[0]);
      else part?.emit(["message"], content);
    });
    model.on("change:state", () => this.merge(model.get("state")));
    this.merge(model.get("state"));
    model.send(["shown", model.get("state").sent]);
  }

  /** Sets the traits of all parts before it tells anybody of one. */
  merge({ top = this.top, parts, handled }) {
    this.top = top;
    const changed = Object.entries(parts).map(([key, state]) => {
      const number = Number(key), part = this.parts.get(number) ?? new Part(this, number);
      this.parts.set(number, part);
      return [part, part.merge(state, handled)];
    });
    for (const [part, events] of changed) part.emit(events);
    const kept = new Set(this.within(this.top));
    for (const number of this.parts.keys()) if (!kept.has(number)) this.parts.delete(number);
  }

  /** The numbers of a part and of all within it. */
  within(number) {
    return [number, ...this.parts.get(number).get("children").flatMap((child) => this.within(child))];
  }

  /** Sends a message; one that is not an act of the queue overtakes those that wait, and has no number. */
  post({ part, verb, content, buffers, number = 0 }, callbacks) {
    this.model.send([number, part.number, verb, content], callbacks, buffers);
  }

  /** Adds an act to those that wait; a change is merged into the change of the same part before it. Returns its number. */
  queue(act) {
    const last = this.waiting.at(-1);
    act.number = this.number += 1;
    if (act.verb === "set" && last?.verb === "set" && last.part === act.part) {
      Object.assign(act.content, { ...last.content, ...act.content });
      this.waiting.pop();
    }
    this.waiting.push(act);
    if (!this.flight || this.silence === SILENCES.length) this.sendNext();
    return act.number;
  }

  /** Calls back as soon as every act so far is answered, or if the kernel does not answer any more. */
  settled(callback) {
    if (this.flight && this.silence < SILENCES.length) this.waiting.push({ callback });
    else callback();
  }

  sendNext() {
    const act = this.flight = this.waiting.shift() ?? null;
    if (act?.callback) {
      act.callback();
      this.sendNext();
    } else if (act) {
      const status = ({ content }) => content.execution_state === "idle" && this.settle(act);
      this.post(act, { iopub: { status } });
    }
    this.countSilence();
    unanswered[this.flight ? "add" : "delete"](this);
    document.documentElement.toggleAttribute("data-unanswered", unanswered.size > 0); // for programs that watch the page
  }

  /** Takes the answer to an act. */
  settle(act) {
    for (const [name, number] of act.part.sent) if (number <= act.number) act.part.sent.delete(name);
    act.onAnswer?.();
    if (this.flight === act) this.sendNext();
    // A page that is stale stays so until every act is answered, or it would blink with each answer.
    this.setSilence(this.flight ? Math.min(this.silence, 1) : 0);
  }

  setSilence(silence) {
    if (this.silence === silence) return;
    this.silence = silence;
    this.listeners.forEach((paint) => paint());
  }

  /** Starts to count the silence anew. While a lesson runs its cells, the kernel answers between two of them. */
  countSilence() {
    this.timers.splice(0).forEach(clearTimeout);
    if (!this.flight) return;
    this.timers = SILENCES.map((time, index) => setTimeout(() => {
      // A second timer lets the page handle the answers first that arrived while it was busy.
      this.timers[index] = setTimeout(() => this.noteSilence(index + 1), BUSY_ALLOWANCE);
    }, time - BUSY_ALLOWANCE));
  }

  noteSilence(silence) {
    if (runningText()) {
      this.setSilence(1);
      this.listeners.forEach((paint) => paint());
      this.timers.splice(0).forEach(clearTimeout);
      this.timers = [setTimeout(() => {
        if (runningText()) this.noteSilence(silence);
        else this.countSilence();
      }, REPAINT)];
      return;
    }
    this.setSilence(Math.max(this.silence, silence));
    if (this.silence === SILENCES.length) this.sendNext(); // a kernel that has ended never answers
  }
}

/** A page's model as a page: returns what draws it into an element, which returns a function that stops. */
function openPage(model) {
  const page = new Page(model);
  return (el) => {
    // The comm ends with its kernel. ipywidgets marks its own boxes so, and no view of anywidget.
    model.on("comm_live_update", () => el.classList.add("jupyter-widgets-disconnected"));
    return drawPart(page.parts.get(page.top), el);
  };
}

/** Draws a part into an element. Returns a function that stops. */
function drawPart(part, el) {
  let classes = [];
  const end = views[part.get("view")](part, el);
  const stop = follow(part, "classes hidden", () => {
    el.classList.remove(...classes);
    classes = part.get("classes");
    el.classList.add(...classes);
    el.style.display = part.get("hidden") ? "none" : "";
  });
  return callAll([stop, end]);
}
