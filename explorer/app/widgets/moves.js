/* Moves of controls, and what must not overtake them.

   The widget protocol keeps one message of a widget in flight, and merges what changes meanwhile. A button has its own
   way, so pressed right after a move it would act on what was chosen before: a race with the old number of steps, a
   pin of the design before the last. Buttons therefore wait until the kernel has answered every move. */

const LONGEST = 5000; // milliseconds: a kernel that has ended answers none

// Every widget has its own copy of this script; the moves are those of the page.
const moves = (globalThis[Symbol.for("transformer-signal-explorer/moves")] ??= { open: new Map(), waiting: [], late: null });

function settle() {
  clearTimeout(moves.late);
  moves.late = null;
  moves.open.clear();
  moves.waiting.splice(0).forEach((go) => go());
}

/** Sends what a model was set to. What is merged into a later move is not answered; that one is. */
function move(model) {
  const mine = Symbol("a move");
  moves.open.set(model, mine);
  const status = ({ content }) => {
    if (content.execution_state !== "idle" || moves.open.get(model) !== mine) return;
    moves.open.delete(model);
    if (moves.open.size === 0) settle();
  };
  model.save_changes({ iopub: { status } });
}

/** Calls back as soon as no move is open. */
function afterMoves(go) {
  if (moves.open.size === 0) {
    go();
    return;
  }
  moves.late ??= setTimeout(settle, LONGEST);
  moves.waiting.push(go);
}

/** Tells the kernel of a button that was pressed, after the moves before it. */
const press = (model, content) => afterMoves(() => model.send(content));
