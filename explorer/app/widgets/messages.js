/* Messages to the kernel, in the order in which a person caused them, and how long it is silent.

   The widget protocol keeps one message of a widget in flight, and merges what changes meanwhile. A button has its own
   way, so pressed right after a change it would act on what was chosen before: a race with the old number of steps, a
   pin of the design before the last. Buttons therefore wait until the kernel has answered every change.

   What a page shows is true only as long as its kernel answers: where it is silent, the status lines say so. */

const SILENCES = [300, 5000]; // milliseconds without an answer: then what is shown is stale; then Python does not answer
const TAKING = 50; // milliseconds of them
const channels = new WeakMap(); // widget manager, of which each kernel has one, to what its kernel was told

function channelOf({ widget_manager: manager }) {
  if (!channels.has(manager)) {
    // `unanswered`: models, each to its last change, and what else a person did. `silence`: how many times have passed.
    channels.set(manager, { unanswered: new Map(), waiting: [], silence: 0, timers: [], listeners: new Set() });
  }
  return channels.get(manager);
}

function setSilence(channel, silence) {
  if (channel.silence === silence) return;
  channel.silence = silence;
  channel.listeners.forEach((paint) => paint());
}

/** Counts from the last answer, or else from the first message. */
function countSilence(channel) {
  channel.timers.splice(0).forEach(clearTimeout);
  if (!channel.unanswered.size) return;
  channel.timers = SILENCES.map((time, index) => setTimeout(() => {
    // A page that was busy meanwhile takes the answers that have arrived first.
    channel.timers[index] = setTimeout(() => {
      setSilence(channel, Math.max(channel.silence, index + 1));
      if (channel.silence === SILENCES.length) release(channel); // a kernel that has ended answers none
    }, TAKING);
  }, time - TAKING));
}

/** Sends the buttons that wait. */
const release = (channel) => channel.waiting.splice(0).forEach((go) => go());

/** The page says whether anything is unanswered: whoever looks at it can tell. */
const showWaiting = ({ unanswered }) => document.documentElement.toggleAttribute("data-unanswered", unanswered.size > 0);

/** Notes a message, a change under its model; returns the callbacks that hear of its answer, and call `then`. */
function awaited(channel, key, then = () => {}) {
  const mine = Symbol("a message");
  const first = channel.unanswered.size === 0;
  channel.unanswered.set(key, mine);
  if (first) countSilence(channel);
  showWaiting(channel);
  const status = ({ content }) => {
    if (content.execution_state !== "idle") return;
    if (channel.unanswered.get(key) === mine) channel.unanswered.delete(key);
    countSilence(channel);
    // What was shown as stale stays so until all is answered, or it would blink with each answer.
    setSilence(channel, channel.unanswered.size ? Math.min(channel.silence, 1) : 0);
    showWaiting(channel);
    if (!changing(channel)) release(channel);
    then();
  };
  return { iopub: { status } };
}

const changing = ({ unanswered }) => [...unanswered.keys()].some((key) => typeof key !== "symbol");

/** Sends what a model was set to. What is merged into a later change is not answered; that one is. */
const sendChange = (model) => model.save_changes(awaited(channelOf(model), model));

/** Calls back as soon as every change is answered. */
function afterChanges(model, go) {
  const channel = channelOf(model);
  if (changing(channel) && channel.silence < SILENCES.length) channel.waiting.push(go);
  else go();
}

/** Tells the kernel what a person did; `then` is called when it has answered. */
const sendAct = (model, content, buffers, then) => (
  model.send(content, awaited(channelOf(model), Symbol("an act"), then), buffers));

/** Tells the kernel of a button that was pressed, after the changes before it. */
const press = (model, content) => afterChanges(model, () => sendAct(model, content));
