"use strict";
(() => {
  const page = document.documentElement;
  const rationale = document.getElementById("rationale");
  const help = document.getElementById("help");
  let ready = false; // after a moment, so that the second half of a double click cannot answer a pair nobody has read
  setTimeout(() => { ready = true; page.dataset.open = ""; }, 300);

  document.addEventListener("submit", (event) => {
    if (!ready) event.preventDefault();
    ready = false;
  });

  addEventListener("pageshow", (event) => { if (event.persisted) ready = true; });

  const find = (key) => document.querySelector(`[data-key="${CSS.escape(key.toLowerCase())}"]`);
  const place = (event) => event.code.replace(/^(Key|Digit|Numpad)/, ""); // of a key that types other signs, such as Ы or &

  document.addEventListener("keydown", (event) => {
    if (!event.key || event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target === rationale) {
      if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) {
        event.preventDefault();
        rationale.blur();
      }
      return;
    }
    const helping = "popover" in HTMLElement.prototype && help?.matches(":popover-open");
    const target = find(event.key) ?? (event.shiftKey || /^(\w|.{2,})$/.test(event.key) ? null : find(place(event)));
    if (!target || (helping && event.key !== "?")) return;
    event.preventDefault();
    if (target === rationale) rationale.focus();
    else target.click();
  });

  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a#around");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    try {
      const answer = await fetch(link.href);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("passage");
      const shown = document.getElementById("passage");
      if (fresh.dataset.pair !== shown.dataset.pair) throw new Error("answered elsewhere"); // the form names the old one
      const before = document.getElementById("chunk").getBoundingClientRect().top;
      const focused = document.activeElement === link;
      shown.replaceWith(fresh);
      scrollBy(0, document.getElementById("chunk").getBoundingClientRect().top - before);
      if (focused) document.getElementById("around").focus({ preventScroll: true });
    } catch {
      if (ready) location.href = link.href;
    }
  });
})();
