"""What a node costs on a device, measured or estimated."""
