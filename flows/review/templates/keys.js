"use strict";
(() => {
  const page = document.documentElement;
  const rationale = document.getElementById("rationale");
  const help = document.getElementById("help");
  let open = false; // after a moment, so that the second half of a double click cannot answer a pair nobody has read
  setTimeout(() => { open = true; page.dataset.open = ""; }, 300);

  document.addEventListener("submit", (event) => {
    if (!open) event.preventDefault();
    open = false;
  });

  addEventListener("pageshow", (event) => { if (event.persisted) open = true; });

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target === rationale) {
      if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) {
        event.preventDefault();
        rationale.blur();
      }
      return;
    }
    const key = event.key.toLowerCase();
    if (help?.matches(":popover-open") && key !== "?") return;
    const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!target) return;
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
      location.href = link.href;
    }
  });
})();
