/** The views of the panel and the actions on messages. A view is loaded when it is first opened. */

import { registerView } from "./views.js";
import "./views/editing.js";

registerView("history", { label: "views.tab.history", element: "pv-history", load: () => import("./views/history.js"), icon: "history", keys: "g h" });
registerView("tokens", { label: "views.tab.tokens", element: "pv-tokens", load: () => import("./views/tokens.js"), icon: "tokens", keys: "g t" });
registerView("request", { label: "views.tab.request", element: "pv-request", load: () => import("./views/request.js"), icon: "request", keys: "g r" });
registerView("team", { label: "views.tab.team", element: "pv-team", load: () => import("./views/team.js"), icon: "team", keys: "g m" });
registerView("explain", { label: "views.tab.explain", element: "pv-explain", load: () => import("./views/explain.js"), icon: "explain", keys: "g e" });
registerView("diff", { label: "views.tab.diff", element: "pv-diff", load: () => import("./views/diff.js"), icon: "diff", hidden: true });
