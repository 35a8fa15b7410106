"""kfjob: from a job spec to a loss curve, on a Kubernetes cluster or on this machine."""
