// Command coredns is CoreDNS with only the plugins that the test cluster's Corefile names: the full set would pull in
// the client libraries of every cloud.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/coremain"
)

func main() {
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "cache", "kubernetes", "template"}
	coremain.Run()
}
