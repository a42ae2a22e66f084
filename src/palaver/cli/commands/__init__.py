"""The commands of `palaver`, each in the file that `palaver.cli.app` names for it."""
