"""The paper on arrays: equations, confidences, neighbours, evidence and rules. No files, no models."""
