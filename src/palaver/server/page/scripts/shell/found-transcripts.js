/**
 * Transcripts of other programs on the server's machine. The server lists them by name, size and
 * date, and reads one when the reader has chosen it here.
 *
 * @typedef {import("../core/protocol.js").GetTranscripts} Found
 * @typedef {Found["transcripts"][number]} Transcript
 * @typedef {import("../core/protocol.js").PostTranscripts["conversations"][number]} Brought
 */

import { api } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { registerCommand } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { ago, count, t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { dialog } from "./dialog.js";
import { chooseFiles } from "./import-files.js";
import { openMenu } from "./menu.js";
import { attempt, notify } from "./toast.js";

/** How many are brought in with one request, so that the progress is seen. */
const AT_ONCE = 5;
/** How many can be chosen one by one: the latest. */
const LISTED = 300;

/** What is there; null where the server does not look. @returns {Promise<Found | null>} */
export async function find() {
  if (!get().info?.discovers) return null;
  return api.get("transcripts").catch(() => null);
}

/** Those that the store does not have. @param {readonly Transcript[]} transcripts */
export function fresh(transcripts) {
  return transcripts.filter(({ imported }) => !imported);
}

/**
 * How many there are of each program, and how large they are.
 *
 * @param {readonly Transcript[]} transcripts
 * @param {Found["programs"]} programs
 * @returns {string}
 */
export function describe(transcripts, programs) {
  return byProgram(transcripts, programs).map(([program, mine]) => `${programs[program]}: ${t("home.files", { n: mine.length })}, ${sizeOf(mine)}`).join(" · ");
}

/**
 * The transcripts of each program, in the order of the programs.
 *
 * @param {readonly Transcript[]} transcripts
 * @param {Found["programs"]} programs
 * @returns {[string, Transcript[]][]}
 */
function byProgram(transcripts, programs) {
  const each = Map.groupBy(transcripts, ({ program }) => program);
  const names = Object.keys(programs);
  return [...each].sort(([a], [b]) => names.indexOf(a) - names.indexOf(b));
}

/** @param {readonly Transcript[]} transcripts */
function sizeOf(transcripts) {
  return bytes(transcripts.reduce((sum, { size }) => sum + size, 0));
}

/** @param {number} size */
function bytes(size) {
  const unit = size < 1e6 ? "kB" : size < 1e9 ? "MB" : "GB";
  const amount = size / { kB: 1e3, MB: 1e6, GB: 1e9 }[unit];
  return `${count(Number(amount.toFixed(amount < 10 ? 1 : 0)))} ${unit}`;
}

registerCommand("import.found", { label: "home.open", group: "keys.page", icon: "search", writes: true, when: () => Boolean(get().info?.discovers), run: openFound });

/** Import: a file, or what is on the server's machine. @param {HTMLElement} anchor */
export function chooseImport(anchor) {
  if (!get().info?.discovers) return chooseFiles();
  return openMenu(anchor, [
    { label: t("import"), icon: "file", run: chooseFiles },
    { label: t("home.open"), icon: "search", run: openFound },
  ]);
}

/** Show what is there, and bring in what the reader chooses. */
export async function openFound() {
  /** @type {Found | undefined} */
  const found = await attempt(() => api.get("transcripts"));
  if (!found) return;
  const chosen = new Set(fresh(found.transcripts).map(({ key }) => key));
  const asked = dialog();
  const run = /** @type {HTMLButtonElement} */ (h("button", { type: "button", class: "primary", autofocus: true, onclick: () => bring(found, chosen, asked, run, said) }));
  const said = h("p", { class: "grow muted small", role: "status" });
  const label = () => {
    const all = found.transcripts.filter(({ key }) => chosen.has(key));
    run.disabled = !all.length;
    fill(run, t("home.run", { n: all.length, size: sizeOf(all) }));
  };
  label();
  asked.ask(
    { title: t("home.title"), wide: true },
    h("p", { class: "dialog-body muted" }, t("home.unread"), " ", t("home.kept")),
    h("div", { class: "dialog-body found" }, found.transcripts.length ? programs(found, chosen, label) : h("p", null, t("home.nothing")), found.problems.map((problem) => h("p", { class: "small danger-text" }, visible(problem)))),
    h("div", { class: "dialog-foot" }, said, h("button", { type: "button", onclick: () => asked.close() }, t("cancel")), run),
  );
}

/**
 * A line for each program, to choose all of it; below each its transcripts, to choose them one by one.
 *
 * @param {Found} found
 * @param {Set<string>} chosen
 * @param {() => void} changed
 */
function programs(found, chosen, changed) {
  return byProgram(found.transcripts, found.programs).map(([program, mine]) => {
    const all = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    const lines = mine.slice(0, LISTED).map((one) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: chosen.has(one.key) }));
      box.onchange = () => {
        box.checked ? chosen.add(one.key) : chosen.delete(one.key);
        draw();
      };
      return { box, one };
    });
    const draw = () => {
      const some = mine.filter(({ key }) => chosen.has(key)).length;
      all.checked = some === mine.length;
      all.indeterminate = some > 0 && some < mine.length;
      lines.forEach(({ box, one }) => (box.checked = chosen.has(one.key)));
      changed();
    };
    all.onchange = () => {
      mine.forEach(({ key }) => (all.checked ? chosen.add(key) : chosen.delete(key)));
      draw();
    };
    draw();
    const stored = mine.length - fresh(mine).length;
    const facts = [t("home.files", { n: mine.length }), sizeOf(mine), t("home.latest", { when: ago(mine[0].modified) }), stored ? t("home.stored", { n: stored }) : ""];
    return h(
      "section",
      { class: "found-program" },
      h("label", { class: "row" }, all, h("strong", null, found.programs[program]), h("span", { class: "muted small" }, facts.filter(Boolean).join(" · "))),
      h(
        "details",
        { class: "fold" },
        h("summary", null, icon("right"), t("home.single")),
        h("ul", null, lines.map(({ box, one }) => h("li", null, h("label", { class: "row" }, box, h("span", { class: "clip grow mono tiny", title: one.name }, visible(one.name)), h("span", { class: "muted tiny" }, one.imported ? t("home.stored.one") : bytes(one.size)), h("time", { class: "muted tiny" }, ago(one.modified)))))),
        mine.length > LISTED ? h("p", { class: "muted tiny" }, t("home.rest", { n: mine.length - LISTED })) : null,
      ),
    );
  });
}

