package pods

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/netlab"
)

// A server at an address that is not this machine's does not get the token unless its certificate
// is verified.
func TestTheTokenStaysOnTheMachine(t *testing.T) {
	prober, target := netlab.PairIn(t, 64)
	l := target.Serve("10.97.64.2:0", netlab.Echo)
	for _, c := range []struct {
		what  string
		cfg   KubeletConfig
		from  *netlab.Net
		wrong string
	}{
		{"a token, to another machine", KubeletConfig{Insecure: true, TokenFile: "token"}, prober, "is not an address of this machine"},
		{"a token, on the machine", KubeletConfig{Insecure: true, TokenFile: "token"}, target, ""},
		{"no token", KubeletConfig{Insecure: true}, prober, ""},
		{"a certificate that is checked", KubeletConfig{TokenFile: "token"}, prober, ""},
	} {
		asker := Asker{cfg: c.cfg}
		client, err := asker.client()
		if err != nil {
			t.Fatal(err)
		}
		err = c.from.Do(func() error {
			var conn net.Conn
			if conn, err = client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
				_ = conn.Close()
			}
			return err
		})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.what, err, c.wrong)
		}
	}
}
