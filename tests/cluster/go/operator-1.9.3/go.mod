module kfjob.dev/test-cluster/operator-1.9.3

go 1.24.0

require github.com/kubeflow/training-operator v1.9.3
