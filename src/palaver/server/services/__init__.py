"""What the server does behind its routes: steps, open conversations, models, tools, teams."""
