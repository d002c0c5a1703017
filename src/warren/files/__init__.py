"""Access to the disk: every file operation of Warren passes through this package."""
