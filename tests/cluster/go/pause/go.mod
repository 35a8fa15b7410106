module kfjob.dev/test-cluster/pause

go 1.24.0
