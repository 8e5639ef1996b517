package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const tableName = "kraftbridge-networkpolicies"

// A packet between pods of the node passes "forward" (the bridge hands it to the IP hooks: bridge-nf-call-iptables), one between pods of
// two nodes does so on both, one from a pod to the node itself passes "input". What the node sends is never filtered: the kubelet's probes must arrive.
// Service addresses are those of pods by then: destination NAT happens before.
const head = `table ip ` + tableName + ` {
  chain forward {
    type filter hook forward priority filter; policy accept;
    jump policies
  }
  chain input {
    type filter hook input priority filter; policy accept;
    jump policies
  }
`

type direction struct {
	name string
	// isolated and peer name the address of a packet that belongs to the policy's pod and to the other side.
	isolated, peer string
	kind           networking.PolicyType
}

var directions = []direction{
	{"egress", "saddr", "daddr", networking.PolicyTypeEgress},
	{"ingress", "daddr", "saddr", networking.PolicyTypeIngress},
}

// table renders the whole table and counts how often a policy isolates a pod (in each direction).
func (s state) table() (string, int) {
	var body, dispatch strings.Builder
	pods := s.addressable()
	count := 0
	for _, d := range directions {
		var elements []string
		for _, pod := range pods {
			rules, isolated := s.rules(d, pod, pods)
			if !isolated {
				continue
			}
			count++
			chain := d.name + "-" + strings.ReplaceAll(pod.Status.PodIP, ".", "-")
			elements = append(elements, fmt.Sprintf("%s : jump %s", pod.Status.PodIP, chain))
			fmt.Fprintf(&body, "  chain %s { # %s/%s\n", chain, pod.Namespace, pod.Name)
			// A pod can always reach itself: https://kubernetes.io/docs/concepts/services-networking/network-policies
			fmt.Fprintf(&body, "    ip %s %s return\n", d.peer, pod.Status.PodIP)
			for _, rule := range rules {
				fmt.Fprintf(&body, "    %s return\n", rule)
			}
			body.WriteString("    counter drop\n  }\n")
		}
		if len(elements) > 0 {
			fmt.Fprintf(&dispatch, "    ip %s vmap { %s }\n", d.isolated, strings.Join(elements, ", "))
		}
	}
	// Rules refer to chains that come before them.
	return head[:strings.Index(head, "  chain forward")] + body.String() +
		"  chain policies {\n    ct state established,related accept\n" + dispatch.String() + "  }\n" +
		head[strings.Index(head, "  chain forward"):] + "}\n", count
}

