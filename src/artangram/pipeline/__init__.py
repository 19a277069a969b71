"""The whole run: a cluster, tasks and a model in, a trained model out; live and simulated."""
