// networkpolicies enforces the NetworkPolicies of the embedded cluster by one nftables table on the node where it runs.
//
// It watches pods, namespaces and NetworkPolicies, computes the whole table, and replaces it in one transaction. What is not
// allowed is dropped, as most network plugins do it: the caller sees a timeout, not a refusal.
//
//	networkpolicies --kubeconfig FILE
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// A burst of events is applied at once.
const settle = 20 * time.Millisecond

// A table that could not be written is tried again, and one that somebody removed is put back.
const again = 5 * time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatalf("read %s: %v", *kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatalf("make a client from %s: %v", *kubeconfig, err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one is pending already
		}
	}
	pods := factory.Core().V1().Pods()
	namespaces := factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(any, any) { notify() },
			DeleteFunc: func(any) { notify() },
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			log.Fatalf("watch: %v", err)
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			log.Fatalf("the watch of %v ended before its first list", kind)
		}
	}
	read := func() (state, error) {
		var s state
		var err error
		if s.pods, err = pods.Lister().List(labels.Everything()); err != nil {
			return s, err
		}
		if s.policies, err = policies.Lister().List(labels.Everything()); err != nil {
			return s, err
		}
		found, err := namespaces.Lister().List(labels.Everything())
		s.namespaces = map[string]labels.Set{}
		for _, namespace := range found {
			s.namespaces[namespace.Name] = namespace.Labels
		}
		return s, err
	}
	enforce(ctx, changed, read)
}

// enforce keeps the table up to date until the context ends. The table stays: a stopped enforcer opens nothing.
func enforce(ctx context.Context, changed <-chan struct{}, read func() (state, error)) {
	applied, look := "", false
	for {
		if s, err := read(); err != nil {
			log.Printf("read the watched objects: %v", err)
		} else if wanted, count := s.table(); wanted != applied || (look && !tableExists(ctx)) {
			begin := time.Now()
			if err := replaceTable(ctx, wanted); err != nil {
				applied = ""
				log.Printf("write table %s: %v", tableName, err)
			} else {
				applied = wanted
				log.Printf("table %s: isolates %d times, written in %v", tableName, count, time.Since(begin).Round(time.Millisecond))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			time.Sleep(settle)
			look = false
		case <-time.After(again):
			look = true
		}
	}
}

// state is what the table is computed from.
type state struct {
	pods       []*v1.Pod
	policies   []*networking.NetworkPolicy
	namespaces map[string]labels.Set
}
