// Before anything is painted: the theme that was chosen here, else the system's.
"use strict";
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is forbidden: the system's theme it is.
  }
})();
