"""What `deploy/` promises: checked with the tools that will read it, and across files, where no schema looks."""
