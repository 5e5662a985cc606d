package conditions

import (
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// BenchmarkSetToVisible measures the time from Set until another client's watch shows the
// condition and, alternating with it, the same for a bare patch of one condition.
func BenchmarkSetToVisible(b *testing.B) {
	server := cluster.Server(b)
	config := server.Admin()
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client := kubetest.Clientset(b, config)
	r := start(b, server, func(c *Config) { c.Client, c.Coalesce = client, time.Nanosecond })
	seen := watchNode(b, server.Client(), r.node)
	visible := func(conditionType, message string) {
		for n := range seen {
			if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return string(c.Type) == conditionType && c.Message == message
			}) {
				return
			}
		}
		b.Fatal("the watch ended")
	}
	set := func(message string) {
		c := deadlocked()
		c.Message = message
		r.set(c)
		visible("KernelDeadlock", message)
	}
	bare := func(message string) {
		_, err := client.CoreV1().Nodes().Patch(b.Context(), r.node, types.StrategicMergePatchType, []byte(
			`{"status":{"conditions":[{"type":"Bare","status":"True","reason":"TaskHung","message":"`+message+`","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`),
			metav1.PatchOptions{FieldManager: "bench"}, "status")
		if err != nil {
			b.Fatal(err)
		}
		visible("Bare", message)
	}
	set("warm")
	bare("warm")
	var sets, bares []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		bare(strconv.Itoa(i))
		bares = append(bares, time.Since(began))
		r.waitAcked() // it has seen that patch, as an idle agent has
		began = time.Now()
		set(strconv.Itoa(i))
		sets = append(sets, time.Since(began))
		r.waitAcked()
	}
	quantile := func(of []time.Duration, q float64) float64 {
		slices.Sort(of)
		return float64(of[int(q*float64(len(of)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(quantile(sets, 0.5), "set-p50-ms")
	b.ReportMetric(quantile(sets, 0.99), "set-p99-ms")
	b.ReportMetric(quantile(bares, 0.5), "bare-p50-ms")
	b.ReportMetric(quantile(bares, 0.99), "bare-p99-ms")
	b.ReportMetric(quantile(sets, 0.5)/quantile(bares, 0.5), "times-bare")
}