/**
 * Bring in what was chosen, a few at a time; closing the dialog stops before the next.
 *
 * @param {Found} found
 * @param {Set<string>} chosen
 * @param {import("./dialog.js").Dialog} asked
 * @param {HTMLButtonElement} button
 * @param {HTMLElement} said
 */
async function bring(found, chosen, asked, button, said) {
  // the latest comes last: what was imported last is on top of the list
  const keys = found.transcripts.map(({ key }) => key).filter((key) => chosen.has(key)).reverse();
  /** @type {Brought[]} */
  const results = [];
  button.disabled = true;
  let done = 0;
  while (done < keys.length && asked.isConnected) {
    said.textContent = t("home.progress", { n: done, all: keys.length });
    const some = keys.slice(done, done + AT_ONCE);
    /** @type {import("../core/protocol.js").PostTranscripts | undefined} */
    const answer = await attempt(() => api.post("transcripts", { keys: some }));
    if (!answer) break;
    results.push(...answer.conversations);
    done += some.length;
    document.dispatchEvent(new CustomEvent("pv-conversations"));
  }
  asked.close();
  announce(results);
}

/** @param {Brought[]} results */
function announce(results) {
  const changed = results.filter(({ added, id }) => added && id);
  const failures = results.filter(({ action }) => action === "failed" || action === "kept");
  const lost = results.reduce((sum, one) => sum + one.lost, 0);
  const detail = failures.length ? t("home.failed", { n: failures.length, first: failures[0].detail }) : lost ? t("home.lost", { n: lost }) : undefined;
  // an agent on the side of a session has its id and a colon
  const latest = changed.findLast(({ id }) => !id?.includes(":")) ?? changed.at(-1);
  if (latest) go({ id: latest.id, view: "history", at: null });
  if (results.length) notify({ kind: failures.length ? "error" : undefined, text: changed.length ? t("home.done", { n: changed.length }) : t("import.known"), detail });
}
