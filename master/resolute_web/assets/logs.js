/* A log that is followed: lines are appended as they come, and the end stays in view unless the reader has gone back. */
(() => {
  "use strict";

  const MOST_LINES = 5000;
  const CONNECT_AGAIN_MS = 3000;
  const log = document.getElementById("log");
  const status = document.getElementById("following");
  if (!log) return;

  function part(tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function append(line) {
    const row = document.createElement("p");
    row.className = `level-${line.level || "none"}`;
    const time = part("time", line.at.slice(11, 19));
    time.dateTime = line.at;
    const link = document.createElement("a");
    link.href = `?at=${line.id}#line-${line.id}`;
    link.append(time);
    row.id = `line-${line.id}`;
    row.append(link);
    if (line.rank !== null) row.append(part("span", String(line.rank), "rank"));
    row.append(part("span", line.text));
    log.append(row);
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
  }

  function toTheEnd() { log.scrollTop = log.scrollHeight; }

  // A browser opens few connections to one host: a tab that nobody looks at leaves its own to the others, and goes on later.
  const address = new URL(log.dataset.follow, window.location.href);
  let source = null;
  let over = false;

  function follow() {
    const mine = source = new EventSource(address);
    source.addEventListener("open", () => { status.textContent = "following"; });
    source.addEventListener("error", () => {
      status.textContent = "reconnecting";
      // The browser gives up after an answer that is no stream, such as that of a master that is not ready yet.
      if (mine.readyState === EventSource.CLOSED) {
        setTimeout(() => { if (mine === source && !over && !document.hidden) follow(); }, CONNECT_AGAIN_MS);
      }
    });
    source.addEventListener("end", () => { over = true; source.close(); status.textContent = "complete: the trial is over"; });
    source.addEventListener("line", (event) => {
      const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 40;
      log.parentElement.querySelector(".empty")?.remove();
      append(JSON.parse(event.data));
      address.searchParams.set("after", event.lastEventId);
      if (follows) toTheEnd();
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (over) return;
    source.close();
    if (document.hidden) status.textContent = "paused while the tab is hidden";
    else follow();
  });
  follow();
  const here = document.getElementById(log.dataset.at);
  if (here) log.scrollTop = here.offsetTop - log.clientHeight / 3;
  else toTheEnd();
})();
