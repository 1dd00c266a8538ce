(() => {
  const items = () => [...document.querySelectorAll(".item")].filter((item) => item.checkVisibility?.() ?? true);
  const main = (item) => item.querySelector("a.to, .where a, a, summary");
  const at = () => items().findIndex((item) => item.contains(document.activeElement));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const all = items();
    if (event.key === "j" || event.key === "k") {
      const to = all[Math.min(Math.max(at() + (event.key === "j" ? 1 : -1), 0), all.length - 1)];
      if (!to) return;
      event.preventDefault();
      main(to)?.focus({ preventScroll: true });
      to.scrollIntoView({ block: "nearest" });
    } else if (event.key === "x" && all[at()]) {
      event.preventDefault();
      const texts = [...all[at()].querySelectorAll("details")];
      const open = texts.some((one) => !one.open);
      for (const one of texts) one.open = open;
    }
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches(".controls select")) event.target.form.requestSubmit();
  });

  document.documentElement.dataset.open = "";
})();
