// The page's own elements by their tags, its own events by their names, and what an element may hold.

export type Child = Node | string | number | null | undefined | false | readonly Child[];

declare global {
  interface DocumentEventMap {
    "pv-jump": CustomEvent<{ index: number }>;
    "pv-conversations": CustomEvent<null>;
    "pv-deferred": CustomEvent<null>;
  }

  interface HTMLElementEventMap {
    "pv-priced": CustomEvent<import("./panel/price.js").Priced | null>;
    "pv-drawn": CustomEvent<null>;
    "pv-team": CustomEvent<null>;
    "pv-entered": CustomEvent<null>;
  }

  interface HTMLElementTagNameMap {
    "pv-app": import("./app.js").App;
    "pv-attachments": import("./thread/attachments.js").Attachments;
    "pv-composer": import("./thread/composer.js").Composer;
    "pv-dialog": import("./shell/dialog.js").Dialog;
    "pv-diff": import("./panel/diff.js").DiffView;
    "pv-draft": import("./thread/draft.js").Draft;
    "pv-editor": import("./panel/editor.js").Editor;
    "pv-explain": import("./panel/explain.js").ExplainView;
    "pv-failed-step": import("./thread/failed-step.js").FailedStep;
    "pv-find": import("./thread/find-bar.js").FindBar;
    "pv-guide": import("./shell/guide.js").Guide;
    "pv-head": import("./shell/header.js").Header;
    "pv-history": import("./panel/history.js").HistoryView;
    "pv-login": import("./shell/login.js").Login;
    "pv-menu": import("./shell/menu.js").Menu;
    "pv-message": import("./thread/message.js").MessageRow;
    "pv-palette": import("./shell/palette.js").Palette;
    "pv-panel": import("./panel/panel.js").Panel;
    "pv-price": import("./panel/price.js").Price;
    "pv-request": import("./panel/request.js").RequestView;
    "pv-run": import("./panel/run.js").RunView;
    "pv-selection": import("./thread/selection.js").SelectionBar;
    "pv-sidebar": import("./shell/sidebar.js").Sidebar;
    "pv-suggestions": import("./thread/suggestions.js").Suggestions;
    "pv-team": import("./panel/team.js").TeamView;
    "pv-team-box": import("./thread/team-box.js").TeamBox;
    "pv-thread": import("./thread/thread.js").Thread;
    "pv-toast": import("./shell/toast.js").Toasts;
    "pv-tokens": import("./panel/tokens.js").TokensView;
    "pv-waiting": import("./panel/waiting-edits.js").WaitingEdits;
    "pv-welcome": import("./shell/welcome.js").Welcome;
  }
}
