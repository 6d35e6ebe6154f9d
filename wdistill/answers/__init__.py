"""What people hold: answers of a teacher that was run already, such as an LLM, and gold labels, in their usual forms."""
