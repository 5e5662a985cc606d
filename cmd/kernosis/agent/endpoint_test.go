package agent

import (
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

func TestAgentEndpoint(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, ""},
		{Config{Listen: "127.0.0.1:1"}, "http://127.0.0.1:1"},
		{Config{Listen: ":1", Metrics: config.Metrics{Plain: true}}, "http://127.0.0.1:1"},
		{Config{isAgent: true, NPD: NPDSettings{PrometheusAddress: "10.0.0.7", PrometheusPort: 2}}, "https://10.0.0.7:2"},
		{Config{isAgent: true, Listen: "localhost:1", NPD: NPDSettings{PrometheusAddress: "10.0.0.7", PrometheusPort: 2}}, "http://localhost:1"},
		{Config{isAgent: true, Listen: "10.0.0.7:1", NPD: NPDSettings{PrometheusAddress: "::1", PrometheusPort: 2}}, "http://[::1]:2"},
	} {
		if got := c.cfg.Endpoint(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
