module kfjob.dev/test-cluster/operator-1.7

go 1.24.0

require github.com/kubeflow/training-operator v1.7.0
