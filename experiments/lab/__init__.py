"""What every experiment needs: trials, result lines, running them side by side, tables, figures, documents."""
