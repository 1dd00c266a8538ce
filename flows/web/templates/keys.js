"use strict";
(() => {
  const help = document.getElementById("help");
  const find = (key) => document.querySelector(`[data-key="${CSS.escape(key.toLowerCase())}"]`);
  const place = (event) => event.code.replace(/^(Key|Digit|Numpad)/, ""); // of a key that types other signs, such as Ы or &
  const typing = (node) => node.matches("textarea, select, input:not([type=hidden])");

  document.addEventListener("keydown", (event) => {
    if (!event.key || event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (typing(event.target)) {
      if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey && event.target.matches("textarea"))) {
        event.preventDefault();
        event.target.blur();
      }
      return;
    }
    const helping = "popover" in HTMLElement.prototype && help?.matches(":popover-open");
    const target = find(event.key) ?? (event.shiftKey || /^(\w|.{2,})$/.test(event.key) ? null : find(place(event)));
    if (!target || (helping && event.key !== "?")) return;
    event.preventDefault();
    if (typing(target)) target.focus();
    else target.click();
  });
})();
