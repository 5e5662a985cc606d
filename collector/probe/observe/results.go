package observe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// family is the only one read; the others are histograms, and many times as long.
	family = "prober_probe_total"
	// maxBody is what kubelet would report for some thousand pods.
	maxBody = 64 << 20
	maxLine = 64 << 10
)

// Pages fetches pages from kubelet.
type Pages interface {
	Get(ctx context.Context, page string) (*http.Response, error)
}

// KubeletMetrics reads kubelet's counts.
type KubeletMetrics struct{ Pages Pages }

var _ Kubelet = (*KubeletMetrics)(nil)

// Results returns the counts of all probes that kubelet makes.
func (m *KubeletMetrics) Results(ctx context.Context) (map[probe.Key]Results, error) {
	res, err := m.Pages.Get(ctx, "metrics/probes")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return ReadResults(io.LimitReader(res.Body, maxBody))
}

// ReadResults parses the counts in kubelet's metrics.
func ReadResults(r io.Reader) (map[probe.Key]Results, error) {
	text, err := only(r)
	if err != nil {
		return nil, fmt.Errorf("kubelet's counts of probes: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("kubelet's counts of probes: %w", err)
	}
	out := map[probe.Key]Results{}
	for _, metric := range families[family].GetMetric() {
		add(out, metric)
	}
	return out, nil
}

// only returns the lines of the family.
func only(r io.Reader) (io.Reader, error) {
	var kept bytes.Buffer
	kept.WriteString("# TYPE " + family + " counter\n")
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() {
		if line := lines.Bytes(); bytes.HasPrefix(line, []byte(family+"{")) {
			kept.Write(line)
			kept.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &kept, nil
}

func add(out map[probe.Key]Results, m *dto.Metric) {
	var key probe.Key
	var result string
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "pod_uid":
			key.PodUID = l.GetValue()
		case "container":
			key.Container = l.GetValue()
		case "probe_type":
			key.Kind = probe.Kind(strings.ToLower(l.GetValue()))
		case "result":
			result = l.GetValue()
		}
	}
	n := m.GetCounter().GetValue()
	if key.PodUID == "" || n < 0 || n > 1<<53 {
		return
	}
	r := out[key]
	switch result {
	case "failed":
		r.Failed = uint64(n)
	case "successful":
		r.Succeeded = uint64(n)
	}
	out[key] = r
}
