// Stores the latest results of this browser, on this device only.

import { decode } from "./share.js";

const KEY = "underload results";
const RESULTS_MAX = 20;

// Returns the stored results, newest first, each with its `link`; an empty list if storage is
// unavailable.
export function results() {
  let stored;
  try {
    stored = JSON.parse(localStorage.getItem(KEY));
  } catch { /* storage is disabled, or something else is in it */ }
  return (Array.isArray(stored) ? stored : []).slice(0, RESULTS_MAX).flatMap((link) => {
    try {
      const result = decode(link);
      return result ? [{ ...result, link }] : [];
    } catch {
      return [];
    }
  });
}

// Stores the links; returns whether that succeeded.
function store(links) {
  try {
    localStorage.setItem(KEY, JSON.stringify(links));
    return true;
  } catch {
    return false;
  }
}

// Stores a result, replacing the oldest if `RESULTS_MAX` are stored; returns whether that
// succeeded.
export function remember(link) {
  return store([link, ...results().map((it) => it.link)].slice(0, RESULTS_MAX));
}

export const forget = (link) => store(results().map((it) => it.link).filter((it) => it !== link));

export function forgetAll() {
  try {
    localStorage.removeItem(KEY);
  } catch { /* where storage is disabled, nothing is stored */ }
}
