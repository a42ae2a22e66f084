/** The names of the server's events. Written by `python -m tools.protocol`. */

/** @type {import("./protocol.js").Events} */
export const EVENTS = Object.freeze([
  "message.added",
  "history.edited",
  "history.rolled_back",
  "tool.pending",
  "tool.running",
  "tool.completed",
  "tool.error",
  "usage.updated",
  "cache.updated",
  "tokens.exceeded",
  "compaction.done",
  "team_task.changed",
  "message.erased",
  "conversation.changed",
  "conversation.deleted",
  "step.delta",
  "step.ended",
  "step.started",
  "team.turn",
  "tool.progress",
]);
