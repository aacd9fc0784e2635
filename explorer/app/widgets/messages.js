/* Messages to the kernel, in the order in which a person caused them.

   The widget protocol keeps one message of a widget in flight, and merges what changes meanwhile. A button has its own
   way, so pressed right after a change it would act on what was chosen before: a race with the old number of steps, a
   pin of the design before the last. Buttons therefore wait until the kernel has answered every change. */

const LONGEST = 5000; // milliseconds: a kernel that has ended answers none
const unanswered = new Map(); // model to its last change
const waiting = [];
let timeout = null;

/** The page says whether it waits: whoever looks at it can tell. */
const showWaiting = () => document.documentElement.toggleAttribute("data-unanswered", unanswered.size > 0);

function settle() {
  clearTimeout(timeout);
  timeout = null;
  unanswered.clear();
  showWaiting();
  waiting.splice(0).forEach((go) => go());
}

/** Sends what a model was set to. What is merged into a later change is not answered; that one is. */
function sendChange(model) {
  const mine = Symbol("a change");
  unanswered.set(model, mine);
  showWaiting();
  const status = ({ content }) => {
    if (content.execution_state !== "idle" || unanswered.get(model) !== mine) return;
    unanswered.delete(model);
    if (unanswered.size === 0) settle();
  };
  model.save_changes({ iopub: { status } });
}

/** Calls back as soon as every change is answered. */
function afterChanges(go) {
  if (unanswered.size === 0) {
    go();
    return;
  }
  timeout ??= setTimeout(settle, LONGEST);
  waiting.push(go);
}

/** Tells the kernel of a button that was pressed, after the changes before it. */
const press = (model, content) => afterChanges(() => model.send(content));
