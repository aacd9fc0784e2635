/* The contenders of the next race: a list to add from, and below it chips with a name, a button that is their recipe, and
   one that removes them. A name that was sent is painted again with every answer (`turn`): the kernel decides. */

function chip(model, number) {
  const send = (verb, ...more) => press(model, [verb, number, ...more]);
  const mark = swatch();
  const name = nameEntry((text) => send("name", text));
  const edit = button("", "ex-link ex-pin-about", () => send("edit"));
  const remove = button("Remove", "ex-link", () => send("remove"));
  const root = make("li", { class: "ex-pin ex-contender", "data-contender": number }, mark.svg, name.input, edit, remove);

  function paint(entry) {
    mark.paint(entry);
    name.paint(entry.name, `Name of the contender ${entry.name}`, model.get("longest"));
    edit.textContent = entry.about; // one line; what does not fit is in the tooltip
    edit.title = `${entry.about}: shows this recipe in the controls below`;
    edit.setAttribute("aria-pressed", String(entry.selected));
    edit.setAttribute("aria-label", `Recipe of ${entry.name}: ${entry.about}`);
    remove.setAttribute("aria-label", `Remove ${entry.name}`);
    root.classList.toggle("ex-selected", entry.selected);
  }
  return { root, paint };
}

export default {
  render({ model, el }) {
    el.classList.add("ex-contenders");
    el.setAttribute("role", "group");
    const heading = make("h3", { class: "ex-side-heading" });
    const list = make("ul", { class: "ex-pin-list", "aria-label": "Contenders" });
    const select = make("select", { "aria-label": "Design to add", ...OWN_KEYS });
    const add = button("Add", "ex-button", () => press(model, ["add", select.value]));
    add.setAttribute("aria-label", "Add the chosen design as a contender");
    const said = make("p", { class: "ex-pin-said", role: "status" });
    const adding = make("div", { class: "ex-control ex-add" }, select, add);
    el.append(heading, adding, list, said); // what is added comes below: the button stays under the pointer that presses it

    const fill = () => {
      const before = select.value;
      const groups = new Map();
      for (const { group, value, label } of model.get("choices")) {
        if (!groups.has(group)) groups.set(group, make("optgroup", { label: group }));
        groups.get(group).append(make("option", { value }, label));
      }
      select.replaceChildren(...groups.values());
      if ([...select.options].some((option) => option.value === before)) select.value = before;
    };
    const show = chipList(list, (number) => chip(model, number), add);
    const paint = () => {
      heading.textContent = model.get("heading");
      el.setAttribute("aria-label", model.get("heading"));
      said.textContent = model.get("said");
      show(model.get("entries"));
    };
    const events = "change:entries change:said change:heading change:turn";
    model.on(events, paint);
    model.on("change:choices", fill);
    fill();
    paint();
    return () => {
      model.off(events, paint);
      model.off("change:choices", fill);
    };
  },
};
