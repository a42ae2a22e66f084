/**
 * Registers the views of the panel and the actions on messages. The module of a view is loaded when
 * the view is first opened.
 */

import "./edit-actions.js";
import { registerView } from "../core/registry.js";

registerView("history", { label: "views.tab.history", element: "pv-history", load: () => import("./history.js"), icon: "history", keys: "g h" });
registerView("tokens", { label: "views.tab.tokens", element: "pv-tokens", load: () => import("./tokens.js"), icon: "tokens", keys: "g t" });
registerView("run", { label: "views.tab.run", element: "pv-run", load: () => import("./run.js"), icon: "run", keys: "g u" });
registerView("request", { label: "views.tab.request", element: "pv-request", load: () => import("./request.js"), icon: "request", keys: "g r" });
registerView("team", { label: "views.tab.team", element: "pv-team", load: () => import("./team.js"), icon: "team", keys: "g m" });
registerView("explain", { label: "views.tab.explain", element: "pv-explain", load: () => import("./explain.js"), icon: "explain", keys: "g e" });
registerView("diff", { label: "views.tab.diff", element: "pv-diff", load: () => import("./diff.js"), icon: "diff", hidden: true });
