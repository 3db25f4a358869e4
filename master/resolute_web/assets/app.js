/* What makes pages live. Without it they can be read, and forms work. */
(() => {
  "use strict";

  // ------------------------------------------------------------------------------------------------ times that pass

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function ago(seconds) {
    const size = Math.abs(seconds);
    if (size < 5) return "now";
    for (const [unit, name] of UNITS) {
      if (size >= unit) {
        const text = `${Math.floor(size / unit)} ${name}`;
        return seconds > 0 ? `${text} ago` : `in ${text}`;
      }
    }
    return "now";
  }

  function refreshTimes(root) {
    for (const element of root.querySelectorAll("time[data-ago]")) {
      const moment = new Date(element.dateTime);
      const text = ago((Date.now() - moment) / 1000);
      if (element.textContent !== text) element.textContent = text;
      if (!element.dataset.local) {
        element.dataset.local = "yes";
        element.title = `${moment.toLocaleString()} (${element.title})`;
      }
    }
  }

  // ------------------------------------------------------------------------------------- the stream, and when it is away

  const connection = document.getElementById("connection");

  function away(is) {
    if (!connection) return;
    connection.classList.toggle("away", is);
    connection.querySelector("span").textContent = is ? "Reconnecting" : "";
  }

  const live = document.getElementById("live");
  const CONNECT_AGAIN_MS = 3000;
  let streaming = false;

  document.addEventListener("htmx:sse:error", () => away(true));
  document.addEventListener("htmx:sse:after:connection", () => { streaming = true; away(false); });
  document.addEventListener("htmx:sse:close", () => { streaming = false; });

  // A stream that has begun is opened again by its extension. One that never began, for the page was read while the master went
  // away or was not ready yet, is tried again here.
  setInterval(() => {
    if (!live || streaming || document.hidden) return;
    away(true);
    htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live, swap: "none" }).catch(() => {});
  }, CONNECT_AGAIN_MS);

  // ------------------------------------------------------------------------------------------------------- questions

  function openQuestion(link) {
    fetch(link.href, { headers: { Accept: "text/html" }, credentials: "same-origin" })
      .then((response) => response.text())
      .then((text) => {
        const found = new DOMParser().parseFromString(text, "text/html").querySelector(".question");
        if (!found) { window.location = link.href; return; }
        const dialog = document.createElement("dialog");
        dialog.setAttribute("aria-labelledby", "question-title");
        dialog.append(document.importNode(found, true));
        dialog.querySelector("h1").id = "question-title";
        dialog.querySelector("[data-back]").addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
        dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
        document.body.append(dialog);
        dialog.showModal();
      })
      .catch(() => { window.location = link.href; });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-question]");
    if (link && !event.metaKey && !event.ctrlKey) {
      event.preventDefault();
      openQuestion(link);
    }
    if (event.target.closest("[aria-disabled='true']")) event.preventDefault();
  });

  // --------------------------------------------------------------------------------------------------------- filters

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-at-once]");
    if (form && !event.target.matches("input[type='search'], input[type='text']")) form.requestSubmit();
  });

  // An empty field is no filter: addresses stay short.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "get") return;
    for (const field of event.target.elements) {
      if (field.name && field.value === "" && field.type !== "submit") field.disabled = true;
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea, select")) {
      const field = document.querySelector("input[type='search']");
      if (field) { event.preventDefault(); field.focus(); }
    }
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
    }
  });

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });

  // ------------------------------------------------------------------------------------------------------- selection

  // Boxes of one name make a selection; what is counted of it says how many there are.
  function selectionChanged() {
    for (const counted of document.querySelectorAll("[data-count]")) {
      const boxes = [...document.querySelectorAll(`input[type='checkbox'][name='${counted.dataset.count}']`)];
      const chosen = boxes.filter((box) => box.checked).length;
      counted.textContent = chosen ? `${chosen} selected` : counted.dataset.none || "none selected";
      counted.closest("[data-needs-selection]")?.classList.toggle("nothing", chosen === 0);
    }
  }

  document.addEventListener("change", (event) => {
    const name = event.target.dataset.every;
    if (name) {
      for (const box of document.querySelectorAll(`input[type='checkbox'][name='${name}']`)) box.checked = event.target.checked;
    }
    if (event.target.matches("input[type='checkbox']")) selectionChanged();
  });

  // ------------------------------------------------------------------------------------------------------------ start

  document.addEventListener("htmx:after:swap", () => { refreshTimes(document); selectionChanged(); });
  setInterval(() => refreshTimes(document), 5000);
  refreshTimes(document);
  selectionChanged();
})();
