"""Time logs, ours and NERSC's: what took how long, by definitions that each have a name."""
