// Keeps the page current: fetches it again and swaps the content, leaving what the reader is doing alone. Keys and theme.
"use strict";
(() => {
  const every = 5000;
  const live = document.getElementById("live");
  const theme = document.getElementById("theme");
  const root = document.documentElement;

  function isBusy() {
    const active = document.activeElement;
    const looking = document.querySelector(".uplot:hover, main[data-zoomed]");
    return document.hidden || looking || (active && active.closest("form")) || !getSelection().isCollapsed;
  }

  function adopt(text) {
    const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const here = document.querySelector("main");
    if (!next || !here) return;
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    here.replaceWith(document.adoptNode(next));
    live.querySelector(".words").textContent = "as of " + next.dataset.asOf;
    live.classList.remove("lost");
    document.dispatchEvent(new Event("replaywatch:shown"));
    if (focused) {
      const again = [...document.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    if (isBusy()) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.ok && !isBusy()) adopt(await answer.text());
    } catch {
      live.classList.add("lost");
      live.querySelector(".words").textContent = "the collector does not answer";
    }
  }

  function isDark() {
    return (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  }

  function nameTheme() {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  }

  // What is painted and not styled has to be painted again.
  function showTheme() {
    nameTheme();
    document.dispatchEvent(new Event("replaywatch:shown"));
  }

  function changeTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // Storage is forbidden: it holds for this page only.
    }
  }

  function step(forward) {
    const stops = [...document.querySelectorAll("main .cover, main .name")];
    if (!stops.length) return;
    const at = stops.indexOf(document.activeElement);
    const next = at < 0 ? (forward ? 0 : stops.length - 1) : at + (forward ? 1 : -1);
    if (stops[next]) stops[next].focus();
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest && event.target.closest("input, textarea, select");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (event.key === "/") {
      const search = document.getElementById("q");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j");
    }
  }

  live.classList.add("on");
  theme.hidden = false;
  nameTheme();
  theme.addEventListener("click", changeTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  document.addEventListener("keydown", onKey);
  setInterval(refresh, every);
})();
