/** The views of the panel: loading one registers it. */

import { registerView } from "./views.js";
import "./views/diff.js";
import "./views/editing.js";
import "./views/explain.js";
import "./views/history.js";
import "./views/request.js";
import "./views/team.js";
import "./views/tokens.js";

registerView("history", { label: "views.tab.history", element: "pv-history", icon: "history", keys: "g h" });
registerView("tokens", { label: "views.tab.tokens", element: "pv-tokens", icon: "tokens", keys: "g t" });
registerView("request", { label: "views.tab.request", element: "pv-request", icon: "request", keys: "g r" });
registerView("team", { label: "views.tab.team", element: "pv-team", icon: "team", keys: "g m" });
registerView("explain", { label: "views.tab.explain", element: "pv-explain", icon: "explain", keys: "g e" });
registerView("diff", { label: "views.tab.diff", element: "pv-diff", icon: "diff", hidden: true });
