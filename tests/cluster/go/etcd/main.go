// Command etcd is the cluster's own store. Debian's etcd (3.4) is too old for it: KWOK needs RequestWatchProgress.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
