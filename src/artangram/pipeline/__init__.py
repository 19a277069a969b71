"""The whole run: a house, tasks and a model in, a trained model out; live and simulated."""
