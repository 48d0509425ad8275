"""The composition root: loads the models, opens the port, and ends the process in good order.

Nothing is imported here: :mod:`llgtrt.app.process` begins to load the model before it imports the server.
"""
