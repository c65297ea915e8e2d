"""The verbs of the command line; `campaign.config.command_line.VERBS` says which function does which."""
