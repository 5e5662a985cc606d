package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// quickened returns the committed alerts with shorter durations: a test can't wait 15 min.
func quickened(t testing.TB) string {
	t.Helper()
	return regexp.MustCompile(`(?m)^( +for: ).*$`).ReplaceAllString(readFile(t, "deploy/chart/kernosis/files/alerts.yaml"), "${1}2s")
}

// get sends a request to Prometheus.
func (s *stage) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.prometheus+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}

// series is a series in a response.
type series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
	Value  [2]any            `json:"value"`
}

// query evaluates an expression: over the duration of the test, or now.
func (s *stage) query(ctx context.Context, expr string, over bool) ([]series, error) {
	path, form := "/api/v1/query", url.Values{"query": {expr}}
	if over {
		path = "/api/v1/query_range"
		form.Set("start", strconv.FormatInt(s.began.Unix(), 10))
		form.Set("end", strconv.FormatInt(time.Now().Unix(), 10))
		form.Set("step", "1s")
	}
	text, err := s.get(ctx, path+"?"+form.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []series `json:"result"`
		} `json:"data"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.Data.Result, err
}

// shown counts the series that Grafana would display.
func shown(all []series) (n int) {
	number := func(v [2]any) bool {
		text, _ := v[1].(string)
		f, err := strconv.ParseFloat(text, 64)
		return err == nil && !math.IsNaN(f)
	}
	for _, one := range all {
		is := number(one.Value)
		for _, v := range one.Values {
			is = is || number(v)
		}
		if is {
			n++
		}
	}
	return n
}

// firing returns the alerts that have fired so far.
func (s *stage) firing(ctx context.Context) (map[string]bool, error) {
	all, err := s.query(ctx, `ALERTS{alertstate="firing"}`, true)
	out := map[string]bool{}
	for _, one := range all {
		out[one.Metric["alertname"]+" "+one.Metric["severity"]] = true
	}
	return out, err
}