// addressable returns the pods that have an address of their own, in a stable order; of two with the same address the younger one.
func (s state) addressable() []*v1.Pod {
	byAddress := map[string]*v1.Pod{}
	for _, pod := range s.pods {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if err != nil || !address.Is4() || ended || pod.Spec.HostNetwork {
			continue
		}
		other, taken := byAddress[pod.Status.PodIP]
		if !taken || other.CreationTimestamp.Before(&pod.CreationTimestamp) {
			byAddress[pod.Status.PodIP] = pod
		}
	}
	found := slices.Collect(maps.Values(byAddress))
	slices.SortFunc(found, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found
}

// rules returns what a pod may send or receive, and whether any policy isolates it in that direction.
func (s state) rules(d direction, pod *v1.Pod, pods []*v1.Pod) (rules []string, isolated bool) {
	for _, policy := range s.policies {
		if policy.Namespace != pod.Namespace || !applies(policy, d.kind) || !matches(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		isolated = true
		if d.kind == networking.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				rules = append(rules, s.allowed(d, policy.Namespace, rule.From, rule.Ports, pod, pods)...)
			}
		} else {
			for _, rule := range policy.Spec.Egress {
				rules = append(rules, s.allowed(d, policy.Namespace, rule.To, rule.Ports, pod, pods)...)
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), isolated
}

// applies says whether a policy isolates in a direction. The API server fills in policyTypes.
func applies(policy *networking.NetworkPolicy, kind networking.PolicyType) bool {
	return slices.Contains(policy.Spec.PolicyTypes, kind)
}

func matches(selector *meta.LabelSelector, set map[string]string) bool {
	compiled, err := meta.LabelSelectorAsSelector(selector)
	return err == nil && compiled.Matches(labels.Set(set)) // what cannot be read allows and isolates nothing
}

// allowed renders one rule of a policy: every peer with every port.
func (s state) allowed(
	d direction, namespace string, peers []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort, pod *v1.Pod, pods []*v1.Pod,
) []string {
	var rules []string
	for _, port := range orNil(ports) {
		if len(peers) == 0 && (!named(port) || d.kind == networking.PolicyTypeIngress) {
			if match := portMatch(port, pod); !named(port) || match != "" {
				rules = append(rules, strings.TrimSpace(match))
			}
			continue
		}
		var selected []*v1.Pod
		for _, other := range pods {
			if len(peers) == 0 || slices.ContainsFunc(peers, func(p networking.NetworkPolicyPeer) bool { return s.selects(p, namespace, other) }) {
				selected = append(selected, other)
			}
		}
		rules = append(rules, s.toPods(d, port, pod, selected)...)
		for _, peer := range peers {
			if peer.IPBlock != nil {
				match := portMatch(port, pod)
				if named(port) && (d.kind == networking.PolicyTypeEgress || match == "") {
					continue // a named port is a pod's own
				}
				rules = append(rules, strings.TrimSpace(block(d, peer.IPBlock)+match))
			}
		}
	}
	return rules
}

// toPods renders a rule for peers that are pods. A named port is looked up in the pod that receives.
func (s state) toPods(d direction, port *networking.NetworkPolicyPort, pod *v1.Pod, peers []*v1.Pod) []string {
	byMatch := map[string][]string{}
	for _, peer := range peers {
		receiver := pod
		if d.kind == networking.PolicyTypeEgress {
			receiver = peer
		}
		match := portMatch(port, receiver)
		if named(port) && match == "" {
			continue
		}
		byMatch[match] = append(byMatch[match], peer.Status.PodIP)
	}
	var rules []string
	for match, addresses := range byMatch {
		slices.Sort(addresses)
		set := strings.Join(slices.Compact(addresses), ", ")
		rules = append(rules, strings.TrimSpace(fmt.Sprintf("ip %s { %s }%s", d.peer, set, match)))
	}
	return rules
}

func (s state) selects(peer networking.NetworkPolicyPeer, namespace string, pod *v1.Pod) bool {
	if peer.IPBlock != nil {
		return false
	}
	if peer.NamespaceSelector == nil {
		if pod.Namespace != namespace {
			return false
		}
	} else if !matches(peer.NamespaceSelector, s.namespaces[pod.Namespace]) {
		return false
	}
	return peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)
}

func block(d direction, b *networking.IPBlock) string {
	match := fmt.Sprintf("ip %s %s", d.peer, b.CIDR)
	if len(b.Except) > 0 {
		match += fmt.Sprintf(" ip %s != { %s }", d.peer, strings.Join(b.Except, ", "))
	}
	return match
}

// orNil returns pointers to the ports, or a single nil: no ports means all of them.
func orNil(ports []networking.NetworkPolicyPort) []*networking.NetworkPolicyPort {
	if len(ports) == 0 {
		return []*networking.NetworkPolicyPort{nil}
	}
	var found []*networking.NetworkPolicyPort
	for i := range ports {
		found = append(found, &ports[i])
	}
	return found
}

func named(port *networking.NetworkPolicyPort) bool {
	return port != nil && port.Port != nil && port.Port.Type == intstr.String
}

// portMatch renders a port with a space before it; "" for every port, and for a name that the receiver does not have.
func portMatch(port *networking.NetworkPolicyPort, receiver *v1.Pod) string {
	if port == nil {
		return ""
	}
	protocol := v1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	name := strings.ToLower(string(protocol))
	switch {
	case port.Port == nil:
		return " meta l4proto " + name
	case port.Port.Type == intstr.Int && port.EndPort != nil:
		return fmt.Sprintf(" %s dport %d-%d", name, port.Port.IntVal, *port.EndPort)
	case port.Port.Type == intstr.Int:
		return fmt.Sprintf(" %s dport %d", name, port.Port.IntVal)
	case receiver == nil:
		return ""
	}
	for _, container := range append(slices.Clone(receiver.Spec.InitContainers), receiver.Spec.Containers...) {
		for _, exposed := range container.Ports {
			if exposed.Name == port.Port.StrVal && (exposed.Protocol == protocol || exposed.Protocol == "") {
				return fmt.Sprintf(" %s dport %d", name, exposed.ContainerPort)
			}
		}
	}
	return ""
}

// replaceTable puts the new table in the place of the old one, in one transaction.
func replaceTable(ctx context.Context, table string) error {
	return nft(ctx, fmt.Sprintf("table ip %s\ndelete table ip %s\n%s", tableName, tableName, table), "-f", "-")
}

func tableExists(ctx context.Context) bool {
	return nft(ctx, "", "list", "chain", "ip", tableName, "forward") == nil
}

func nft(ctx context.Context, stdin string, arguments ...string) error {
	command := exec.CommandContext(ctx, "nft", arguments...)
	command.Stdin = strings.NewReader(stdin)
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("nft %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}
