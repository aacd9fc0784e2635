/* Messages to the kernel in the order of a person's acts, and how long the kernel has been silent.

   The widget protocol keeps one change of a widget in flight, and merges later changes into the next. Buttons send
   messages of their own, so a button that is pressed right after a change would overtake it: a race would start
   with the old number of steps. Buttons therefore wait until the kernel has answered every change.

   The page shows the truth only as long as its kernel answers. Where it does not, the status lines say so. */

const SILENCES = [300, 5000]; // milliseconds without an answer: the page is then stale; Python then does not answer
const BUSY_ALLOWANCE = 50; // milliseconds of them in which a page that was busy handles answers that have arrived
const channels = new WeakMap(); // the widget manager, of which each kernel has one, to the messages of its kernel

function channelOf({ widget_manager: manager }) {
  if (!channels.has(manager)) {
    // `unanswered` maps a model to its last change, and a symbol to any other act. `waiting` holds the buttons to send.
    // `silence` is the number of SILENCES that have passed.
    channels.set(manager, { unanswered: new Map(), waiting: [], silence: 0, timers: [], listeners: new Set() });
  }
  return channels.get(manager);
}

function setSilence(channel, silence) {
  if (channel.silence === silence) return;
  channel.silence = silence;
  channel.listeners.forEach((paint) => paint());
}

/** Starts to count the silence anew: at the first message, and at each answer. */
function countSilence(channel) {
  channel.timers.splice(0).forEach(clearTimeout);
  if (!channel.unanswered.size) return;
  channel.timers = SILENCES.map((time, index) => setTimeout(() => {
    // A second timer lets the page handle the answers first that arrived while it was busy.
    channel.timers[index] = setTimeout(() => {
      setSilence(channel, Math.max(channel.silence, index + 1));
      if (channel.silence === SILENCES.length) sendWaiting(channel); // a kernel that has ended never answers
    }, BUSY_ALLOWANCE);
  }, time - BUSY_ALLOWANCE));
}

/** Sends the buttons that wait. */
const sendWaiting = (channel) => channel.waiting.splice(0).forEach((send) => send());

/** Marks the document while a message is unanswered, for tests and other programs that watch the page. */
const markUnanswered = ({ unanswered }) => (
  document.documentElement.toggleAttribute("data-unanswered", unanswered.size > 0));

/** Registers a message under its model or symbol. Returns the message's callbacks; its answer calls `onAnswer`. */
function register(channel, key, onAnswer = () => {}) {
  const message = Symbol("a message");
  const isFirst = channel.unanswered.size === 0;
  channel.unanswered.set(key, message);
  if (isFirst) countSilence(channel);
  markUnanswered(channel);
  const status = ({ content }) => {
    if (content.execution_state !== "idle") return;
    if (channel.unanswered.get(key) === message) channel.unanswered.delete(key);
    countSilence(channel);
    // A page that is stale stays so until every message is answered, or it would blink with each answer.
    setSilence(channel, channel.unanswered.size ? Math.min(channel.silence, 1) : 0);
    markUnanswered(channel);
    if (!hasChanges(channel)) sendWaiting(channel);
    onAnswer();
  };
  return { iopub: { status } };
}

/** Whether a change is unanswered; acts have symbols as keys. */
const hasChanges = ({ unanswered }) => [...unanswered.keys()].some((key) => typeof key !== "symbol");

/** Sets and sends traits. The kernel answers only the last of several changes that the protocol merges. */
function sendChange(model, changes) {
  model.set(changes);
  model.save_changes(register(channelOf(model), model));
}

/** Calls back as soon as every change is answered. */
function afterChanges(model, callback) {
  const channel = channelOf(model);
  if (hasChanges(channel) && channel.silence < SILENCES.length) channel.waiting.push(callback);
  else callback();
}

/** Sends an act of a person as a message; its answer calls `onAnswer`. */
const sendAct = (model, content, buffers, onAnswer) => (
  model.send(content, register(channelOf(model), Symbol("an act"), onAnswer), buffers));

/** Sends a pressed button after the changes before it. */
const press = (model, content) => afterChanges(model, () => sendAct(model, content));
