"""Result files of other evaluation kits: one module per kit, and the matching of their rows to samples."""
