// Keeps the page current: a message on the stream says that something has changed, then the state is
// fetched and merged into the page, so that focus, filter and open details stay.
"use strict";

const live = document.getElementById("live");
const filter = document.getElementById("filter");
const severity = document.getElementById("severity");
const shown = document.getElementById("shown");
const sources = new WeakMap(); // an element → its HTML as the server sent it
let behind = 0; // of this clock behind the server's, in ms

function remember(root) {
	for (const e of root.querySelectorAll("[data-part], [data-list] > *")) sources.set(e, e.outerHTML);
}

// mergeList makes the children of a list those of another, and keeps those that are the same.
function mergeList(list, fresh) {
	const old = new Map();
	for (const e of list.children) old.set(e.dataset.key, e);
	const wanted = [];
	for (const e of [...fresh.children]) {
		const before = old.get(e.dataset.key);
		if (before && sources.get(before) === sources.get(e)) {
			wanted.push(before);
			old.delete(e.dataset.key);
			continue;
		}
		if (before) {
			if (before.open) e.open = true;
			const focused = before.contains(document.activeElement) && document.activeElement.localName;
			before.replaceWith(e);
			old.delete(e.dataset.key);
			if (focused) e.querySelector(focused)?.focus();
		}
		wanted.push(e);
	}
	for (const e of old.values()) e.remove();
	let at = list.firstElementChild;
	for (const e of wanted) {
		if (e === at) at = at.nextElementSibling;
		else list.insertBefore(e, at);
	}
}

function merge(html) {
	const fresh = new DOMParser().parseFromString(html, "text/html");
	remember(fresh);
	for (const e of fresh.querySelectorAll("[data-part]")) {
		const old = document.getElementById(e.id);
		if (!old || sources.get(old) === sources.get(e)) continue;
		sources.set(old, sources.get(e));
		old.replaceChildren(...e.childNodes);
	}
	for (const e of fresh.querySelectorAll("[data-list]")) {
		const old = document.getElementById(e.id);
		if (old) mergeList(old, e);
	}
	ages();
	applyFilter();
}

function age(ms) {
	const s = Math.max(0, Math.floor(ms / 1000));
	if (s < 60) return s + " s ago";
	if (s < 3600) return Math.floor(s / 60) + " min ago";
	if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min ago";
	return Math.floor(s / 86400) + " d ago";
}

function ages() {
	const now = Date.now() + behind;
	for (const t of document.querySelectorAll("time[data-age]")) {
		let e = t.nextElementSibling;
		if (!e || !e.classList.contains("age")) {
			e = document.createElement("span");
			e.className = "age";
			t.after(e);
		}
		const text = age(now - Date.parse(t.dateTime));
		if (e.textContent !== text) e.textContent = text;
	}
}

function applyFilter() {
	const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
	const least = Number(severity.value);
	let all = 0, left = 0;
	for (const row of document.getElementById(filter.dataset.rows).children) {
		const text = row.textContent.toLowerCase();
		row.hidden = Number(row.dataset.severity) < least || !words.every(w => text.includes(w));
		all++;
		if (!row.hidden) left++;
	}
	const text = words.length || least ? left + " of " + all + " " + filter.dataset.noun : "";
	if (shown.textContent !== text) shown.textContent = text;
}

let fetching = false, again = false, tag = "";

async function refresh() {
	if (fetching) {
		again = true;
		return;
	}
	fetching = true;
	try {
		do {
			again = false;
			const answer = await fetch("state", {cache: "no-store", headers: tag ? {"If-None-Match": tag} : {}});
			const date = Date.parse(answer.headers.get("Date"));
			if (date && Math.abs(date - Date.now()) > 2000) behind = date - Date.now();
			if (answer.status !== 200) continue;
			const html = await answer.text();
			tag = answer.headers.get("ETag") || "";
			merge(html);
		} while (again);
	} catch {
		// The stream reports when the server is back.
	} finally {
		fetching = false;
	}
}

function show(word, text) {
	live.className = "live " + word;
	if (live.textContent !== text) live.textContent = text;
}

let stream = null, retry = 0;

function connect() {
	clearTimeout(retry);
	stream?.close();
	stream = new EventSource("events");
	stream.addEventListener("changed", () => {
		show("on", "live");
		refresh();
	});
	stream.onerror = () => {
		show("off", "reconnecting");
		if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again
		// Refused: the server ends, or too many clients are connected.
		clearTimeout(retry);
		retry = setTimeout(() => {
			refresh();
			connect();
		}, 3000);
	};
}

// Tabs out of view cost the server nothing.
document.addEventListener("visibilitychange", () => {
	if (!document.hidden) {
		connect();
		return;
	}
	clearTimeout(retry);
	stream?.close();
	show("off", "paused");
});

remember(document);
ages();
setInterval(ages, 1000);
filter.addEventListener("input", applyFilter);
severity.addEventListener("change", applyFilter);
applyFilter(); // a browser may restore what was typed
if (!document.hidden) connect();
