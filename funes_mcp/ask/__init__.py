"""`funes ask`: one answer from recalled passages, by an agent that can do nothing but answer."""
