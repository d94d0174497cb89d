// Keeps the page current: fetches it again and swaps the content, leaving what the reader is doing alone.
"use strict";
(() => {
  const every = 5000;
  const live = document.getElementById("live");

  function isBusy() {
    const active = document.activeElement;
    return document.hidden || (active && active.matches("input, button")) || !getSelection().isCollapsed;
  }

  function adopt(text) {
    const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const here = document.querySelector("main");
    if (!next || !here) return;
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    here.replaceWith(document.adoptNode(next));
    live.querySelector(".words").textContent = "as of " + next.dataset.asOf;
    live.classList.remove("lost");
    if (focused) {
      const again = [...document.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    if (isBusy()) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.ok) adopt(await answer.text());
    } catch {
      live.classList.add("lost");
      live.querySelector(".words").textContent = "the collector does not answer";
    }
  }

  live.classList.add("on");
  setInterval(refresh, every);
})();
