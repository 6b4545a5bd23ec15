// The latest results of this browser, stored on this device alone.

import { decode } from "./share.js";

const KEY = "underload results";
const RESULTS_MAX = 20;

// The stored results, the newest first, each with its `link`; empty if this browser stores nothing.
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

// Whether the links were stored.
function store(links) {
  try {
    localStorage.setItem(KEY, JSON.stringify(links));
    return true;
  } catch {
    return false;
  }
}

// Stores a result in place of the oldest one if there are `RESULTS_MAX`; returns whether it did.
export function remember(link) {
  return store([link, ...results().map((it) => it.link)].slice(0, RESULTS_MAX));
}

export const forget = (link) => store(results().map((it) => it.link).filter((it) => it !== link));

export function forgetAll() {
  try {
    localStorage.removeItem(KEY);
  } catch { /* where storage is disabled, nothing is stored */ }
}
