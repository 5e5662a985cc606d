package netprobe

import (
	"net/netip"
	"slices"
	"testing"
)

func TestReverseName(t *testing.T) {
	for a, want := range map[string]string{
		"10.0.2.1": "1.2.0.10.in-addr.arpa.", "::ffff:10.0.2.1": "1.2.0.10.in-addr.arpa.",
		"fd00::a:1": "1.0.0.0.a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
	} {
		if got := reverseName(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %s", a, got)
		}
	}
}

func FuzzNameServers(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nnameserver ::1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if all := NameServers(text); len(all) == 0 || len(all) > MaxServers || slices.ContainsFunc(all, func(a netip.Addr) bool { return !a.IsValid() }) {
			t.Errorf("%v", all)
		}
	})
}
