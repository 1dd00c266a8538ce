(() => {
  let ready = false; // after a moment, so that the second half of a double click cannot answer a pair nobody has read
  setTimeout(() => { ready = true; document.documentElement.dataset.open = ""; }, 300);

  document.addEventListener("submit", (event) => {
    if (!ready) event.preventDefault();
    ready = false;
  });

  addEventListener("pageshow", (event) => { if (event.persisted) ready = true; });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-reason]");
    if (!button) return;
    const field = document.getElementById("rationale");
    const lines = field.value.split("\n").filter((line) => line.trim());
    const others = lines.filter((line) => line !== button.dataset.reason);
    field.value = (others.length < lines.length ? others : [...lines, button.dataset.reason]).join("\n");
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
