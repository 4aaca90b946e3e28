// All the script there is: pages work without it. It keeps figures moving, shows confirmations in a
// dialog, and knows a few keys.
"use strict";

// -- figures that move ------------------------------------------------------------------------
const EVERY_MS = 2000, SLOWEST_MS = 30000;
let pause_ms = EVERY_MS, timer = 0;

function parts() {
  return document.querySelectorAll("[data-live][id]");
}

function isBusy(part) {
  const active = document.activeElement;
  const typing = active && part.contains(active) && active.matches("input, select, textarea");
  const marked = part.querySelector("input[type=checkbox]:checked");
  const chosen = window.getSelection();
  const selecting = chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  return typing || marked || selecting;
}

function replace(page) {
  for (const part of parts()) {
    const fresh = page.getElementById(part.id);
    if (!fresh || isBusy(part) || fresh.innerHTML === part.innerHTML) continue;
    const active = document.activeElement;
    const kept = active && part.contains(active) ? active.getAttribute("href") : null;
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    if (kept) for (const link of part.querySelectorAll("a[href]")) {
      if (link.getAttribute("href") === kept) { link.focus({ preventScroll: true }); break; }
    }
  }
}

// The server sends the page again when it has changed. Where it does not, because too many pages
// are followed or something between does not let it through, the page asks by itself.
let source = null, mayListen = "EventSource" in window;

function listen() {
  timer = 0;
  if (document.hidden || !parts().length || source) return;
  if (!mayListen) { look(); return; }
  let wasOpen = false;
  source = new EventSource(location.href);
  source.onopen = () => { wasOpen = true; pause_ms = EVERY_MS; };
  source.onmessage = (event) => { show(event.data); tell("live"); };
  source.addEventListener("lost", () => tell("no answer, trying again"));
  source.addEventListener("over", () => { quiet(); tell("logged out, load the page again"); });
  source.onerror = () => {
    if (!wasOpen) mayListen = false;
    quiet();
    tell("no answer, trying again");
    pause_ms = Math.min(SLOWEST_MS, pause_ms * 2);
    later();
  };
}

function quiet() {
  if (source) source.close();
  source = null;
  clearTimeout(timer);
  timer = 0;
}

function show(text) {
  replace(new DOMParser().parseFromString(text, "text/html"));
}

async function look() {
  timer = 0;
  if (document.hidden || !parts().length) return;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") {  // to the login
      tell("logged out, load the page again");
      return;
    }
    if (answer.ok) {
      show(await answer.text());
      pause_ms = EVERY_MS;
    } else pause_ms = Math.min(SLOWEST_MS, pause_ms * 2);
    tell(answer.ok ? "live" : "no answer, trying again");
  } catch {
    pause_ms = Math.min(SLOWEST_MS, pause_ms * 2);
    tell("no answer, trying again");
  }
  later();
}

function tell(word) {
  for (const mark of document.querySelectorAll(".live")) {
    mark.classList.toggle("lost", word !== "live");
    if (mark.textContent !== word) mark.textContent = word;
  }
}

function later() {
  if (!timer && !document.hidden && parts().length) timer = setTimeout(listen, pause_ms);
}

document.addEventListener("visibilitychange", () => {
  quiet();
  if (!document.hidden) { pause_ms = EVERY_MS; look(); }
});

window.addEventListener("pagehide", quiet);
window.addEventListener("pageshow", (event) => { if (event.persisted) later(); });

// -- confirmations in a dialog ------------------------------------------------------------------
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-preview]") || !window.HTMLDialogElement) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  let text;
  try {
    const answer = await fetch(form.action, { method: "POST", body, redirect: "error" });
    text = await answer.text();
  } catch {
    form.removeAttribute("data-preview");
    form.submit();
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  const asked = page.querySelector("[data-dialog]") || page.querySelector("main");
  if (!asked) { location.reload(); return; }
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Confirm");
  dialog.append(document.importNode(asked, true));
  for (const leave of dialog.querySelectorAll("[data-leave]")) {
    leave.addEventListener("click", (click) => { click.preventDefault(); dialog.close(); });
  }
  dialog.addEventListener("close", () => { dialog.remove(); if (event.submitter) event.submitter.focus(); });
  document.body.append(dialog);
  dialog.showModal();
});

// -- boxes that mark all ------------------------------------------------------------------------
document.addEventListener("change", (event) => {
  const all = event.target;
  if (!all.matches || !all.matches("[data-all]")) return;
  for (const box of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
});

// -- keys ---------------------------------------------------------------------------------------
const PLACES = { o: "/", x: "/transactions", t: "/topics", g: "/groups", m: "/messages",
                 b: "/brokers", r: "/replicas", a: "/accounts", j: "/jobs" };
let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  if (isGoing) {
    isGoing = false;
    if (PLACES[event.key]) { event.preventDefault(); location.href = PLACES[event.key]; }
    return;
  }
  if (event.key === "g") { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); }
  else if (event.key === "/") {
    const box = document.querySelector("[data-search]");
    event.preventDefault();
    if (box) box.focus(); else location.href = "/messages";
  } else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("tbody th a, tbody td.row a")];
    const at = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    if (links.length) links[Math.max(0, Math.min(links.length - 1, at))].focus();
  } else if (event.key === "?") location.href = "/help";
});

const here = document.querySelector("nav [aria-current]");  // on a phone the row of pages is cut
if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 2;

listen();
